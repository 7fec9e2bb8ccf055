"""Errors raised by environments.

This file imports nothing else of ppax: worker processes load it too.
"""

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


class Failure(Exception):
    """Exception of an environment; `report` has its index, the call (reset or step), the action and the traceback."""

    def __init__(self, index: int, verb: str, action: Any, cause: str):
        self.report = {"index": index, "verb": verb, "action": repr(action), "cause": cause}
        super().__init__(describe(self.report))


def describe(report: dict[str, Any]) -> str:
    """Format the report of a Failure as an error message: which environment, in reset or step, and the cause."""
    when = "reset" if report["verb"] == "reset" else f"step, action {report['action']}"
    return f"environment {report['index']} failed in {when}\n{report['cause']}"
