"""Lower bound on a run's memory, computed from shapes before compiling, and errors where the run cannot fit."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ppax.core.types import ConfigError, TrainState

STEP_BYTES = 20  # per step and stream, without observation and mask: reward, value, log-prob, trace, four flags
MOST_ROWS = 2**31 - 1  # per rollout: rows are indexed in int32
WIDTHS = "lower the widths of agent.network, or the rollouts that the extension ppg keeps"
EXHAUSTED = "RESOURCE_EXHAUSTED"  # start of XLA's out-of-memory message
GROUPS = Path("/sys/fs/cgroup")


class NotEnoughMemory(Exception):
    """Error of a run that does not fit into memory. The message has the sizes and names what to lower."""


class Footprint(NamedTuple):
    """Lower bound on the memory of a run in bytes, without gradients, activations and copies."""

    learner: int  # weights, optimiser state and statistics, on all devices that share this memory
    environments: int  # their states and observations
    rollout: int
    each_of: int = 1  # number of devices with a memory of their own, each of which needs this

    @property
    def total(self) -> int:
        """Sum of the bytes for learner, environments and rollout."""
        return self.learner + self.environments + self.rollout

    def __str__(self) -> str:
        parts = {"weights and optimiser": self.learner, "environments": self.environments, "a rollout": self.rollout}
        each = f" on each of {self.each_of} devices" if self.each_of > 1 else ""
        return ", ".join(f"{name} {_short(size)}" for name, size in parts.items()) + each


def peak_memory_mb() -> float:
    """Return the peak memory in MB: of the accelerator's devices, or on a CPU of this process; 0 if not reported."""
    devices = [device.memory_stats() or {} for device in jax.local_devices()]
    if any("peak_bytes_in_use" in stats for stats in devices):
        return float(sum(stats.get("peak_bytes_in_use", 0) for stats in devices) / 2**20)
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak / (2**20 if sys.platform == "darwin" else 2**10))


def footprint(state: TrainState, devices: int = 1, own_memory: bool = False) -> Footprint:
    """Return a lower bound on the memory of training from `state`, whose arrays may be shapes.

    Training is sharded over `devices`, each with a copy of the learner and a share of the environments. If each has a
    memory of its own (`own_memory`), as accelerators have, the bound is that of one of them, otherwise of all together.
    """
    seen = _nbytes((state.actor.obs, state.actor.action_mask))
    streams = int(state.actor.first.shape[0])
    rollout = state.num_steps * (seen + STEP_BYTES * streams)
    learner, environments = _nbytes(state.learner), _nbytes(state.actor)
    if own_memory:
        return Footprint(learner, environments // devices, rollout // devices, devices)
    return Footprint(learner * devices, environments, rollout)


def require_room(needed: Footprint, num_envs: int, rows: int) -> None:
    """Raise NotEnoughMemory if a run cannot fit into available memory, ConfigError if a rollout has too many steps.

    The limit is 2**31 - 1 steps. `needed` is the lower bound on the run's memory; `rows` is the number of steps in a
    rollout, of all streams together (a stream is one agent in one environment). From `num_envs` the error computes a
    number of environments that may fit.
    """
    room = available_bytes()
    if room is not None and needed.total > room:
        scaling = needed.environments + needed.rollout  # proportional to the number of environments
        fitting = num_envs * max(0, room - needed.learner) // max(1, scaling)
        few = f", as to {fitting // 2:,}" if fitting > 1 else ""
        advice = f"lower num_steps, or num_envs{few}" if needed.learner < room else WIDTHS
        raise NotEnoughMemory(
            f"this run takes at least {_short(needed.total)} of memory ({needed}); {_short(room)} are available; "
            f"{advice}"
        )
    if rows > MOST_ROWS:
        raise ConfigError(f"a rollout of {rows:,} steps of all streams: must be at most {MOST_ROWS:,}; lower num_steps")


@contextmanager
def explaining_memory(needed: Footprint | None = None) -> Iterator[None]:
    """Yield; an out-of-memory error inside becomes NotEnoughMemory, with the sizes of the run if `needed` is given."""
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not isinstance(error, MemoryError) and EXHAUSTED not in str(error):
            raise
        sizes = f" (at least {_short(needed.total)}: {needed})" if needed else ""
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise NotEnoughMemory(
            f"memory is exhausted: {first}{sizes}; lower num_envs, num_steps or the widths of agent.network"
        ) from error


def available_bytes() -> int | None:
    """Return the memory that this process can use, in bytes; None if unknown.

    On an accelerator: JAX's limit on that device. On a CPU: available main memory and swap, or a lower cgroup limit.
    """
    device = jax.local_devices()[0]
    if device.platform != "cpu":
        return (device.memory_stats() or {}).get("bytes_limit")
    limits = [_free_bytes(), *(_number(group / "memory.max") for group in _groups())]
    return min((size for size in limits if size is not None), default=None)


def _free_bytes() -> int | None:
    """Return available main memory plus free swap, in bytes.

    On systems other than Linux it is all of main memory, or None if that is unknown.
    """
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        table = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
        return table["MemAvailable"] + table.get("SwapFree", 0)
    except (OSError, ValueError, KeyError, IndexError):  # not Linux
        names = getattr(os, "sysconf_names", {})
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if "SC_PHYS_PAGES" in names else None


def _groups() -> list[Path]:
    """Return the directories of this process's cgroup (Linux control group, v2) and of the parent cgroups."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []
    own = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    return [] if own is None else [GROUPS / own, *(GROUPS / parent for parent in Path(own).parents)]


def _number(path: Path) -> int | None:
    """Return the integer in a file; None if the file is missing or says "max"."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _nbytes(tree: Any) -> int:
    return sum(_itemsize(x) * math.prod(map(int, x.shape)) for x in jax.tree.leaves(tree))


def _itemsize(x: Any) -> int:
    """Return the bytes per element of an array; for PRNG keys 8, a lower bound."""
    return 8 if jnp.issubdtype(x.dtype, jax.dtypes.extended) else int(x.dtype.itemsize)


def _short(size: float) -> str:
    """Return a size in bytes as text with three digits and a unit, such as "1.5 GB"."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.0f} PB"
