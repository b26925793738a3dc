"""Records for pre-training."""
