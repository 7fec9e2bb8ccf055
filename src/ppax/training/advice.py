"""Advice of `ppax bench`: one sentence on what would make a run faster, from the time of each stage."""

from __future__ import annotations

import math
import os
from typing import Any

import jax

from ppax.devices import sharding

SMALL = 512  # rows of a minibatch: below, the overhead of starting operations dominates
WORKER_SECONDS = 5e-4  # step of all environments: above, worker processes gain more than their messages cost
WAITING = 0.2  # share of updates, or of the rest, from which doing both at once gains


def host_advice(shares: dict[str, float], step_seconds: float, minibatch_rows: int, env: Any, overlap: int = 0) -> str:
    """Advice, one sentence, on making a host run faster; `step_seconds` is iteration time / num_steps."""
    cores, stepping = sharding.num_cores(), shares["stepping"] * step_seconds
    if not overlap and cores > 1 and min(shares["update"], 1.0 - shares["update"]) >= WAITING:
        return (
            f"Environments wait for updates for {shares['update']:.0%} of the time: overlap = 1 steps them meanwhile, "
            "with a policy that is one update behind (docs/host.md)."
        )
    each = f"{stepping / env.num_envs * 1e6:,.0f} us for each environment"
    acting, learning = shares["policy"] + shares["recording"], shares["transfer"] + shares["update"]
    if shares["stepping"] >= max(acting, learning):
        # with worker processes, stepping is only the time that the loop waits for them
        apart = env.settings.vectorization != "sync"
        short = stepping < (WORKER_SECONDS / 2 if apart else WORKER_SECONDS)
        if apart and short:
            return f"Steps are short ({each}), and messages to worker processes cost more: leave out vectorization."
        if apart or env.host.unique or short or cores == 1:
            return f"The environments take most of the time ({each}): faster ones are what would help."
        return (
            f'The environments take most of the time ({each}): vectorization = "async" steps them in worker processes '
            f"on {cores} cores, while the policy acts."
        )
    if acting > learning:
        return (
            f"Acting takes most of the time, nearly as much for one environment as for many: more than {env.num_envs} "
            "environments give more steps a second, or a smaller network."
        )
    return advice({"rollout": 0.0}, minibatch_rows, env.num_envs, cores)


def advice(shares: dict[str, float], minibatch_rows: int, num_envs: int, devices: int, rounding: bool = False) -> str:
    """Advice, one sentence, on making a compiled run faster; `rounding`: whether bfloat16 would."""
    cores = sharding.num_cores()
    if jax.default_backend() == "cpu" and devices < cores and minibatch_rows >= 2 * SMALL and num_envs % cores:
        better = math.ceil(num_envs / cores) * cores
        return f"Only {devices} of {cores} cores is used: num_envs = {better} can be split over all, {num_envs} cannot."
    if shares["rollout"] > 0.5:
        return "The environment and acting take most of the time: a cheaper environment or network is what would help."
    if minibatch_rows < SMALL:
        return (
            f"Minibatches of {minibatch_rows} rows are small: starting operations takes most of the time, so more "
            f"environments or fewer minibatches give more steps a second{_one_thread(devices, cores)}."
        )
    faster = "a smaller network or fewer epochs is what would make it faster."
    if rounding:
        faster = (
            '`agent.compute_dtype = "bfloat16"` makes products faster on this processor (docs/speed.md); else ' + faster
        )
    return f"Gradient steps take most of the time: {faster}"


def _one_thread(devices: int, cores: int) -> str:
    """Return the advice to train with one XLA thread, for a program on one device; "" where it does not apply."""
    if jax.default_backend() != "cpu" or devices > 1 or cores == 1 or sharding.THREADS in os.environ:
        return ""
    return (
        f"; so does one thread for a network of small layers, {sharding.THREADS}=1 in the environment (docs/speed.md)"
    )
