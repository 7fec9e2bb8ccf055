"""Environments of Python: stepping, worker processes, autoreset modes, faults."""
