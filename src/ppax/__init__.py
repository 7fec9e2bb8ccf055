"""ppax: Proximal Policy Optimization in JAX. Correct first, then fastest, and simple enough to be loved."""

# ruff: noqa: E402

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ppax.program import sharding

sharding.use_all_cores()  # before anything starts JAX

from ppax import (
    advantages,
    config,
    critics,
    distributions,
    envs,
    extensions,
    gradients,
    imitation,
    loggers,
    losses,
    minibatches,
    networks,
    optimizers,
    protocols,
    recompute,
    schedules,
)
from ppax.agents.groups import Groups
from ppax.agents.independent import Independent
from ppax.agents.self_play import SelfPlay
from ppax.collection import collect
from ppax.config import BestSettings, EvalSettings, FilmSettings, InitFrom, Log
from ppax.envs import EnvError, make
from ppax.evaluation import Evaluation, evaluate
from ppax.imports import trust
from ppax.learning.extension import Extension
from ppax.names import in_python, meaning
from ppax.parts import number, part, slot, static
from ppax.ppo import PPO
from ppax.program.compilation import CompiledTraining, compile
from ppax.program.layout import Program
from ppax.program.processes import join
from ppax.program.sweeps import start_sweep, sweep
from ppax.run import conditions as stop
from ppax.run.checkpoint import CheckpointError
from ppax.run.fit import fit, resume
from ppax.run.result import Interrupted, NumericalError, TrainedRun
from ppax.training import start, train
from ppax.types import ConfigError, TrainState

if TYPE_CHECKING:
    from ppax.checks import check_env, selftest
    from ppax.policy import Policy, PolicySpec
    from ppax.policy.listing import SavedState, checkpoints
    from ppax.policy.loading import load
    from ppax.scores import PresetScore, Score, presets, score
    from ppax.sweeps import SweepResult, resume_sweep, sweep_runs
    from ppax.tools.building import Built, build
    from ppax.tools.doctor import Diagnosis, doctor
    from ppax.tools.figures import plot
    from ppax.tools.film import Film, film
    from ppax.tools.matches import Match, match
    from ppax.tools.report import compare, frame, report

__version__ = "0.1.0"

# Names imported at their first use: training needs none of them, and `import ppax` stays fast
_LAZY = {
    "ppax.checks": ("check_env", "selftest"),
    "ppax.policy": ("Policy", "PolicySpec"),
    "ppax.policy.listing": ("SavedState", "checkpoints"),
    "ppax.policy.loading": ("load",),
    "ppax.scores": ("PresetScore", "Score", "presets", "score"),
    "ppax.sweeps": ("SweepResult", "resume_sweep", "sweep_runs"),
    "ppax.tools.building": ("Built", "build"),
    "ppax.tools.doctor": ("Diagnosis", "doctor"),
    "ppax.tools.figures": ("plot",),
    "ppax.tools.film": ("Film", "film"),
    "ppax.tools.matches": ("Match", "match"),
    "ppax.tools.report": ("compare", "frame", "report"),
}


def __getattr__(name: str) -> Any:
    """Import a name or module of `_LAZY`."""
    if f"{__name__}.{name}" in _LAZY:
        return import_module(f"{__name__}.{name}")
    for module, names in _LAZY.items():
        if name in names:
            return getattr(import_module(module), name)
    row = meaning(name)
    raise AttributeError(f"module 'ppax' has no attribute {name!r}" + (f": write {in_python(row)}" if row else ""))


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
    # Pure functions: training, sweeps, evaluation
    "CompiledTraining",
    "Evaluation",
    "Program",
    "TrainState",
    "collect",
    "compile",
    "evaluate",
    "join",
    "start",
    "start_sweep",
    "sweep",
    "train",
    # Checks of an agent and of an environment
    "check_env",
    "selftest",
    # Agents
    "PPO",
    "Groups",
    "Independent",
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
