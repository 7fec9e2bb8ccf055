"""What goes wrong inside an environment."""

from __future__ import annotations


class EnvError(Exception):
    """An environment raised an exception, or its process died or hangs; all environments were closed."""
