"""Backends: where a run's environments are stepped, inside compiled programs or by a loop on the host.

`backend_of` asks for the kind of environment once; all other code calls the methods of the protocol `Backend`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from ppax.agents.policies import without_extensions
from ppax.core.protocols import Agent, Backend, Scene, Training, WholeEpisodes
from ppax.core.types import ActorState, Gathered, Key, PyTree, TrainState
from ppax.devices.platforms import rules
from ppax.devices.tracing import renewed
from ppax.envs import Env, HostEnv, ended
from ppax.envs.hosting.host_env import reset_seeds
from ppax.envs.hosting.rendering import with_rendering
from ppax.envs.stagger import longest_episode
from ppax.envs.vector import VectorEnv, never_ends
from ppax.envs.wrappers.wrapper import render
from ppax.storage.cache import kept_programs
from ppax.training.arguments import require_fit, require_players
from ppax.training.collection import collect
from ppax.training.compiled import CompiledTraining
from ppax.training.episodes import CompiledEpisodes, CompiledScene
from ppax.training.host import Clock, HostActor, HostEpisodes, HostTraining, Rollouts, host_metric_names, make_policy
from ppax.training.host.episodes import HostScene
from ppax.training.loop import train


def compile(agent: Agent, env: Env, state: TrainState, stop: threading.Event | None = None) -> Training:
    """Return a function that is called as `ppax.train` is, compiled ahead of time for `agent`, `env` and `state`.

    Of `state` only shapes are compiled in, and of agent and environment shapes and static fields; hyperparameters may
    change from call to call. Use it to train environments on the host, which `ppax.train` cannot step, or so that later
    calls cannot compile again: other shapes or static fields are an error.

    For host environments the result is a Python loop around compiled programs, which returns after the current
    iteration when `stop` is set. For environments in JAX `stop` is ignored: a compiled program cannot be interrupted.
    Raises ConfigError if `env` is on the host and lacks the agents or groups that `agent` requires.
    """
    with kept_programs():
        return backend_of(env).compile(agent, state, stop)


def backend_of(env: Env) -> Backend:
    """Return the backend of `env`, by which it is stepped: on the host for a HostEnv, compiled for a VectorEnv."""
    return OnHost(env) if isinstance(env, HostEnv) else Compiled(env)


@dataclasses.dataclass(frozen=True)
class Compiled:
    """Backend for environments in JAX (a VectorEnv): training and evaluation step them inside compiled programs."""

    env: VectorEnv
    name = "compiled"
    repeatable = True
    copyable = True
    factories = None
    source = None

    def compile(self, agent: Agent, state: TrainState, stop: threading.Event | None = None) -> CompiledTraining:
        """Return a function that is called as `ppax.train` is, compiled ahead of time for the shapes of its arguments.

        `stop` has no effect, as a compiled program cannot be interrupted.
        """
        return CompiledTraining(agent, self.env, state)

    def metric_names(self, agent: Agent, state: TrainState) -> tuple[str, ...]:
        """Return the names of the training metrics, without compiling; `state` may be shapes."""
        return jax.eval_shape(lambda state: train(agent, self.env, state, 1, 1).metrics, state).names

    def rollouts(self, agent: Agent, state: TrainState) -> Callable[[PyTree, ActorState, Key], Gathered]:
        """Return a compiled function of (learner, actor, key) that collects a rollout of `state.num_steps` steps.

        Its result, a `Gathered`, has the rollout and the actor states before and after it.
        """
        program = jax.jit(renewed(collect), static_argnums=4, compiler_options=rules().run_once_options)
        return lambda learner, actor, key: Gathered(
            actor, program(agent, self.env, learner, actor, state.num_steps, key)
        )

    @property
    def time_limit(self) -> int | None:
        """Steps of the agent after which a time limit truncates episodes; None if there is none.

        If the limit is drawn at resets, it is the largest that can be drawn.
        """
        limit = longest_episode(self.env)
        return None if limit is None else int(limit)

    @property
    def endless(self) -> bool:
        """Whether no step ends an episode: in the traced step `terminated` and `truncated` are the constant False.

        False if that cannot be seen, for example where a flag depends on the state.
        """
        return never_ends(ended(self.env).env)

    @contextlib.contextmanager
    def episodes(self, agent: Agent, learner: PyTree, episodes: int, deterministic: bool) -> Iterator[WholeEpisodes]:
        """Return a context whose value is a function of (learner, key, max_steps) that plays `episodes` whole episodes.

        The function plays the first episode of each of `episodes` streams (one agent in one environment), and cuts it
        after `max_steps` steps. Of `learner` only shapes are read.
        """
        require_players(agent, self.env)
        yield CompiledEpisodes(agent, ended(self.env), learner, episodes, deterministic)

    @contextlib.contextmanager
    def scene(self, agent: Agent, learner: PyTree, key: Key, deterministic: bool) -> Iterator[Scene]:
        """Return a context whose value is one environment in which the policy acts, to be stepped and rendered."""
        yield CompiledScene(agent, ended(self.env), learner, deterministic, key)

    def first_picture(self, key: Key) -> np.ndarray:
        """Return a picture [H, W, 3] of the first state of one environment."""
        state, _, _ = jax.jit(dataclasses.replace(self.env, num_envs=1).reset)(key)
        return render(self.env.env, jax.tree.map(lambda x: x[0], state.env))

    @contextlib.contextmanager
    def copies(self, num_envs: int) -> Iterator[Env]:
        """Return a context whose value is a vectorised environment of `num_envs` copies of this backend's environment.

        The context closes nothing at its end, as environments in JAX hold no resources.
        """
        yield dataclasses.replace(self.env, num_envs=num_envs)

    def clock(self, program: Any) -> None:
        """Return None: the stages of a compiled iteration cannot be timed separately."""


@dataclasses.dataclass(frozen=True)
class OnHost:
    """Backend of a HostEnv, which is stepped by a Python loop."""

    env: HostEnv
    name = "host"
    repeatable = False
    endless = False  # nobody can tell from outside

    @property
    def time_limit(self) -> int | None:
        """Steps of the agent after which a time limit truncates episodes; None if ppax cannot read it."""
        return self.env.host.spec.time_limit

    @property
    def copyable(self) -> bool:
        """Whether further environments of this kind can be made; False if the user passed in existing environments."""
        return not self.env.host.unique

    @property
    def factories(self) -> tuple[Callable[..., Any], ...]:
        """Functions that make the host environments, each of them one environment per call."""
        return tuple(self.env.host.factories)

    @property
    def source(self) -> Callable[..., Any] | None:
        """The user's function that makes each of the environments; None if they were not made by one such function."""
        return self.env.host.source

    def compile(self, agent: Agent, state: TrainState, stop: threading.Event | None = None) -> HostTraining:
        """Return a function that is called as `ppax.train` is: a Python loop of environment steps and compiled updates.

        A call of it returns after the current iteration when `stop` is set.
        """
        require_fit(agent, self.env)
        return HostTraining(agent, self.env, state, stop)

    def metric_names(self, agent: Agent, state: TrainState) -> tuple[str, ...]:
        """Return the names of the training metrics, without compiling; `state` may be shapes."""
        require_fit(agent, self.env)
        return host_metric_names(agent, self.env, state)

    def rollouts(self, agent: Agent, state: TrainState) -> Callable[[PyTree, ActorState, Key], Gathered]:
        """Return a function of (learner, actor, key) that collects a rollout of `state.num_steps` steps.

        Its result, a `Gathered`, has the rollout and the actor states before and after it. If the environments are not
        in the given actor state, as after a resume, that function resets them first.
        """
        return Rollouts(agent, self.env, state)

    @contextlib.contextmanager
    def episodes(self, agent: Agent, learner: PyTree, episodes: int, deterministic: bool) -> Iterator[WholeEpisodes]:
        """Return a context whose value is a function of (learner, key, max_steps) that plays `episodes` whole episodes.

        The function cuts each episode after `max_steps` steps. It plays in new host environments, at most as many as
        the run has, which are closed with the context. If the user passed in existing environments, it plays in these.
        Of `learner` only shapes are read.
        """
        require_fit(agent, self.env)
        alone = _acting_alone(agent)
        with contextlib.closing(HostEpisodes(alone, self.env, episodes, deterministic)) as played:
            yield played

    @contextlib.contextmanager
    def scene(self, agent: Agent, learner: PyTree, key: Key, deterministic: bool) -> Iterator[Scene]:
        """Return a context whose value is one new environment in which the policy acts, to be stepped and rendered.

        The environment is closed with the context.
        """
        require_fit(agent, self.env)
        one, alone = with_rendering(self.env), _acting_alone(agent)
        with one.env:
            policy = make_policy(alone, one.env, learner, deterministic)
            yield HostScene(HostActor(alone, one.env, learner, key, policy), one)

    def first_picture(self, key: Key) -> np.ndarray:
        """Return a picture [H, W, 3] of the first state of one new environment, which is closed."""
        one = with_rendering(self.env)
        with one.env:
            one.env.host.reset(reset_seeds(key, 1))
            return one.picture()

    @contextlib.contextmanager
    def copies(self, num_envs: int) -> Iterator[Env]:
        """Return a context whose value is a HostEnv of `num_envs` new environments like those of this backend.

        They are closed with the context. Environments that the user passed in cannot be copied: the value is these
        environments, which are closed, too.
        """
        with self.env.recreate(num_envs) as env:
            yield env

    def clock(self, program: HostTraining) -> Clock:
        """Return a timer that measures, from now on, the stages of `program`, such as stepping and updates."""
        return Clock(program, self.env)


def _acting_alone(agent: Agent) -> Any:
    """Return `agent` as evaluations use it: without extensions, and without past selves if it is in self-play.

    A past self is a snapshot of a policy from earlier in training.
    """
    alone = without_extensions(agent)
    if alone.pool is None:
        return alone
    return dataclasses.replace(alone, pool=dataclasses.replace(alone.pool, share=0.0))
