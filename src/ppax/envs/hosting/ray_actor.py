"""Actor of a Ray cluster that steps its share of each batch of environments, as worker_process.py does.

The actor's class is pickled by value: an actor imports neither the whole of ppax nor JAX, unless its environments do.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FILES = ("batch", "faults")  # modules of envs/hosting that import nothing else of ppax


class EnvActor:
    """Actor of a Ray cluster that steps environments.

    If an environment fails, a method returns the report of the failure, a dict, in place of its result.
    """

    def __init__(self) -> None:
        self._batches: list[Any] = []
        self._faults: Any = None

    def open(self, search: list[str], task: bytes) -> Any:
        """Create the environments of the actor; return its process id and the name of its machine.

        `search` are folders that are added to `sys.path`, and `task` describes the environments (workers.pickled).
        """
        sys.path.extend(entry for entry in search if entry not in sys.path)
        batch, self._faults = _modules()

        def create() -> tuple[int, str]:
            for one in batch.open_batches(task):
                self._batches.append(one)
            return os.getpid(), platform.node()

        return self._reported(create)

    def reset(self, number: int, seeds: Sequence[int]) -> Any:
        """Reset the environments of the actor's batch `number`, one seed each; return a list of result arrays.

        The arrays are those of `Arrays.results` (hosting/arrays.py): observations, rewards, ends of episodes, masks and
        so on.
        """
        batch = self._batches[number]
        return self._reported(lambda: batch.reset(seeds) or batch.arrays.results())

    def step(self, number: int, action: Sequence[Any]) -> Any:
        """Step the environments of the actor's batch `number` with `action`; return a list of result arrays.

        `action` has one array [n, ...] for each array of the action space; n is the number of the actor's streams (one
        agent in one environment) in this batch. The result arrays are those of `Arrays.results` (hosting/arrays.py):
        observations, rewards, ends of episodes, masks and so on.
        """
        batch = self._batches[number]

        def step() -> list[Any]:
            batch.arrays.act(action)
            batch.step()
            return batch.arrays.results()

        return self._reported(step)

    def close(self) -> None:
        """Close all environments of the actor."""
        for batch in self._batches:
            batch.close()

    def _reported(self, work: Any) -> Any:
        """Return the result of `work()`, or, if an environment fails in it, the report of the failure, a dict."""
        try:
            return work()
        except self._faults.Failure as failure:
            return failure.report
        except self._faults.RAISED:
            return {"index": -1, "cause": traceback.format_exc()}


def _modules() -> list[Any]:
    """Return the modules `batch` and `faults` of envs/hosting, in this order, with which an actor steps environments.

    They are loaded from their files, so that the actor need not import the rest of ppax and JAX. If its process has
    imported ppax already, the modules are imported from ppax.
    """
    if "ppax" in sys.modules:
        return [importlib.import_module(f"ppax.envs.hosting.{name}") for name in FILES]
    spec: Any = importlib.util.find_spec("ppax")
    if spec is None:
        raise ImportError(f"ppax is not installed on {platform.node()}")
    path = Path(spec.origin).parent / "envs" / "hosting" / "worker_process.py"
    own: Any = importlib.util.spec_from_file_location("worker", path)
    worker = importlib.util.module_from_spec(own)
    own.loader.exec_module(worker)
    loaded: list[Any] = worker.load(*FILES)
    return loaded
