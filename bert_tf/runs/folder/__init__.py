"""The folder of a run: heartbeat, checkpoints, results."""
