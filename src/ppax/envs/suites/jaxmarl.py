"""Adapter for JaxMARL, https://github.com/FLAIROx/JaxMARL (Rutherford et al. 2023, https://arxiv.org/abs/2311.10090).

Observations, actions, rewards and ends of agents with equal spaces have an agent axis, in the order of `env.agents`.
Agents with different spaces form groups (wrappers/agent_groups.py), by their names. SMAX's `world_state` becomes
`global_state`, the input of a central critic. MPE and SMAX report their time limit as a termination; the adapter
removes it, and TimeLimit truncates instead. The adapter calls the inner `step_env`, which has no autoreset.
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

from ppax.core.protocols import Environment
from ppax.core.types import ConfigError, EnvReset, EnvStep, Key, PyTree, Scalar, number, part, static
from ppax.envs.suites.registry import NO_LIMIT, known, library, strong
from ppax.envs.wrappers.agent_groups import without_number
from ppax.envs.wrappers.time import TimeLimit

WORLD = "world_state"  # key of the global state among the observations, if there is one
TRUNCATED = ("MPE_", "SMAX")  # time limit is a truncation; elsewhere it is part of the game or observed


@part
class JaxMARL:
    """Environment of JaxMARL; those of MPE and SMAX have no time limit of their own here. Create it with `load`."""

    env: Any = static(doc="environment object of JaxMARL")
    groups: tuple[tuple[str, tuple[str, ...]], ...] = static("name of each group, and its agents' names; (): no groups")

    @property
    def num_agents(self) -> int | dict[str, int]:
        """Number of agents, alive or not; a dict by group if their spaces differ."""
        if not self.groups:
            return len(self.env.agents)
        return {name: len(members) for name, members in self.groups}

    @property
    def agent_names(self) -> tuple[str, ...]:
        """Names of all agents, ordered by group."""
        return tuple(member for _, members in self.groups for member in members) or tuple(self.env.agents)

    @property
    def observation_space(self) -> spaces.Space:
        """Space of one agent's observation: a Box without bounds; with groups a Dict with a Box for each group."""
        return self._by_group(lambda members: spaces.Box(-np.inf, np.inf, _shapes(self.env)[members[0]], np.float32))

    @property
    def action_space(self) -> spaces.Space:
        """Space of one agent's action: Discrete or Box; with groups a Dict with the space of each group."""
        with jax.ensure_compile_time_eval():
            return self._by_group(lambda members: _action_space(self.env.action_space(members[0])))

    def reset(self, key: Key) -> EnvReset:
        """Return a new episode of the JaxMARL environment."""
        obs, state = self.env.reset(key)
        return EnvReset(strong(state), self._by_agent(obs, jnp.float32), self._mask(state), obs.get(WORLD))

    def step(self, state: PyTree, action: PyTree, key: Key) -> EnvStep:
        """Return the result of one step of the JaxMARL environment, which is never truncated.

        An agent that is out of the game is terminated.
        """
        if self.groups:
            actions = {member: action[name][i] for name, group in self.groups for i, member in enumerate(group)}
        else:
            actions = {name: action[index] for index, name in enumerate(self.env.agents)}
        obs, state, reward, done, info = self.env.step_env(key, state, actions)
        names = self.agent_names
        return EnvStep(
            strong(state),
            self._by_agent(obs, jnp.float32),
            self._rewards(reward, info),
            _stack(done, names, bool) | jnp.asarray(done["__all__"], bool),
            jnp.zeros((len(names),), bool),
            self._mask(state),
            obs.get(WORLD),
        )

    def _rewards(self, reward: Any, info: Any) -> Array:
        """Return the rewards of all A agents, [A]; a subclass may add terms from `info`."""
        return _stack(reward, self.agent_names, jnp.float32)

    def _by_group(self, space: Callable[[Sequence[str]], spaces.Space]) -> spaces.Space:
        if not self.groups:
            return space(self.env.agents)
        return spaces.Dict({name: space(members) for name, members in self.groups})

    def _by_agent(self, values: Any, dtype: Any) -> PyTree:
        """Return the entries of `values`, a dict by agent's name, stacked to one array [A, ...] of the A agents.

        With groups of agents the result is a dict by group's name of such arrays.
        """
        if not self.groups:
            return _stack(values, self.env.agents, dtype)
        return {name: _stack(values, members, dtype) for name, members in self.groups}

    def _mask(self, state: PyTree) -> PyTree | None:
        return self._by_agent(_allowed(self.env, state), bool) if _masks(self.env) else None


@part
class Overcooked(JaxMARL):
    """Environment Overcooked with reward shaping: `shaping` weights rewards for steps towards a soup.

    Soups are delivered too rarely by chance to learn from the reward of delivery alone.
    """

    shaping: Scalar = number("weight of the shaped reward, for steps towards a soup", default=0.0, low=0.0)

    def _rewards(self, reward: Any, info: Any) -> Array:
        return super()._rewards(reward, info) + self.shaping * super()._rewards(info["shaped_reward"], info)


def load(env_id: str, **kwargs: Any) -> Environment:
    """Return the JaxMARL environment `env_id` ("MPE_simple_spread_v3"), truncated if MPE or SMAX limits its time.

    In other environments an end at the time limit is a termination. Agents with different spaces form groups, by
    JaxMARL's names: "adversary", "agent". `kwargs` are passed to `jaxmarl.make` and must be hashable. Raises
    ImportError without JaxMARL, ConfigError for an unknown id.
    """
    env, limit = _make(known("jaxmarl", env_id, ids()), **kwargs)
    adapter = (Overcooked if env_id.startswith("overcooked") else JaxMARL)(env, _groups(env))
    return adapter if limit is None else TimeLimit(adapter, limit)


def ids() -> list[str]:
    """Return the ids of all environments of JaxMARL; in some of them agents have different spaces."""
    return list(library("jaxmarl", "jaxmarl").registered_envs)


@functools.cache
def _make(env_id: str, **kwargs: Any) -> tuple[Any, int | None]:
    """Return JaxMARL's environment, and the time limit that was removed from it; None if none was removed.

    Only environments of MPE and SMAX lose their limit. There is one object for each configuration.
    """
    jaxmarl = library("jaxmarl", "jaxmarl")
    try:
        env = jaxmarl.make(env_id, **kwargs)
    except ValueError as error:
        if "not installed" not in str(error):  # some need a library that JaxMARL does not install
            raise
        raise ImportError(f"jaxmarl/{env_id}: {error}") from error
    obs = jax.eval_shape(lambda key: env.reset(key)[0], jax.random.key(0))
    if not isinstance(obs, dict) or not all(hasattr(obs.get(name), "shape") for name in env.agents):
        raise ConfigError(f"jaxmarl/{env_id}: its observations are not one array for each agent by its name")
    if not env_id.startswith(TRUNCATED) and not env_id.endswith(TRUNCATED):
        return env, None
    limit = int(env.max_steps)
    vars(env).get("_env", env).max_steps = NO_LIMIT  # the variant that plays only the allies wraps the game
    return env, limit


@functools.cache
def _groups(env: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return groups of agents with different spaces, by the agents' names without numbers: "agent_0" is in "agent".

    They are pairs of the group's name and its agents' names; () if all agents have the same spaces. If agents of one
    group still have different spaces, each agent of the environment is its own group.
    """

    def spaces_of(name: str) -> str:
        return f"{_shapes(env)[name]} and {_describe(env.action_space(name))}"

    if len({spaces_of(name) for name in env.agents}) == 1:
        return ()
    groups: dict[str, list[str]] = {}
    for name in env.agents:
        groups.setdefault(without_number(name), []).append(name)
    if any(len({spaces_of(name) for name in members}) > 1 for members in groups.values()):
        groups = {name: [name] for name in env.agents}
    return tuple((name, tuple(members)) for name, members in groups.items())


@functools.cache
def _shapes(env: Any) -> dict[str, tuple[int, ...]]:
    """Return the shape of each agent's observation by name; the shapes that JaxMARL declares are not always right."""
    obs = jax.eval_shape(lambda key: env.reset(key)[0], jax.random.key(0))
    return {name: obs[name].shape for name in env.agents}


@functools.cache
def _masks(env: Any) -> bool:
    """Return whether the JaxMARL environment has action masks; most do not implement `get_avail_actions`."""
    try:
        shapes = jax.eval_shape(lambda key: _allowed(env, env.reset(key)[1]), jax.random.key(0))
    except (NotImplementedError, AttributeError):
        return False
    if not isinstance(shapes, dict):
        return False
    action_spaces = {name: env.action_space(name) for name in env.agents}
    return all(hasattr(space, "n") and shapes[name].shape == (int(space.n),) for name, space in action_spaces.items())


def _allowed(env: Any, state: PyTree) -> Any:
    """Return the action mask of each agent by name, from `get_avail_actions`, or Hanabi's method `get_legal_moves`."""
    return getattr(env, "get_legal_moves", env.get_avail_actions)(state)


def _stack(values: Any, names: Sequence[str], dtype: Any) -> Array:
    return jnp.stack([jnp.asarray(values[name], dtype) for name in names])


def _describe(space: Any) -> str:
    """Return a text for a JaxMARL space, as "Discrete[5]", to compare spaces, which have no useful `repr`."""
    return f"{type(space).__name__}{[int(space.n)] if hasattr(space, 'n') else list(space.shape)}"


def _action_space(space: Any) -> spaces.Space:
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n))
    low, high = (np.broadcast_to(np.asarray(x, np.float32), space.shape) for x in (space.low, space.high))
    return spaces.Box(low, high, dtype=np.float32)
