"""Runs of the programs: flags and settings, training, the run's folder, results."""
