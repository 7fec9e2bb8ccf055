"""Several processes of one run: JAX's distributed runtime, decisions that all share, and whole arrays on the host.

Every process runs the same program over the devices of all of them. The leader, process 0, writes the run directory and
decides when to save and when to stop; the others follow. In a single process, functions that exchange something return
their argument.
"""

from __future__ import annotations

from typing import TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from ppax.core.types import ConfigError
from ppax.devices import sharding

HEARTBEAT_SECONDS = 20  # time without a heartbeat after which a process counts as lost
JOIN_SECONDS = 300  # time limit for all processes to join

Tree = TypeVar("Tree")


def join(coordinator: str | None = None, process: int | None = None, of: int | None = None) -> None:
    """Join the processes of one run, before anything else uses JAX.

    `coordinator` is HOST:PORT of process 0, `process` the index of this process, `of` the number of processes; without
    arguments JAX finds all three (SLURM, Open MPI, Cloud TPU; Kubernetes with the package kubernetes). Raises
    ConfigError for an incomplete set, and where JAX cannot connect.
    """
    given = {"coordinator": coordinator, "process": process, "of": of}
    missing = [name for name, value in given.items() if value is None]
    if 0 < len(missing) < len(given):
        raise ConfigError(
            f"distributed: {', '.join(missing)} missing; give coordinator, process and of, or none of them"
        )
    if of is not None and process is not None and not 0 <= process < of:
        raise ConfigError(
            f"process = {process}: must be from 0 to {of - 1}; nearest valid value: {min(max(process, 0), of - 1)}"
        )
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(
            coordinator, of, process, heartbeat_timeout_seconds=HEARTBEAT_SECONDS, initialization_timeout=JOIN_SECONDS
        )
    except (RuntimeError, ValueError) as error:
        raise ConfigError(f"distributed: this process could not join the others: {error}") from error


def count() -> int:
    """Return the number of processes of the run; 1 unless several have joined."""
    return int(jax.process_count())


def leads() -> bool:
    """Return whether this process is the leader, which writes the run directory and decides."""
    return bool(jax.process_index() == 0)


def agreed(decision: bool) -> bool:
    """Return the leader's `decision` in every process; every process has to call it."""
    if count() == 1:
        return decision
    return bool(multihost_utils.broadcast_one_to_all(np.array(decision)))


def any_of(flag: bool) -> bool:
    """Return whether `flag` is set in any process; every process has to call it."""
    if count() == 1:
        return flag
    return bool(multihost_utils.process_allgather(np.array(flag)).any())


def whole(tree: Tree) -> Tree:
    """Return complete arrays in every process, from arrays that lie on the devices of all processes of a run.

    Every process has to call it. Each array of the result lies on one device of the process; checkpoints are written
    from these arrays.
    """
    if count() == 1:
        return tree

    gathered: Tree = jax.tree.map(lambda x: x.addressable_data(0), _everywhere(tree))
    return gathered


@jax.jit
def _everywhere(tree: Tree) -> Tree:
    """Return `tree` with its arrays replicated over the devices of all processes."""
    return sharding.place_on_devices(tree, sharding.SAME, len(jax.devices()))


def require_compiled(name: str, compiled: bool) -> None:
    """Raise ConfigError for an environment on the host in a run of several processes.

    `name` is the environment's, and `compiled` says whether it is stepped in compiled programs.
    """
    if count() > 1 and not compiled:
        raise ConfigError(
            f"{name}: environments on the host are stepped by one process, and this run has {count()}; use a compiled "
            "environment (`ppax envs`), or start one process"
        )
