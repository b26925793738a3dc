"""The course of a run: settings, flags, training, fine-tuning, checkpoints, results."""
