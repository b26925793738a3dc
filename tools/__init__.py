"""Programs around the main ones, run as `python -m tools.NAME`."""
