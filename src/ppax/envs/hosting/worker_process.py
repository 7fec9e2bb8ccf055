"""Worker process that steps its batches of environments on request. It is run as a script and imports no JAX."""

from __future__ import annotations

import contextlib
import importlib
import json
import mmap
import os
import select
import signal
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

SPIN_SECONDS = 300e-6  # seconds of busy waiting for the next request


def load(*names: str) -> list[Any]:
    """Return modules beside this file by name, imported without the `__init__.py` of their packages.

    The `__init__.py` files would import all of ppax.
    """
    here = Path(__file__).parent
    for name, path in (("ppax", here.parents[1]), ("ppax.envs", here.parent), ("ppax.envs.hosting", here)):
        sys.modules[name] = package = ModuleType(name)
        package.__path__ = [str(path)]
    loaded = [importlib.import_module(f"ppax.envs.hosting.{name}") for name in names]
    for name in [name for name in sys.modules if name.partition(".")[0] == "ppax"]:
        del sys.modules[name]  # an environment that imports ppax gets all of it
    return loaded


def main() -> None:
    """Serve the parent process: create environments, then step or reset them on request.

    The process ends when the parent closes the connection or ends.
    """
    batch, faults = load("batch", "faults")
    connection, memory = Connection(int(sys.argv[1])), int(sys.argv[2])
    for name in (signal.SIGINT, signal.SIGTERM):  # these may reach all processes; the parent decides
        signal.signal(name, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True).start()
    batches: list[Any] = []
    try:
        sys.path[:] = json.loads(connection.recv_bytes())
        for one in batch.open_batches(connection.recv_bytes(), mmap.mmap(memory, 0)):
            batches.append(one)  # one by one: if a later one fails, the earlier ones are closed
        connection.send_bytes(b"")
        arrived = select.poll()
        arrived.register(connection.fileno(), select.POLLIN)
        while True:
            _spin(arrived)
            _serve(batches, connection)
    except (EOFError, OSError):
        pass  # the parent has closed the connection
    except faults.Failure as failure:
        _report(connection, failure.report)
    except faults.RAISED:
        _report(connection, {"index": -1, "cause": traceback.format_exc()})
    finally:
        for one in batches:
            one.close()


def _spin(arrived: Any) -> None:
    """Wait for the next request without sleeping, for a short time, because waking up takes as long as a fast step.

    `arrived` is a poll object of the connection.
    """
    until = time.perf_counter() + SPIN_SECONDS
    while not arrived.poll(0) and time.perf_counter() < until:
        os.sched_yield()


def _serve(batches: list[Any], connection: Connection) -> None:
    """Answer one request of the parent process: a step of a batch, or its reset with seeds."""
    request = connection.recv_bytes()
    if len(request) == 1:  # the index of the batch to step
        batches[request[0]].step()
    else:
        number, *seeds = json.loads(request)
        batches[number].reset(seeds)
    connection.send_bytes(b"")


def _report(connection: Connection, failure: dict[str, Any]) -> None:
    """Send the report of a failure to the parent process; do nothing if the connection is closed.

    It is closed if another worker has failed first.
    """
    with contextlib.suppress(OSError):
        connection.send_bytes(json.dumps(failure).encode())


def _exit_with_parent(parent: int) -> None:
    """End this process when its parent, of this process id, has ended, even while an environment hangs."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":
    main()
