"""ppax: Proximal Policy Optimization in JAX. Correct first, then fastest, and simple enough to be loved."""

# ruff: noqa: E402

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ppax.core import installation

installation.require_jax()  # first: everything below imports JAX

from ppax.devices import sharding

sharding.use_all_cores()  # before anything starts JAX

from ppax import config, distributions, envs, extensions, loggers, networks
from ppax.agents.groups import Groups
from ppax.agents.independent import Independent
from ppax.agents.self_play import Pool, SelfPlay
from ppax.config import BestSettings, EvalSettings, FilmSettings, InitFrom, Log
from ppax.core import protocols, types
from ppax.core.imports import trust
from ppax.core.parts import number, part, slot, static
from ppax.core.types import ConfigError, TrainState
from ppax.core.unknown_names import meaning
from ppax.core.version import __version__ as __version__
from ppax.devices.layout import Program
from ppax.devices.processes import join
from ppax.envs import EnvError, make
from ppax.extensions import imitation
from ppax.ppo import advantages, critics, gradients, losses, minibatches, optimizers, recompute, schedules
from ppax.ppo.extension import Extension
from ppax.ppo.normalization import Normalization
from ppax.ppo.ppo import PPO
from ppax.run import conditions as stop
from ppax.run.checkpoint import CheckpointError
from ppax.run.fit import fit, resume
from ppax.run.result import Interrupted, NumericalError, TrainedRun
from ppax.training.backends import compile
from ppax.training.collection import collect
from ppax.training.compiled import CompiledTraining
from ppax.training.episodes import PlayedEpisodes
from ppax.training.evaluation import Evaluation, evaluate, play_episodes
from ppax.training.loop import start, train
from ppax.training.sweeps import start_sweep, sweep
from ppax.training.trajectories import Trajectory, trajectory

if TYPE_CHECKING:
    from ppax.checks import check_env, selftest
    from ppax.policy import Policy, PolicySpec
    from ppax.reports.doctor import Diagnosis, doctor
    from ppax.reports.plotting import plot
    from ppax.reports.report import compare, frame, report
    from ppax.reports.upload import push_to_hub
    from ppax.run.building import Built, build
    from ppax.run.films import Film, film
    from ppax.run.loading import SavedState, checkpoints, load
    from ppax.run.matches import Match, match
    from ppax.scores import PresetScore, Score, presets, score
    from ppax.sweeps import SweepResult, resume_sweep, sweep_runs

# Names imported at their first use: training needs none of them, and `import ppax` stays fast
_LAZY = {
    "ppax.checks": ("check_env", "selftest"),
    "ppax.policy": ("Policy", "PolicySpec"),
    "ppax.run.loading": ("SavedState", "checkpoints", "load"),
    "ppax.scores": ("PresetScore", "Score", "presets", "score"),
    "ppax.sweeps": ("SweepResult", "resume_sweep", "sweep_runs"),
    "ppax.run.building": ("Built", "build"),
    "ppax.reports.doctor": ("Diagnosis", "doctor"),
    "ppax.reports.plotting": ("plot",),
    "ppax.run.films": ("Film", "film"),
    "ppax.run.matches": ("Match", "match"),
    "ppax.reports.report": ("compare", "frame", "report"),
    "ppax.reports.upload": ("push_to_hub",),
}


# `from ppax.losses import ...` is what users write; these modules stand in the folders ppo/, extensions/ and core/
for _module in (
    *(advantages, critics, gradients, losses, minibatches, optimizers, recompute, schedules),
    *(imitation, protocols, types),
):
    sys.modules[f"{__name__}.{_module.__name__.rpartition('.')[2]}"] = _module


def _load(source: str) -> Any:
    return import_module("ppax.run.loading").load(source)


imitation.distillation.load_policy = _load  # a teacher is a part of an agent, and may be the path of a policy


def __getattr__(name: str) -> Any:
    """Return a public name or module of ppax that is imported when it is first used.

    Raises AttributeError, which says what to write instead if it is a name of another library.
    """
    if f"{__name__}.{name}" in _LAZY:
        return import_module(f"{__name__}.{name}")
    for module, names in _LAZY.items():
        if name in names:
            return getattr(import_module(module), name)
    row = meaning(name)
    raise AttributeError(f"module 'ppax' has no attribute {name!r}" + (f": write {row.in_python}" if row else ""))


def __dir__() -> list[str]:
    """Return the public names, also those not imported yet."""
    return sorted({*globals(), *__all__})


__all__ = [  # noqa: RUF022  # in groups
    # Recorded runs
    "BestSettings",
    "Built",
    "Diagnosis",
    "EvalSettings",
    "FilmSettings",
    "InitFrom",
    "Log",
    "PresetScore",
    "Score",
    "SweepResult",
    "TrainedRun",
    "build",
    "compare",
    "config",
    "doctor",
    "Film",
    "film",
    "fit",
    "frame",
    "loggers",
    "plot",
    "report",
    "presets",
    "resume",
    "resume_sweep",
    "score",
    "stop",
    "sweep_runs",
    "sweeps",
    # Trained policies
    "Policy",
    "PolicySpec",
    "Match",
    "SavedState",
    "checkpoints",
    "load",
    "match",
    "push_to_hub",
    # Pure functions: training, sweeps, evaluation
    "CompiledTraining",
    "Evaluation",
    "Normalization",
    "Program",
    "TrainState",
    "Trajectory",
    "collect",
    "compile",
    "evaluate",
    "join",
    "PlayedEpisodes",
    "play_episodes",
    "start",
    "start_sweep",
    "sweep",
    "train",
    "trajectory",
    # Checks of an agent and of an environment
    "check_env",
    "selftest",
    # Agents
    "PPO",
    "Groups",
    "Independent",
    "Pool",
    "SelfPlay",
    # Environments
    "envs",
    "imitation",
    "make",
    # Parts of an agent, and how to write one
    "advantages",
    "critics",
    "distributions",
    "Extension",
    "extensions",
    "gradients",
    "losses",
    "minibatches",
    "networks",
    "optimizers",
    "protocols",
    "types",
    "recompute",
    "schedules",
    "number",
    "part",
    "slot",
    "static",
    "trust",
    # Errors
    "CheckpointError",
    "ConfigError",
    "EnvError",
    "Interrupted",
    "NumericalError",
]
