"""Schedules, one a file: (agent, progress, env_steps) -> agent."""

from ppax.ppo.schedules.base import anneal_parts, annealed, changed_numbers, knots, piecewise, replace_at, scale
from ppax.ppo.schedules.both import Both
from ppax.ppo.schedules.constant import Constant
from ppax.ppo.schedules.cosine import Cosine
from ppax.ppo.schedules.interpolated import Interpolated
from ppax.ppo.schedules.linear import Linear
from ppax.ppo.schedules.steps import Steps

__all__ = [
    "Both",
    "Constant",
    "Cosine",
    "Interpolated",
    "Linear",
    "Steps",
    "anneal_parts",
    "annealed",
    "changed_numbers",
    "knots",
    "piecewise",
    "replace_at",
    "scale",
]
