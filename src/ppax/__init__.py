"""ppax: Proximal Policy Optimization in JAX. Correct first, then fastest, and simple enough to be loved."""

# ruff: noqa: E402

from ppax.program import sharding

sharding.use_all_cores()  # before anything starts JAX

from ppax import advantages, critics, distributions, envs, losses, minibatches, networks, optimizers, schedules
from ppax.agents.groups import Groups
from ppax.agents.independent import Independent
from ppax.checks import check_env, selftest
from ppax.collection import collect
from ppax.envs import make
from ppax.evaluation import Evaluation, evaluate
from ppax.ppo import PPO
from ppax.program.compilation import CompiledTraining, compile
from ppax.program.layout import Program
from ppax.program.sweeps import start_sweep, sweep
from ppax.run.checkpoint import CheckpointError
from ppax.run.fit import fit, resume
from ppax.run.result import Interrupted, NumericalError, TrainedRun
from ppax.tools.tuned import Preset, preset
from ppax.training import start, train
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
