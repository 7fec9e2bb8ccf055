"""A worker process: steps its groups of environments when it is told to. It is run as a script and imports no JAX."""

from __future__ import annotations

import importlib.util
import json
import mmap
import os
import signal
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

STEP, RESET = 0, 1  # what a worker is asked for


def _load_group() -> Any:
    """The file beside this one; as part of the package it would bring all of ppax."""
    spec = importlib.util.spec_from_file_location("group", Path(__file__).with_name("group.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Serve the process that started this one, until it closes the connection or is gone."""
    group = _load_group()
    connection, memory = Connection(int(sys.argv[1])), int(sys.argv[2])
    for name in (signal.SIGINT, signal.SIGTERM):  # these may reach all processes; the one that started us decides
        signal.signal(name, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    groups: list[Any] = []
    try:
        import cloudpickle

        sys.path[:] = json.loads(connection.recv_bytes())
        sizes, worker, owned = cloudpickle.loads(connection.recv_bytes())
        layout = group.Layout(*sizes)  # not pickled itself: its class would be looked for in ppax, and bring JAX
        arrays = layout.make(mmap.mmap(memory, layout.nbytes()))
        for rows, factories in owned:
            groups.append(group.Group(factories, rows.start, layout, arrays.rows(rows), worker))
        connection.send_bytes(b"")
        while True:
            _serve(groups, connection)
    except (EOFError, OSError):
        pass  # we are not needed any more
    except group.Failure as failure:
        connection.send_bytes(json.dumps(failure.report).encode())
    except Exception:
        connection.send_bytes(json.dumps({"index": -1, "cause": traceback.format_exc()}).encode())
    finally:
        for one in groups:
            one.close()


def _serve(groups: list[Any], connection: Connection) -> None:
    verb, number, *seeds = json.loads(connection.recv_bytes())
    if verb == STEP:
        groups[number].step()
    else:
        groups[number].reset(seeds)
    connection.send_bytes(b"")


def _end_with(parent: int) -> None:
    """End when the process that started us has, even while an environment hangs."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":
    main()
