"""One folder a task: raw text to records, and a model with its loss and metrics."""
