"""The tasks, one folder each: from raw text to records, and a model with its loss and metrics."""
