"""Compilation of training ahead of time, for compiled environments and for those on the host."""

from __future__ import annotations

import threading

from ppax.core.protocols import Agent, Training
from ppax.core.types import TrainState
from ppax.envs import Env
from ppax.training.backends import backend_of
from ppax.training.compiled import CompiledTraining as CompiledTraining


def compile(agent: Agent, env: Env, state: TrainState, stop: threading.Event | None = None) -> Training:
    """Compile `train` ahead of time for this agent, environment and state, of which only shapes and dtypes are read.

    For host environments the result is a Python loop around compiled programs, which returns after the current
    iteration when `stop` is set. For native environments `stop` is ignored: a compiled program cannot be interrupted.
    Raises ConfigError where host environments are given an agent that they cannot have.
    """
    return backend_of(env).compile(agent, state, stop)


def metric_names(agent: Agent, env: Env, state: TrainState) -> tuple[str, ...]:
    """Return the names of the training metrics, without compiling; `state` may be shapes."""
    return backend_of(env).metric_names(agent, state)
