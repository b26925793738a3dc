"""How each task is trained from examples in memory."""
