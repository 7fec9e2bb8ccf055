"""Host environments: Python objects stepped in this process or in workers, with their spaces, autoresets and errors."""
