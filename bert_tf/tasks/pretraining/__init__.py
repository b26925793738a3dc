"""Pre-training: masked language model and next sentence prediction (paper section 3.1)."""
