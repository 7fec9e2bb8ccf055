"""A worker process: steps its groups of environments when it is told to. It is run as a script and imports no JAX."""

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

AWAKE = 300e-6  # seconds


def _load(*names: str) -> list[Any]:
    """Files beside this one, without what their packages bring: that would be all of ppax."""
    here = Path(__file__).parent
    for name, path in (("ppax", here.parents[1]), ("ppax.envs", here.parent), ("ppax.envs.hosting", here)):
        sys.modules[name] = package = ModuleType(name)
        package.__path__ = [str(path)]
    loaded = [importlib.import_module(f"ppax.envs.hosting.{name}") for name in names]
    for name in [name for name in sys.modules if name.partition(".")[0] == "ppax"]:
        del sys.modules[name]  # an environment that imports ppax gets all of it
    return loaded


def main() -> None:
    """Serve the process that started this one, until it closes the connection or is gone."""
    arrays_file, group = _load("arrays", "batch")
    connection, memory = Connection(int(sys.argv[1])), int(sys.argv[2])
    for name in (signal.SIGINT, signal.SIGTERM):  # these may reach all processes; the one that started us decides
        signal.signal(name, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    groups: list[Any] = []
    try:
        import cloudpickle

        sys.path[:] = json.loads(connection.recv_bytes())
        sizes, worker, owned = cloudpickle.loads(connection.recv_bytes())
        layout = arrays_file.Layout(*sizes)  # not pickled itself: its class would be looked for in ppax, and bring JAX
        arrays = layout.make(mmap.mmap(memory, layout.nbytes()))
        for envs, factories in owned:
            rows = layout.streams(envs)
            groups.append(group.Group(factories, envs.start, layout, arrays.rows(rows), worker))
        connection.send_bytes(b"")
        arrived = select.poll()
        arrived.register(connection.fileno(), select.POLLIN)
        while True:
            _stay_awake(arrived)
            _serve(groups, connection)
    except (EOFError, OSError):
        pass  # we are not needed any more
    except group.Failure as failure:
        _report(connection, failure.report)
    except group.RAISED:
        _report(connection, {"index": -1, "cause": traceback.format_exc()})
    finally:
        for one in groups:
            one.close()


def _stay_awake(arrived: Any) -> None:
    """For a little while wait for what comes next without sleeping: to be woken takes as long as many a step."""
    until = time.perf_counter() + AWAKE
    while not arrived.poll(0) and time.perf_counter() < until:
        os.sched_yield()


def _serve(groups: list[Any], connection: Connection) -> None:
    request = connection.recv_bytes()
    if len(request) == 1:  # the number of the group that is to take a step
        groups[request[0]].step()
    else:
        number, *seeds = json.loads(request)
        groups[number].reset(seeds)
    connection.send_bytes(b"")


def _report(connection: Connection, failure: dict[str, Any]) -> None:
    """Send a failure; nobody reads it any more where another worker has failed first."""
    with contextlib.suppress(OSError):
        connection.send_bytes(json.dumps(failure).encode())


def _end_with(parent: int) -> None:
    """End when the process that started us has, even while an environment hangs."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":
    main()
