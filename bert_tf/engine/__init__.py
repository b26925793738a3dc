"""Batches to updates: devices, input, steps, loops, interrupts, progress."""
