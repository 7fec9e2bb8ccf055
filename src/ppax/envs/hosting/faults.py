"""Errors of environments: exceptions that they raise, and processes that die or hang.

This file imports nothing else of ppax: worker processes load it too.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

RAISED = (Exception, SystemExit)  # sys.exit() in an environment is its error, and must not end this process


class EnvError(Exception):
    """Error of an environment that raised an exception, or whose process died or hangs.

    All environments that were stepped together with it are closed. `reached` is what `ppax.train` returns, state and
    metrics, after the last finished iteration of the failed call; None if it finished none. `cause` is the exception of
    a constructor or a first reset, or None.
    """

    reached: Any = None  # Trained: the iterations that the same call finished before; None: none
    cause: BaseException | None = None  # exception of a constructor or first reset, before any stepping

    def __str__(self) -> str:
        """Return the message without control characters, as it may quote a name from somebody else's run file."""
        return "".join(x if x.isprintable() or x in "\n\t" else "\N{REPLACEMENT CHARACTER}" for x in super().__str__())


class NotFiniteValue(EnvError):
    """Error of a host environment whose observation or reward is not finite; it ends a run with NumericalError."""


class Failure(Exception):
    """Exception of an environment in a batch; `report` has its index, the call (`verb`), step, action and traceback."""

    def __init__(self, index: int, verb: str, action: Any, cause: str, step: int = 0):
        self.report = {"index": index, "verb": verb, "action": repr(_plain(action)), "cause": cause, "step": step}
        super().__init__(failure_text(self.report))


def failure_text(report: dict[str, Any]) -> str:
    """Return the error message for the report of a Failure: which environment, in which call, and the cause."""
    when = f"step {report['step']}, action {report['action']}" if report["verb"] == "step" else report["verb"]
    return f"environment {report['index']} failed in {when}\n{report['cause']}"


def _plain(action: Any) -> Any:
    """Return an action with Python's numbers in place of NumPy's, whose representation in an error would be longer."""
    if isinstance(action, dict):
        return {name: _plain(x) for name, x in action.items()}
    if isinstance(action, tuple | list):
        return type(action)(map(_plain, action))
    return action.item() if getattr(action, "shape", None) == () else action


def close_all(closing: Sequence[Callable[[], None]]) -> None:
    """Call every function of `closing`; print their exceptions instead of raising them.

    Raised, they could hide an earlier error.
    """
    for close in closing:
        try:
            close()
        except RAISED:
            print("an environment raised an exception in close():", file=sys.stderr)
            traceback.print_exc()
