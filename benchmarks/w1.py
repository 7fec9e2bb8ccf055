"""Workloads of the speed tables: W1 (CartPole-v1, separate 2x64 tanh actor and critic), W3 (the same with memory). Also
functions that measure time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

NUM_STEPS = 128
EPOCHS = 4
MINIBATCHES = 4
LEARNING_RATE = 3e-4
GAMMA = 0.99
GAE_LAMBDA = 0.95
CLIP_EPS = 0.2
ENT_COEF = 0.01
VF_COEF = 0.5
MAX_GRAD_NORM = 0.5
ADAM_EPS = 1e-8
HIDDEN = (64, 64)
# W3: one torso for actor and critic: a dense layer, a memory, and a dense layer of each head's own, all of this width
MEMORY_WIDTH = 128
SETTINGS = {
    "num_steps": NUM_STEPS,
    "num_epochs": EPOCHS,
    "num_minibatches": MINIBATCHES,
    "learning_rate": LEARNING_RATE,
    "gamma": GAMMA,
    "gae_lambda": GAE_LAMBDA,
    "clip_eps": CLIP_EPS,
    "ent_coef": ENT_COEF,
    "vf_coef": VF_COEF,
    "max_grad_norm": MAX_GRAD_NORM,
    "adam_eps": ADAM_EPS,
}
STAGES = ("trace_seconds", "lower_seconds", "xla_seconds", "compile_seconds")


class Work(NamedTuple):
    """What a worker is to do."""

    num_envs: int
    num_seeds: int  # trained together in one program
    iterations: int  # in a timed run; only the systems in FIXED need to know
    seed: int

    def rows(self, iterations: int) -> int:
        """Steps of all environments, with those of ppax in which an environment restarts."""
        return iterations * NUM_STEPS * self.num_envs * self.num_seeds


class Trained(NamedTuple):
    """One timed run."""

    seconds: float
    valid_steps: int


Run = Callable[[int], Trained]  # number of iterations -> what it took
Prepared = tuple[Run, dict[str, float]]  # and the seconds until it was ready


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What `work` returns, and the seconds it took."""
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def compile_timed(jitted: Any, *args: Any) -> tuple[Any, dict[str, float]]:
    """The compiled program, and the seconds of each stage."""
    traced, trace = timed(lambda: jitted.trace(*args))
    lowered, lower = timed(traced.lower)
    program, compiled = timed(lowered.compile)
    return program, dict(zip(STAGES, (trace, lower, compiled, trace + lower + compiled), strict=True))
