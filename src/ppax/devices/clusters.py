"""Connection of this process to a Ray cluster, shared by all that use it; the only file that imports Ray."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ppax.core.types import ConfigError

AUTO = "auto"  # address: $RAY_ADDRESS, else a cluster that runs on this machine, else a new one of this process

_users = 0
_begun_here = False


@contextlib.contextmanager
def connected(address: str = AUTO) -> Iterator[Any]:
    """Yield the module `ray` while this process is connected to the Ray cluster at `address`.

    A connection that exists already is used, and stays open afterwards; one made here is closed when the last of these
    contexts ends. Raises ConfigError where Ray is not installed or does not answer.
    """
    global _users, _begun_here
    ray = _imported()
    if not ray.is_initialized():
        _begin(ray, address)
        _begun_here = True
    _users += 1
    try:
        yield ray
    finally:
        _users -= 1
        if _users == 0 and _begun_here:
            _begun_here = False
            ray.shutdown()


def _imported() -> Any:
    if _has_token():  # `ray start` asks for it by default, and a driver sends it only in this mode, read at the import
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    try:
        import ray
    except ImportError as error:
        raise ConfigError('Ray is not installed: pip install "ppax[ray]"') from error
    return ray


def _has_token() -> bool:
    """Return whether this machine has a token to log in to a Ray cluster.

    https://docs.ray.io/en/latest/ray-security/token-auth.html
    """
    return bool(
        os.environ.get("RAY_AUTH_TOKEN")
        or os.environ.get("RAY_AUTH_TOKEN_PATH")
        or Path("~/.ray/auth_token").expanduser().is_file()
    )


def _begin(ray: Any, address: str) -> None:
    """Connect to the Ray cluster at `address`, "HOST:PORT"; signal handlers stay as they are.

    If `address` is AUTO, it is the cluster at $RAY_ADDRESS, else one that runs on this machine, else a new one, which
    is begun here. Raises ConfigError if no cluster answers at an address, or if it does not accept this process.
    """
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM) if main else None
    try:
        # without an address Ray looks for $RAY_ADDRESS and for a cluster of this machine before it begins one
        ray.init(address=None if address == AUTO else address, include_dashboard=False, logging_level="warning")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"ray = {address!r}: no cluster there, or none that accepts this process ({error}); must be HOST:PORT of "
            f"`ray start --head`, or {AUTO}. Where the head has a token, ~/.ray/auth_token, copy it to this machine"
        ) from error
    finally:
        if before is not None:  # Ray's own handler ends the process before a run can save its state
            signal.signal(signal.SIGTERM, before)
