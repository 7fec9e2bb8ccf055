"""Schedules, one a file: (agent, progress, env_steps) -> agent."""

from ppax.schedules.base import anneal_parts, annealed, changed_numbers, knots, piecewise, replace_at, scale
from ppax.schedules.both import Both
from ppax.schedules.constant import Constant
from ppax.schedules.cosine import Cosine
from ppax.schedules.interpolated import Interpolated
from ppax.schedules.linear import Linear
from ppax.schedules.steps import Steps

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
