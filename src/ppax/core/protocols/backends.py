"""Protocols of backends: the operations that differ between compiled environments and those on the host."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ppax.core.protocols.agents import Agent
from ppax.core.types import ActorState, Gathered, Key, Outcome, PyTree, StepResult, TrainState


class Training(Protocol):
    """Compiled training protocol: called like `ppax.train`."""

    overlap: int  # 1: host rollouts are collected during the update from the previous rollout
    chunk_seconds: float  # an interruptible call returns after the iteration in which this time is exceeded
    compile_seconds: float
    metric_names: tuple[str, ...]

    @property
    def collect_seconds(self) -> float | None:
        """Seconds that the latest call spent on rollouts; None where they cannot be separated from updates."""

    def __call__(
        self, agent: Any, env: Any, state: TrainState, num_iterations: int, total_iterations: int | None = None
    ) -> Any:
        """Run `num_iterations` iterations; the result is that of `ppax.train`."""


class Scene(Protocol):
    """Scene protocol: one environment with the policy that acts in it, rendered step by step."""

    def picture(self) -> np.ndarray:
        """Render the current state, [H, W, 3]."""

    def move(self, t: int) -> StepResult:
        """Act and step, for the `t`-th time; after the end of an episode, start the next one instead (autoreset)."""


class WholeEpisodes(Protocol):
    """Evaluation protocol: a fixed number of whole episodes, on environments of its own; programs compile once."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the environment's metrics."""

    def __call__(self, learner: Any, key: Key) -> Outcome:
        """Play the episodes with this learner, from fresh resets; equal keys give equal episodes."""


class Backend(Protocol):
    """Backend protocol: all that differs between environments in compiled programs and on the host.

    There is one class for each kind of environment (training/backends.py); an instance serves one environment.
    """

    @property
    def name(self) -> str:
        """Kind of the environment: "compiled" or "host"."""

    @property
    def repeatable(self) -> bool:
        """Whether the same rollout can be collected again from its actor state and key."""

    @property
    def copyable(self) -> bool:
        """Whether further environments of the same kind can be made."""

    @property
    def factories(self) -> tuple[Callable[..., Any], ...] | None:
        """Functions that make host environments; None: the environment is a tree of parts, which can be compared."""

    @property
    def source(self) -> Callable[..., Any] | None:
        """The one function of the user's that makes each host environment; None where there is none."""

    def compile(self, agent: Agent, state: TrainState, stop: threading.Event | None = None) -> Training:
        """Compile training ahead of time; a loop on the host ends after the current iteration when `stop` is set."""

    def metric_names(self, agent: Agent, state: TrainState) -> tuple[str, ...]:
        """Return the names of the training metrics, without compiling; `state` may be shapes."""

    def rollouts(self, agent: Agent, state: TrainState) -> Callable[[PyTree, ActorState, Key], Gathered]:
        """Return a function of (learner, actor, key) that collects a rollout of `state.num_steps` steps."""

    def episodes(
        self, agent: Agent, learner: PyTree, episodes: int, deterministic: bool, max_steps: int
    ) -> contextlib.AbstractContextManager[WholeEpisodes]:
        """Return whole episodes, each cut after `max_steps` steps; of `learner` only shapes are read."""

    def scene(
        self, agent: Agent, learner: PyTree, key: Key, deterministic: bool
    ) -> contextlib.AbstractContextManager[Scene]:
        """Return the scene of one environment, which is closed afterwards; ConfigError if it cannot be rendered."""

    def first_picture(self, key: Key) -> np.ndarray:
        """Render the first state of one new environment; ConfigError if it cannot be rendered."""

    def copies(self, num_envs: int) -> contextlib.AbstractContextManager[Any]:
        """Return `num_envs` environments of the same kind, which are closed afterwards."""

    def clock(self, program: Any) -> Any:
        """Return a timer of the stages of a compiled training (host.timing.Clock); None if they cannot be timed."""
