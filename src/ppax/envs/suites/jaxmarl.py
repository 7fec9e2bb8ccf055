"""Adapter for JaxMARL, https://github.com/FLAIROx/JaxMARL (Rutherford et al. 2023, https://arxiv.org/abs/2311.10090).

Observations, actions, rewards and ends of agents that are alike stand in an agent axis, in the order of `env.agents`;
agents that differ are in groups (groups.py), by their names. The state that SMAX shows besides is for a central critic.
The time limit of MPE and SMAX, which they call an end, is lifted; ours cuts. It calls the inner `step_env`, which never
resets.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.envs.suites.common import known, library, strong
from ppax.envs.wrappers.time_limit import TimeLimit
from ppax.types import ConfigError, Environment, EnvReset, EnvStep, Key, PyTree, Scalar, number, part, static

NO_LIMIT = 2**30  # steps
WORLD = "world_state"  # among the observations, where there is one
CUT = ("MPE_", "SMAX")  # whose time limit cuts; elsewhere it belongs to the game, or observations show it


@part
class JaxMARL:
    """One JaxMARL environment without its time limit. Make it with `load`, not by hand."""

    env: Any = static(doc="JaxMARL's own environment")
    groups: tuple[tuple[str, tuple[str, ...]], ...] = static("name of each group, and its agents'; none: all are alike")

    @property
    def num_agents(self) -> int | dict[str, int]:
        """All of them, whether still alive or not; in groups where they differ."""
        if not self.groups:
            return len(self.env.agents)
        return {name: len(members) for name, members in self.groups}

    @property
    def observation_space(self) -> spaces.Space:
        """Box without bounds, of one agent, or of one of each group."""
        return self._by_group(lambda members: spaces.Box(-np.inf, np.inf, _shapes(self.env)[members[0]], np.float32))

    @property
    def action_space(self) -> spaces.Space:
        """Discrete or Box, of one agent, or of one of each group."""
        with jax.ensure_compile_time_eval():
            return self._by_group(lambda members: _action_space(self.env.action_space(members[0])))

    def reset(self, key: Key) -> EnvReset:
        """Begin an episode."""
        obs, state = self.env.reset(key)
        return EnvReset(strong(state), self._deal(obs, jnp.float32), self._mask(state), obs.get(WORLD))

    def step(self, state: PyTree, action: PyTree, key: Key) -> EnvStep:
        """Advance by one step; never truncates. An agent that is out is terminated."""
        if self.groups:
            actions = {member: action[name][i] for name, group in self.groups for i, member in enumerate(group)}
        else:
            actions = {name: action[place] for place, name in enumerate(self.env.agents)}
        obs, state, reward, done, info = self.env.step_env(key, state, actions)
        names = self._names()
        return EnvStep(
            strong(state),
            self._deal(obs, jnp.float32),
            self._earned(reward, info),
            _stack(done, names, bool) | jnp.asarray(done["__all__"], bool),
            jnp.zeros((len(names),), bool),
            self._mask(state),
            obs.get(WORLD),
        )

    def _earned(self, reward: Any, info: Any) -> Array:
        """Rewards of all agents, [A]."""
        return _stack(reward, self._names(), jnp.float32)

    def _names(self) -> list[str]:
        """Of all agents, group by group."""
        return [member for _, members in self.groups for member in members] or list(self.env.agents)

    def _by_group(self, space: Callable[[Sequence[str]], spaces.Space]) -> spaces.Space:
        if not self.groups:
            return space(self.env.agents)
        return spaces.Dict({name: space(members) for name, members in self.groups})

    def _deal(self, of_each: Any, dtype: Any) -> PyTree:
        """What each agent has, [A, ...], or by group."""
        if not self.groups:
            return _stack(of_each, self.env.agents, dtype)
        return {name: _stack(of_each, members, dtype) for name, members in self.groups}

    def _mask(self, state: PyTree) -> PyTree | None:
        return self._deal(_allowed(self.env, state), bool) if _masks(self.env) else None


@part
class Overcooked(JaxMARL):
    """Overcooked, whose soups are too rare to be found by chance: it tells besides what brings one nearer."""

    shaping: Scalar = number("weight of rewards for what brings a soup nearer", default=0.0, low=0.0)

    def _earned(self, reward: Any, info: Any) -> Array:
        return super()._earned(reward, info) + self.shaping * super()._earned(info["shaped_reward"], info)


def load(env_id: str, **kwargs: Any) -> Environment:
    """The environment `env_id` ("MPE_simple_spread_v3"), cut at its own time limit.

    Agents that differ in what they see or do are in groups, by JaxMARL's names: "adversary", "agent". `kwargs` go to
    `jaxmarl.make` and must be hashable. Raises ImportError without JaxMARL, ConfigError for an unknown id.
    """
    env, limit = _make(known("jaxmarl", env_id, ids()), **kwargs)
    adapter = (Overcooked if env_id.startswith("overcooked") else JaxMARL)(env, _groups(env))
    return adapter if limit is None else TimeLimit(adapter, limit)


def ids() -> list[str]:
    """All environments there are; in some of them agents differ."""
    return list(library("jaxmarl", "jaxmarl").registered_envs)


@functools.cache
def _make(env_id: str, **kwargs: Any) -> tuple[Any, int | None]:
    """One object for each configuration, without its time limit, and that limit."""
    jaxmarl = library("jaxmarl", "jaxmarl")
    try:
        env = jaxmarl.make(env_id, **kwargs)
    except ValueError as error:
        if "not installed" not in str(error):  # some need a library that is no part of JaxMARL
            raise
        raise ImportError(f"jaxmarl/{env_id}: {error}") from error
    obs = jax.eval_shape(lambda key: env.reset(key)[0], jax.random.key(0))
    if not isinstance(obs, dict) or not all(hasattr(obs.get(name), "shape") for name in env.agents):
        raise ConfigError(f"jaxmarl/{env_id}: its observations are not one array for each agent by its name")
    if not env_id.startswith(CUT) and not env_id.endswith(CUT):
        return env, None
    limit = int(env.max_steps)
    vars(env).get("_env", env).max_steps = NO_LIMIT  # where allies only are played, the game is inside
    return env, limit


@functools.cache
def _groups(env: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Agents of one name but for its number, where they differ in anything; () where all are alike."""

    def words(name: str) -> str:
        return f"{_shapes(env)[name]} and {_words(env.action_space(name))}"

    if len({words(name) for name in env.agents}) == 1:
        return ()
    found: dict[str, list[str]] = {}
    for name in env.agents:
        found.setdefault(name.rstrip("0123456789").rstrip("_"), []).append(name)
    if any(len({words(name) for name in members}) > 1 for members in found.values()):
        found = {name: [name] for name in env.agents}
    return tuple((name, tuple(members)) for name, members in found.items())


@functools.cache
def _shapes(env: Any) -> dict[str, tuple[int, ...]]:
    """Of each agent's observation; those that JaxMARL declares are not always those that it gives."""
    obs = jax.eval_shape(lambda key: env.reset(key)[0], jax.random.key(0))
    return {name: obs[name].shape for name in env.agents}


@functools.cache
def _masks(env: Any) -> bool:
    """Whether actions are masked: most environments refuse to say which are available."""
    try:
        shapes = jax.eval_shape(lambda key: _allowed(env, env.reset(key)[1]), jax.random.key(0))
    except (NotImplementedError, AttributeError):
        return False
    if not isinstance(shapes, dict):
        return False
    every = {name: env.action_space(name) for name in env.agents}
    return all(hasattr(space, "n") and shapes[name].shape == (int(space.n),) for name, space in every.items())


def _allowed(env: Any, state: PyTree) -> Any:
    """What each agent may do; Hanabi has a name of its own for it."""
    return getattr(env, "get_legal_moves", env.get_avail_actions)(state)


def _stack(of_each: Any, names: Sequence[str], dtype: Any) -> Array:
    return jnp.stack([jnp.asarray(of_each[name], dtype) for name in names])


def _words(space: Any) -> str:
    """A JaxMARL space; it has no words of its own."""
    return f"{type(space).__name__}{[int(space.n)] if hasattr(space, 'n') else list(space.shape)}"


def _action_space(space: Any) -> spaces.Space:
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n))
    low, high = (np.broadcast_to(np.asarray(x, np.float32), space.shape) for x in (space.low, space.high))
    return spaces.Box(low, high, dtype=np.float32)
