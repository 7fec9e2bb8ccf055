"""Host environments: Python objects stepped in this process or in workers, with autoreset modes, spaces and faults."""
