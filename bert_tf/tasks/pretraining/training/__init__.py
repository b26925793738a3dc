"""Pre-training: the model, its runs, and distillation."""
