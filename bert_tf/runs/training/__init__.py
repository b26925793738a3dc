"""Trains models: the plan of the steps, the trainer, time budgets, Keras's callbacks."""
