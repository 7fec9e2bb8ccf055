"""How the learning program is laid out on this machine: never what it computes, only how fast.

The defaults are rules from shapes and the number of devices (docs/architecture.md, "The program"); `ppax bench --tune`
measures them for one run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from ppax.program import sharding
from ppax.types import ConfigError, PyTree, part, static

Tree = TypeVar("Tree")

MIN_ROWS = 512  # of a minibatch on each device: from here a split pays for its exchange (benchmarks/NOTES.md)
CHUNK_ROWS, CHUNK_ROWS_ALONE = 512, 8192  # of a minibatch on a CPU, with several devices and with one
IMAGE_NUMBERS = 2**20  # of large images, taken at once on a CPU: their patches are several times as many
# At least so many: each step of a sequence waits for the one before, so fewer at a time leave a core idle
CHUNK_SEQUENCES = {"float32": 4, "bfloat16": 8}

# Matrix products come ready-made from a library; what is left for the compiler runs as fast without its slow passes
CPU_OPTIONS = {"xla_backend_optimization_level": 1, "xla_llvm_disable_expensive_passes": True}


def run_once_options() -> dict[str, int | bool] | None:
    """What programs that run once are compiled with: as little work as can be."""
    return CPU_OPTIONS | {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else None


def compiler_options() -> dict[str, int | bool] | None:
    """What programs that train are compiled with on this kind of device."""
    return CPU_OPTIONS if jax.default_backend() == "cpu" else None


def only_if(condition: Array, change: Callable[[], Tree], before: Tree) -> Tree:
    """`change()` where `condition` [], else `before`."""
    if jax.default_backend() == "cpu":
        # a branch changes arrays in place, for which a select makes copies
        return jax.lax.cond(condition, change, lambda: before)
    # a branch would make an accelerator wait for the host
    return jax.tree.map(partial(jnp.where, condition), change(), before)


@part
class Program:
    """Sizes of the compiled program. Results do not depend on them, but for rounding."""

    devices: int | None = static("devices to split over; by default as many as pay", default=None, low=1)
    chunk_rows: int | None = static(
        "gradient accumulation: rows of a minibatch whose gradient is computed at once; by default by rule",
        default=None,
        low=1,
    )
    unroll: int = static("steps of a rollout in one turn of its loop", default=1, low=1)

    def num_devices(self, num_envs: int, minibatch: int, seq_len: int) -> int:
        """Over how many devices to split `num_envs` environments and minibatches of `minibatch` sequences.

        ConfigError where `devices` asks for more than there are, or does not divide both.
        """
        if self.devices is not None:
            self._check_devices(num_envs, minibatch)
            return self.devices
        if jax.default_backend() != "cpu":
            return 1
        most = min(sharding.available(), minibatch * seq_len // MIN_ROWS)
        return next((d for d in range(most, 0, -1) if num_envs % d == 0 and minibatch % d == 0), 1)

    def _check_devices(self, num_envs: int, minibatch: int) -> None:
        """Raise ConfigError: a share that is not whole would drop environments, or sequences of every minibatch."""
        asked, there = self.devices or 1, sharding.available()
        if asked > there:
            inside = " inside a shard_map or pmap" if there < len(jax.local_devices()) else ""
            raise ConfigError(
                f"program.devices = {asked}: must be at most {there}, the devices{inside}; nearest valid value: {there}"
            )
        usable = ", ".join(str(d) for d in range(1, there + 1) if num_envs % d == minibatch % d == 0)
        for size, what, name, unit in (
            (num_envs, f"num_envs = {num_envs}", "num_envs", ""),
            (minibatch, f"minibatches of {minibatch} sequences", "minibatches", " sequences"),
        ):
            if size % asked:
                near = [x for x in (size // asked * asked, (size // asked + 1) * asked) if x]
                raise ConfigError(
                    f"program.devices = {asked}: does not divide {what}; devices that do: {usable}; "
                    f"nearest {name}: {', '.join(map(str, near))}{unit}"
                )

    def rows(self, seq_len: int, compute_dtype: str, obs: PyTree = ()) -> int:
        """Rows of a minibatch that are taken at once: all on an accelerator, on a CPU what fits its cache.

        `obs` are observations with two leading axes: large images among them are taken in smaller pieces.
        """
        if self.chunk_rows is not None:
            return self.chunk_rows
        if jax.default_backend() != "cpu":
            return 2**31
        fits = CHUNK_ROWS if sharding.num_parts() > 1 else CHUNK_ROWS_ALONE
        image = sum(math.prod(x.shape[2:]) for x in jax.tree.leaves(obs) if x.ndim == 5)
        if image * CHUNK_ROWS > IMAGE_NUMBERS:
            fits = max(1, IMAGE_NUMBERS // image)
        return max(fits, CHUNK_SEQUENCES[compute_dtype] * seq_len if seq_len > 1 else 0)
