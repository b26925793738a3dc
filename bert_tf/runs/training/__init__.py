"""Training: plan, trainer, fine-tuning."""
