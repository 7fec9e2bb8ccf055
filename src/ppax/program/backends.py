"""Backends: where a run's environments are stepped, inside compiled programs or by a loop on the host.

`backend_of` asks once; all else calls the members of the protocol `Backend`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from ppax.agents.arguments import require_fit
from ppax.collection import collect
from ppax.envs import Env, HostEnv
from ppax.envs.hosting.rendering import with_rendering
from ppax.envs.vector import VectorEnv
from ppax.host import Clock, HostActor, HostTraining, Rollouts, metric_names, play_episodes
from ppax.host.scene import HostScene
from ppax.program.compiled import CompiledTraining
from ppax.program.episodes import CompiledScene, run_episodes
from ppax.program.layout import run_once_options
from ppax.protocols import Agent, Backend, Scene
from ppax.training import train
from ppax.types import ActorState, Gathered, Key, Outcome, PyTree, TrainState


def backend_of(env: Env) -> Backend:
    """Return the backend of `env`."""
    return OnHost(env) if isinstance(env, HostEnv) else Compiled(env)


@dataclasses.dataclass(frozen=True)
class Compiled:
    """Backend of a VectorEnv, which is stepped inside compiled programs."""

    env: VectorEnv
    name = "compiled"
    repeatable = True
    factories = None

    def compile(self, agent: Agent, state: TrainState, stop: threading.Event | None = None) -> CompiledTraining:
        """Compile `train`; `stop` has no effect."""
        return CompiledTraining(agent, self.env, state)

    def metric_names(self, agent: Agent, state: TrainState) -> tuple[str, ...]:
        """Return the names of the training metrics."""
        return jax.eval_shape(lambda state: train(agent, self.env, state, 1, 1).metrics, state).names

    def rollouts(self, agent: Agent, state: TrainState) -> Callable[[PyTree, ActorState, Key], Gathered]:
        """Return a compiled function that collects a rollout."""
        program = jax.jit(collect, static_argnums=4, compiler_options=run_once_options())
        return lambda learner, actor, key: Gathered(
            actor, program(agent, self.env, learner, actor, state.num_steps, key)
        )

    def play_episodes(
        self, agent: Agent, learner: PyTree, key: Key, episodes: int, deterministic: bool, max_steps: int
    ) -> Outcome:
        """Play one episode in each of `episodes` streams, so that short episodes are not preferred."""
        env = dataclasses.replace(self.env, num_envs=-(-episodes // self.env.num_agents))
        out = run_episodes(agent, env, learner, key, deterministic, max_steps)
        returns, lengths, finished = (np.asarray(x)[:episodes] for x in (out.returns, out.lengths, out.finished))
        metrics = {name: np.asarray(x)[:episodes] for name, x in out.metrics.items()}
        return Outcome(returns, lengths, finished, None, metrics, 0)

    @contextlib.contextmanager
    def scene(self, agent: Agent, learner: PyTree, key: Key, deterministic: bool) -> Iterator[Scene]:
        """Yield the scene of one environment."""
        yield CompiledScene(agent, self.env, learner, deterministic, key)

    @contextlib.contextmanager
    def copies(self, num_envs: int) -> Iterator[Env]:
        """Yield `num_envs` environments of the same kind."""
        yield dataclasses.replace(self.env, num_envs=num_envs)

    def clock(self, program: Any) -> None:
        """Return no clock: the stages of a compiled iteration are not apart."""


@dataclasses.dataclass(frozen=True)
class OnHost:
    """Backend of a HostEnv, which is stepped by a Python loop."""

    env: HostEnv
    name = "host"
    repeatable = False

    @property
    def factories(self) -> tuple[Callable[..., Any], ...]:
        """Functions that make the environments."""
        return tuple(self.env.host.factories)

    def compile(self, agent: Agent, state: TrainState, stop: threading.Event | None = None) -> HostTraining:
        """Compile all of an iteration but the steps of the environments."""
        require_fit(agent, self.env)
        return HostTraining(agent, self.env, state, stop)

    def metric_names(self, agent: Agent, state: TrainState) -> tuple[str, ...]:
        """Return the names of the training metrics."""
        require_fit(agent, self.env)
        return metric_names(agent, self.env, state)

    def rollouts(self, agent: Agent, state: TrainState) -> Callable[[PyTree, ActorState, Key], Gathered]:
        """Return a function that collects a rollout; it resets environments that are in another state."""
        return Rollouts(agent, self.env, state)

    def play_episodes(
        self, agent: Agent, learner: PyTree, key: Key, episodes: int, deterministic: bool, max_steps: int
    ) -> Outcome:
        """Play episodes in new environments, at most as many as there are."""
        require_fit(agent, self.env)
        return play_episodes(agent, self.env, learner, key, episodes, deterministic, max_steps)

    @contextlib.contextmanager
    def scene(self, agent: Agent, learner: PyTree, key: Key, deterministic: bool) -> Iterator[Scene]:
        """Yield the scene of one new environment that renders, and close it."""
        require_fit(agent, self.env)
        one = with_rendering(self.env)
        with one.env:
            yield HostScene(HostActor(agent, one.env, learner, key, deterministic), one)

    @contextlib.contextmanager
    def copies(self, num_envs: int) -> Iterator[Env]:
        """Yield new environments of the same kind, or those that the user has created, and close them."""
        with self.env.recreate(num_envs) as env:
            yield env

    def clock(self, program: HostTraining) -> Clock:
        """Return a clock that times the stages of `program` from now on."""
        return Clock(program, self.env)
