"""Recorded runs: fit and resume, checkpoints, the run directory, signals, stop conditions and the best policy."""
