"""Environments that come with ppax: pure JAX, no further dependency, no time limit of their own."""

from ppax.envs.builtin.cartpole import CartPole
from ppax.envs.builtin.cue_corridor import CueCorridor
from ppax.envs.builtin.navigator import Navigator
from ppax.envs.builtin.pendulum import Pendulum
from ppax.envs.builtin.probes import (
    ActionProbe,
    ConstantProbe,
    DiscountProbe,
    FiniteProbe,
    InfiniteProbe,
    ObsActionProbe,
    ObsProbe,
)

__all__ = [
    "ActionProbe",
    "CartPole",
    "ConstantProbe",
    "CueCorridor",
    "DiscountProbe",
    "FiniteProbe",
    "InfiniteProbe",
    "Navigator",
    "ObsActionProbe",
    "ObsProbe",
    "Pendulum",
]
