"""What measures: `python -m benchmarks.NAME`, in a checkout."""
