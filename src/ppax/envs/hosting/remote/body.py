"""Actor of a Ray cluster that steps its share of each batch of environments, as a worker process does (worker.py).

Its class is pickled by value: an actor imports neither the whole of ppax nor JAX, unless its environments do.
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

FILES = ("arrays", "batch", "faults")  # modules of envs/hosting that import nothing else of ppax
FLAGS = ("reward", "terminated", "truncated", "first", "valid", "metrics")  # fields of Arrays


def results_of(view: Any) -> list[Any]:
    """Return the arrays that environments write, of some streams, in a fixed order."""
    masks = view.mask.values() if isinstance(view.mask, dict) else [view.mask]
    flags = [getattr(view, name) for name in FLAGS]
    return [*view.obs, *flags, *(mask for mask in masks if mask is not None), *(view.episode_stats or ())]


class EnvActor:
    """Environments of one actor; a method returns the report of a failure, a dict, in the place of its result."""

    def __init__(self) -> None:
        self._batches: list[Any] = []
        self._modules: list[Any] = []

    def open(self, search: list[str], task: bytes) -> Any:
        """Create the environments; return process and machine."""
        sys.path.extend(entry for entry in search if entry not in sys.path)
        self._modules = _modules()
        arrays_file, batch, _ = self._modules

        def create() -> tuple[int, str]:
            import cloudpickle

            sizes, worker, owned = cloudpickle.loads(task)
            layout = arrays_file.Layout(*sizes)
            arrays = layout.make()  # rows of all streams, so that indices are global; only its own are used
            for envs, factories in owned:
                rows = layout.rows(arrays, layout.streams(envs))
                self._batches.append(batch.EnvBatch(factories, envs.start, layout, rows, worker))
            return os.getpid(), platform.node()

        return self._reported(create)

    def reset(self, number: int, seeds: Sequence[int]) -> Any:
        """Reset the environments of batch `number`; return their arrays."""
        batch = self._batches[number]
        return self._reported(lambda: batch.reset(seeds) or results_of(batch.arrays))

    def step(self, number: int, action: Sequence[Any]) -> Any:
        """Step the environments of batch `number`; return their arrays."""
        batch = self._batches[number]

        def step() -> list[Any]:
            batch.arrays.act(action)
            batch.step()
            return results_of(batch.arrays)

        return self._reported(step)

    def close(self) -> None:
        """Close all environments."""
        for batch in self._batches:
            batch.close()

    def _reported(self, work: Any) -> Any:
        """Return the result of `work`, or the report of its failure."""
        _, _, faults = self._modules
        try:
            return work()
        except faults.Failure as failure:
            return failure.report
        except faults.RAISED:
            return {"index": -1, "cause": traceback.format_exc()}


def _modules() -> list[Any]:
    """Import FILES, without the rest of ppax where it is not imported yet."""
    if "ppax" in sys.modules:
        return [importlib.import_module(f"ppax.envs.hosting.{name}") for name in FILES]
    spec: Any = importlib.util.find_spec("ppax")
    if spec is None:
        raise ImportError(f"ppax is not installed on {platform.node()}")
    path = Path(spec.origin).parent / "envs" / "hosting" / "worker.py"
    own: Any = importlib.util.spec_from_file_location("worker", path)
    worker = importlib.util.module_from_spec(own)
    own.loader.exec_module(worker)
    loaded: list[Any] = worker.load(*FILES)
    return loaded
