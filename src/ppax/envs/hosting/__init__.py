"""Host environments: Python objects stepped in this process or in workers; autoreset modes, spaces, faults."""
