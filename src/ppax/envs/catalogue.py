"""Environments that come with ppax, by their names."""

from __future__ import annotations

from collections.abc import Callable

from ppax.core.protocols import Environment
from ppax.envs import builtin
from ppax.envs.builtin.navigator import CROWD
from ppax.envs.wrappers.partial_view import PartialView
from ppax.envs.wrappers.time_limit import TimeLimit

BUILTIN: dict[str, Callable[[], Environment]] = {
    "CartPole-v1": lambda: TimeLimit(builtin.CartPole(), 500),
    "CartPole-v1-masked": lambda: PartialView(TimeLimit(builtin.CartPole(), 500), (0, 2)),  # no velocities
    "CueCorridor-10": lambda: builtin.CueCorridor(10),
    "CueCorridor-40": lambda: builtin.CueCorridor(40),
    "Maze-9": lambda: TimeLimit(builtin.Maze(9), 150),  # 48 steps to the goal
    "Acrobot-v1": lambda: TimeLimit(builtin.Acrobot(), 500),
    "MountainCar-v0": lambda: TimeLimit(builtin.MountainCar(), 200),
    "MountainCarContinuous-v0": lambda: TimeLimit(builtin.MountainCarContinuous(), 999),
    "Pendulum-v1": lambda: TimeLimit(builtin.Pendulum(), 200),
    "Navigator-v0": lambda: TimeLimit(builtin.Navigator(), 200),
    "Navigator-8": lambda: TimeLimit(builtin.Navigator(num_agents=8, **CROWD), 200),
    "Navigator-64": lambda: TimeLimit(builtin.Navigator(num_agents=64, radius=0.04, **CROWD), 200),
    "Pursuit-2": lambda: TimeLimit(builtin.Pursuit(), 200),
    "Pursuit-3": lambda: TimeLimit(builtin.Pursuit(prey_speed=3.0, radius=0.1, num_predators=2), 200),
    "rl8/CartPole": lambda: TimeLimit(builtin.EndlessCartPole(), 64),
    "rl8/Pendulum": lambda: TimeLimit(builtin.Pendulum(), 512),
    "rl8/MountainCar": lambda: TimeLimit(builtin.EndlessMountainCar(), 512),
    "rl8/AlgoTrading": lambda: TimeLimit(builtin.AlgoTrading(), 128),
    "probe/Constant": lambda: builtin.ConstantProbe(),
    "probe/Obs": lambda: builtin.ObsProbe(),
    "probe/Discount": lambda: builtin.DiscountProbe(),
    "probe/Action": lambda: builtin.ActionProbe(),
    "probe/ObsAction": lambda: builtin.ObsActionProbe(),
    "probe/Infinite": lambda: TimeLimit(builtin.InfiniteProbe(), 8),
    "probe/Finite": lambda: builtin.FiniteProbe(),
}
