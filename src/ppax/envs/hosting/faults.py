"""Errors raised by environments."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from typing import Any


class EnvError(Exception):
    """An environment raised an exception, or its process died or hangs; all environments were closed."""

    reached: Any = None  # Trained: the iterations that the same call finished before; None: none


@contextlib.contextmanager
def exit_is_a_fault() -> Iterator[None]:
    """Raise EnvError if code of an environment calls `sys.exit`, which would end this process."""
    try:
        yield
    except SystemExit:
        raise EnvError(f"an environment has called sys.exit\n{traceback.format_exc()}") from None
