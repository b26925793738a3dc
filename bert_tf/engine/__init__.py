"""Training, evaluation and prediction on the devices: input, steps, loops, interrupts."""
