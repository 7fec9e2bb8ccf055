"""Adapter for gymnax, https://github.com/RobertTLange/gymnax (Lange 2022), releases 0.0.9 and 1.x alike.

The adapter calls gymnax's inner `reset_env` and `step_env`, without autoreset, so that it returns the final observation
of an episode. TimeLimit replaces gymnax's time limit, so that it is a truncation and not a termination.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.core.protocols import Environment
from ppax.core.types import ConfigError, EnvReset, EnvStep, Key, PyTree, part, static
from ppax.envs import builtin
from ppax.envs.suites import pictures
from ppax.envs.suites.registry import NO_LIMIT, known, library, strong
from ppax.envs.wrappers.time import TimeLimit

# Classic control by gymnax's class: the built-in environment that draws it, and how its state renames fields
ANGLES = {"joint_angle1": "theta1", "joint_angle2": "theta2"}
DRAWN: dict[str, tuple[Any, dict[str, str]]] = {
    "CartPole": (builtin.CartPole, {}),
    "Pendulum": (builtin.Pendulum, {}),
    "Acrobot": (builtin.Acrobot, ANGLES),
    "MountainCar": (builtin.MountainCar, {}),
    "ContinuousMountainCar": (builtin.MountainCarContinuous, {}),
}


@part
class Gymnax:
    """Environment of gymnax, without its time limit. Create it with `load`.

    `params` has gymnax's parameters, as traced leaves. But spaces must be known while tracing: for each parameter on
    which spaces depend, the static field `ends` has its name, and the lowest and the highest value that the options of
    `ppax.make` give it. Parameters that are changed later do not change the spaces, so that a policy's actions keep
    their bounds.
    """

    params: PyTree  # gymnax's own EnvParams
    env: Any = static(doc="environment object of gymnax")
    ends: tuple[tuple[str, float, float], ...] = static("name, lowest and highest value of such parameters", default=())

    num_agents = None  # no agent axis

    @property
    def observation_space(self) -> spaces.Space:
        """Space of observations, with the shape and dtype of actual observations.

        The bounds and dtypes that gymnax declares are not reliable.
        """
        obs = jax.eval_shape(lambda key: self.reset(key).obs, jax.random.key(0))
        with jax.ensure_compile_time_eval():
            declared = self._declared(self.env.observation_space, lambda space: _observation_space(space, obs))
        return _union(*declared)

    @property
    def action_space(self) -> spaces.Space:
        """Space of actions, with the bounds that gymnax declares.

        If it depends on parameters that are drawn from ranges, it has the widest bounds.
        """
        with jax.ensure_compile_time_eval():
            declared = self._declared(self.env.action_space, _action_space)
        return _union(*declared)

    def _declared(
        self, of: Callable[[Any], Any], convert: Callable[[Any], spaces.Space]
    ) -> tuple[spaces.Space, spaces.Space]:
        """Return the two spaces that gymnax declares for the lowest and the highest values of the parameters in `ends`.

        `of(params)` is gymnax's space for these parameters, which `convert` makes a space of Gymnasium.
        """
        params, ends = self.env.default_params, ({name: end[i] for name, *end in self.ends} for i in (0, 1))
        low, high = (convert(of(params.replace(**values) if values else params)) for values in ends)
        return low, high

    def reset(self, key: Key) -> EnvReset:
        """Return a new episode of the gymnax environment."""
        obs, state = self.env.reset_env(key, self.params)
        return EnvReset(*strong((state, _plain(obs))))

    def step(self, state: PyTree, action: PyTree, key: Key) -> EnvStep:
        """Return the result of one step of the gymnax environment; `TimeLimit` truncates in place of gymnax."""
        obs, state, reward, terminated, _ = self.env.step_env(key, state, action, self.params)
        state, obs = strong((state, _plain(obs)))
        return EnvStep(
            state,
            obs,
            jnp.asarray(reward, jnp.float32),  # some rewards are integers or booleans
            jnp.asarray(terminated, bool),
            jnp.zeros((), bool),
        )

    def render(self, state: PyTree) -> np.ndarray:
        """Return a picture [H, W, 3] of the state.

        Classic control is drawn as ppax's built-in environments are. Of any other environment the observation is drawn:
        a grid as coloured cells, a vector as a coloured square for each number (`pictures.draw_observation`).
        """
        drawn, rename = DRAWN.get(type(self.env).__name__, (None, {}))
        if drawn is not None:
            return drawn().render(
                types.SimpleNamespace(**{rename.get(name, name): x for name, x in vars(state).items()})
            )
        return pictures.draw_observation(self.env.get_obs(state, params=self.params, key=jax.random.key(0)))


def load(env_id: str, **kwargs: Any) -> Environment:
    """Return the gymnax environment `env_id` ("CartPole-v1"), truncated at gymnax's own time limit.

    `kwargs` go to `gymnax.make` and must be hashable. Raises ImportError without gymnax, ConfigError for an unknown id.
    """
    env = _make(env_id, **kwargs)
    params = env.default_params
    limit = getattr(params, "max_steps_in_episode", None)  # parameters of a registered environment may lack it
    adapter = Gymnax(params, env)
    return adapter if limit is None else TimeLimit(adapter, int(limit))


def with_spaces(env: Any, params: Mapping[str, Any]) -> Any:
    """Return `env`, a gymnax environment in any wrappers, with the spaces for the values that `params` give.

    `ppax.make` calls it, because parameters may set the bounds of actions. `params` has, by name, a value or a range
    with "low" and "high"; the spaces for a range contain the actions and observations of all its values. Raises
    ConfigError if the spaces at the two ends of a range differ in more than bounds, such as in the number of discrete
    actions.
    """
    if not isinstance(env, Gymnax):
        return dataclasses.replace(env, env=with_spaces(env.env, params))
    known = {field.name for field in dataclasses.fields(env.params)}
    ends = {name: (low, high) for name, (low, high) in map(_ends, params.items()) if name in known}
    plain = dataclasses.replace(env, ends=())
    alone = {name: dataclasses.replace(plain, ends=((name, *end),)) for name, end in ends.items()}
    before = plain.action_space, plain.observation_space
    depends = {name: ends[name] for name, one in alone.items() if (one.action_space, one.observation_space) != before}
    return dataclasses.replace(env, ends=tuple((name, *end) for name, end in depends.items()))


def _ends(item: tuple[str, Any]) -> tuple[str, tuple[Any, Any]]:
    name, value = item
    return name, (value["low"], value["high"]) if isinstance(value, Mapping) else (value, value)


def _union(one: Any, other: Any) -> spaces.Space:
    """Return the smallest space that contains the elements of `one` and of `other`.

    Raises ConfigError if these spaces differ in more than bounds.
    """
    if isinstance(one, spaces.Box) and one.shape == other.shape:
        return spaces.Box(np.minimum(one.low, other.low), np.maximum(one.high, other.high), dtype=one.dtype.type)
    if isinstance(one, spaces.Dict) and one.keys() == other.keys():
        return spaces.Dict({name: _union(inner, other[name]) for name, inner in one.items()})
    if isinstance(one, spaces.Tuple) and len(one) == len(other):
        return spaces.Tuple([_union(*pair) for pair in zip(one, other, strict=True)])
    if one != other:
        raise ConfigError(f"env_params: spaces {one} and {other} at the ends of a range; give one value, not a range")
    return one  # type: ignore[no-any-return]


def ids() -> list[str]:
    """Return the ids of all environments of gymnax."""
    return list(library("gymnax", "gymnax").registered_envs)


@functools.cache
def _make(env_id: str, **kwargs: Any) -> Any:
    """Return gymnax's environment without its time limit; there is one object for each configuration.

    gymnax and jit compare environments by identity.
    """
    gymnax = library("gymnax", "gymnax")
    env, _ = gymnax.make(known("gymnax", env_id, gymnax.registered_envs), **kwargs)
    # Before 1.0 `is_terminal` is also true at the time limit, so that every truncation would be a termination.
    # From 1.0 on it is not, and this changes nothing. The limit is removed here and not in `params`, because
    # DiscountingChain observes the time divided by the limit.
    env.is_terminal = functools.partial(_is_terminal_without_limit, env.is_terminal)
    return env


def _is_terminal_without_limit(is_terminal: Callable[..., Array], state: PyTree, params: Any) -> Array:
    if hasattr(params, "max_steps_in_episode"):  # parameters of a registered environment may lack it
        params = params.replace(max_steps_in_episode=NO_LIMIT)
    return is_terminal(state, params)


def _plain(obs: PyTree) -> PyTree:
    """Return an observation with dicts in place of other mappings, as networks expect."""
    if isinstance(obs, Mapping):
        return {name: _plain(x) for name, x in obs.items()}
    return tuple(_plain(x) for x in obs) if isinstance(obs, tuple) else obs


def _observation_space(space: Any, obs: PyTree) -> spaces.Space:
    """Return the Gymnasium space of observations like `obs`, for gymnax's `space`.

    It has the dtypes of `obs`; floats have no bounds, integers those of `space`. The dtypes and the bounds of floats
    that gymnax declares are not reliable.
    """
    if hasattr(space, "spaces"):
        return _several(space, lambda name, inner: _observation_space(inner, obs[name]))
    if jnp.issubdtype(obs.dtype, jnp.floating):  # MemoryChain, MetaMaze, GaussianBandit exceed declared bounds
        return spaces.Box(-np.inf, np.inf, obs.shape, obs.dtype)
    return _convert(space, obs.dtype)


def _action_space(space: Any) -> spaces.Space:
    """Return the Gymnasium space of a gymnax action space."""
    if hasattr(space, "spaces"):
        return _several(space, lambda _, inner: _action_space(inner))
    return _convert(space, np.dtype(space.dtype))


def _several(space: Any, one: Callable[[Any, Any], spaces.Space]) -> spaces.Space:
    """Return the Gymnasium space of a gymnax Dict or Tuple, where `one(key, space)` converts each of its spaces."""
    if isinstance(space.spaces, Mapping):
        return spaces.Dict({name: one(name, inner) for name, inner in space.spaces.items()})
    return spaces.Tuple([one(index, inner) for index, inner in enumerate(space.spaces)])


def _convert(space: Any, dtype: np.dtype) -> spaces.Space:
    """Return the Gymnasium space, with `dtype`, of a gymnax space of one array; TypeError for an unknown kind."""
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n))
    if hasattr(space, "low"):
        low = np.broadcast_to(np.asarray(space.low, dtype), space.shape)
        high = np.broadcast_to(np.asarray(space.high, dtype), space.shape)
        return spaces.Box(low, high, dtype=dtype.type)
    raise TypeError(f"received a {type(space).__name__} space: ppax converts gymnax's Discrete, Box, Dict and Tuple")
