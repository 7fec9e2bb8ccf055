"""Adapter for Jumanji, https://github.com/instadeepai/jumanji (Bonnet et al. 2024, https://arxiv.org/abs/2306.09884).

Observations become dicts; `action_mask` is removed from them and returned as the mask. A mask over the product of
several choices (BinPack, Tetris) gives one Discrete action over that product; a mask for each choice (Connector,
JobShop) gives a MultiDiscrete action. Several agents are one agent here, whose reward is the sum of theirs.

Jumanji reports its time limit nearly always as a termination, and the adapter keeps that: the limit is part of the
task, and all environments but PacMan observe the time.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.core.protocols import Environment
from ppax.core.types import EnvReset, EnvStep, Key, PyTree, part, static
from ppax.envs.suites.registry import known, library, strong

MASK = "action_mask"
COUNTERS = ("step_count",)  # counters that Jumanji declares as categories


@part
class Jumanji:
    """Environment of Jumanji as an environment of ppax. Create it with `load`."""

    env: Any = static(doc="environment object of Jumanji")

    num_agents = None  # no agent axis

    @property
    def observation_space(self) -> spaces.Space:
        """Space of observations: a Dict with the fields of Jumanji's observation, without its mask."""
        return _observation_space(self.env)

    @property
    def action_space(self) -> spaces.Space:
        """Space of actions: Discrete, MultiDiscrete or Box.

        It is Discrete over the product of several choices where Jumanji's mask is over that product.
        """
        return _action_space(self.env)

    def reset(self, key: Key) -> EnvReset:
        """Return a new episode of the Jumanji environment."""
        state, timestep = self.env.reset(key)
        return EnvReset(strong(state), *self._split_mask(timestep.observation))

    def step(self, state: PyTree, action: Array, key: Key) -> EnvStep:
        """Return the result of one step of the Jumanji environment; randomness comes from the key inside the state."""
        state, timestep = self.env.step(state, self._convert_action(action))
        obs, mask = self._split_mask(timestep.observation)
        ended = jnp.asarray(timestep.last(), bool)
        terminated = ended & (jnp.asarray(timestep.discount) == 0.0).all()
        reward = jnp.asarray(timestep.reward, jnp.float32).sum()
        return EnvStep(strong(state), obs, reward, terminated, ended & ~terminated, mask)

    def _convert_action(self, action: Array) -> Array:
        """Return `action`, which is of `action_space`, as Jumanji's `step` takes it.

        A Discrete action over the product of several choices becomes a vector with the index of each choice.
        """
        spec, space = self.env.action_spec, self.action_space
        if spec.shape and isinstance(space, spaces.Discrete):
            action = jnp.stack(jnp.unravel_index(action, tuple(np.asarray(spec.num_values))))
        return jnp.asarray(action, spec.dtype)

    def _split_mask(self, observation: Any) -> tuple[PyTree, Array | None]:
        """Return Jumanji's observation without its action mask, and the mask as a vector; None if there is no mask.

        The vector has one element for each action of a Discrete space. For a MultiDiscrete space it has one for each
        option of each choice, choice after choice.
        """
        tree = _plain(observation)
        mask = tree.pop(MASK, None) if isinstance(tree, dict) else None
        obs = _cast(self.observation_space, tree)
        return obs, None if mask is None else jnp.asarray(mask, bool).reshape(-1)


def load(env_id: str, **kwargs: Any) -> Environment:
    """Return the Jumanji environment `env_id` ("Snake-v1").

    `kwargs` are passed to `jumanji.make` and must be hashable. Raises ImportError without Jumanji, ConfigError for an
    unknown id.
    """
    return Jumanji(_make(known("jumanji", env_id, ids()), **kwargs))


def ids() -> list[str]:
    """Return the ids of all environments of Jumanji."""
    return sorted(library("jumanji", "jumanji").registered_environments())


@functools.cache
def _make(env_id: str, **kwargs: Any) -> Any:
    """Return Jumanji's environment, the same object for equal arguments, as jit compares objects by identity."""
    return library("jumanji", "jumanji").make(env_id, **kwargs)


def _fields(value: Any) -> dict[str, Any] | None:
    """Return the fields of a NamedTuple or dataclass by name; None for an array."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return dict(value._asdict())
    if dataclasses.is_dataclass(value) and not isinstance(value, Array | jax.ShapeDtypeStruct):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _plain(value: Any) -> Any:
    """Return a value with dicts in place of NamedTuples and dataclasses, at all levels of nesting."""
    fields = _fields(value)
    return value if fields is None else {name: _plain(x) for name, x in fields.items()}


@functools.cache
def _observation_space(env: Any) -> spaces.Space:
    shapes = jax.eval_shape(lambda key: env.reset(key)[1].observation, jax.random.key(0))
    with jax.ensure_compile_time_eval():
        return _space(env.observation_spec, shapes)


def _space(spec: Any, value: Any, counter: bool = False) -> spaces.Space:
    """Return the Gymnasium space with the dtypes of `value` and the bounds of Jumanji's `spec`.

    `counter` is True for a field that counts, such as `step_count`: its space is a Box even if `spec` declares
    categories, of which the space is otherwise a Discrete or MultiDiscrete.
    """
    fields = _fields(value)
    if fields is not None:
        inner = {name: x for name, x in fields.items() if name != MASK}
        return spaces.Dict({name: _space(getattr(spec, name), x, name in COUNTERS) for name, x in inner.items()})
    if hasattr(spec, "num_values") and not counter:
        counts = np.asarray(spec.num_values)
        return spaces.MultiDiscrete(counts) if counts.ndim else spaces.Discrete(int(counts))
    if value.dtype == bool:
        return spaces.MultiBinary(value.shape) if value.shape else spaces.Discrete(2)
    least, most = (-np.inf, np.inf) if jnp.issubdtype(value.dtype, jnp.floating) else _limits(value.dtype)
    low, high = (np.asarray(getattr(spec, n, x), value.dtype) for n, x in (("minimum", least), ("maximum", most)))
    return spaces.Box(
        np.broadcast_to(low, value.shape), np.broadcast_to(high, value.shape), dtype=np.dtype(value.dtype).type
    )


def _limits(dtype: Any) -> tuple[int, int]:
    return np.iinfo(dtype).min, np.iinfo(dtype).max


@functools.cache
def _action_space(env: Any) -> spaces.Space:
    spec = env.action_spec
    shapes = _plain(jax.eval_shape(lambda key: env.reset(key)[1].observation, jax.random.key(0)))
    mask = shapes.get(MASK) if isinstance(shapes, dict) else None
    with jax.ensure_compile_time_eval():
        if hasattr(spec, "num_values"):
            counts = np.asarray(spec.num_values)
            if counts.ndim and (mask is None or mask.shape != tuple(counts)):
                return spaces.MultiDiscrete(counts)
            return spaces.Discrete(int(counts.prod()))
        low, high = (np.broadcast_to(np.asarray(x), spec.shape) for x in (spec.minimum, spec.maximum))
    if np.issubdtype(low.dtype, np.integer):  # MultiCVRP, which declares one action too many
        assert mask is not None
        return spaces.MultiDiscrete(np.full(spec.shape, mask.shape[-1]))
    return spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)


def _cast(space: spaces.Space, tree: PyTree) -> PyTree:
    """Return `tree`, an observation, in the dtypes of `space`."""
    if isinstance(space, spaces.Dict):
        return {name: _cast(inner, tree[name]) for name, inner in space.spaces.items()}
    dtype = jnp.int32 if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) else space.dtype
    return jnp.asarray(tree, dtype)
