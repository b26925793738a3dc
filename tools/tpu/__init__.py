"""The TPU's compiler, and the memory and FLOPs of a step on a TPU."""
