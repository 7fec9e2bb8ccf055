"""Version of ppax."""

__version__ = "0.1.0"
