"""ppax: Proximal Policy Optimization in JAX. Correct first, then fastest, and simple enough to be loved."""

# ruff: noqa: E402

from ppax import parallel

parallel.use_all_cores()  # before anything starts JAX

from ppax import (
    advantages,
    critics,
    distributions,
    envs,
    losses,
    minibatches,
    networks,
    optimizers,
    schedules,
)
from ppax.checkpoint import CheckpointError
from ppax.collect import collect
from ppax.compiled import CompiledTraining, compile
from ppax.envs import make
from ppax.evaluate import Evaluation, evaluate
from ppax.fit import fit, resume
from ppax.groups import Groups
from ppax.independent import Independent
from ppax.ppo import PPO
from ppax.program import Program
from ppax.selftest import check_env, selftest
from ppax.sweep import start_sweep, sweep
from ppax.train import start, train
from ppax.trained import Interrupted, NumericalError, TrainedRun
from ppax.tuned import Preset, preset
from ppax.types import ConfigError, TrainState, number, part, static

__version__ = "0.1.0"

__all__ = [
    "PPO",
    "CheckpointError",
    "CompiledTraining",
    "ConfigError",
    "Evaluation",
    "Groups",
    "Independent",
    "Interrupted",
    "NumericalError",
    "Preset",
    "Program",
    "TrainState",
    "TrainedRun",
    "advantages",
    "check_env",
    "collect",
    "compile",
    "critics",
    "distributions",
    "envs",
    "evaluate",
    "fit",
    "losses",
    "make",
    "minibatches",
    "networks",
    "number",
    "optimizers",
    "part",
    "preset",
    "resume",
    "schedules",
    "selftest",
    "start",
    "start_sweep",
    "static",
    "sweep",
    "train",
]
