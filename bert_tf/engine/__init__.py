"""Everything from batches to updates: devices, input, steps, loops, interrupts, progress."""
