"""Built-in environments: pure JAX, without further dependencies and without time limits."""

from ppax.envs.builtin.acrobot import Acrobot
from ppax.envs.builtin.algo_trading import AlgoTrading
from ppax.envs.builtin.cartpole import CartPole
from ppax.envs.builtin.cue_corridor import CueCorridor
from ppax.envs.builtin.maze import Maze
from ppax.envs.builtin.mountain_car import MountainCar, MountainCarContinuous
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
from ppax.envs.builtin.pursuit import Pursuit
from ppax.envs.builtin.rl8 import EndlessCartPole, EndlessMountainCar

__all__ = [
    "Acrobot",
    "ActionProbe",
    "AlgoTrading",
    "CartPole",
    "ConstantProbe",
    "CueCorridor",
    "DiscountProbe",
    "EndlessCartPole",
    "EndlessMountainCar",
    "FiniteProbe",
    "InfiniteProbe",
    "Maze",
    "MountainCar",
    "MountainCarContinuous",
    "Navigator",
    "ObsActionProbe",
    "ObsProbe",
    "Pendulum",
    "Pursuit",
]
