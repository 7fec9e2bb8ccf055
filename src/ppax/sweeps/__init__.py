"""Recorded sweeps: many runs trained together, each in its own run directory; their scores and the best one."""

from ppax.sweeps.plan import Choice, Integers, LogUniform, Normal, Uniform
from ppax.sweeps.results import MemberResult, SettingResult, SweepResult
from ppax.sweeps.runs import resume_sweep, sweep_runs
from ppax.sweeps.search import PBT, Grid, Halving, Optuna

__all__ = [
    "PBT",
    "Choice",
    "Grid",
    "Halving",
    "Integers",
    "LogUniform",
    "MemberResult",
    "Normal",
    "Optuna",
    "SettingResult",
    "SweepResult",
    "Uniform",
    "resume_sweep",
    "sweep_runs",
]
