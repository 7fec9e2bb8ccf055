"""A recorded run: fit, resume, checkpoints, directory, signals, stop conditions, the best policy."""
