"""Adapter for Jumanji, https://github.com/instadeepai/jumanji (Bonnet et al. 2024, https://arxiv.org/abs/2306.09884).

Observations become dicts, `action_mask` is taken out of them. Where a mask is over the product of several choices
(BinPack, Tetris), the action is one Discrete over that product; where it is for each choice alone (Connector, JobShop),
a MultiDiscrete. Several agents are played as one, who earns the sum of their rewards.

At its time limit Jumanji nearly always says that the episode has ended for good, and it is left at that: the limit is
part of the task there, and all but PacMan observe the time.
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

from ppax.envs.suites.common import known, library, strong
from ppax.types import Environment, EnvReset, EnvStep, Key, PyTree, part, static

MASK = "action_mask"
AMOUNTS = ("step_count",)  # declared as a choice of thousands


@part
class Jumanji:
    """One Jumanji environment. Make it with `load`, not by hand."""

    env: Any = static(doc="Jumanji's own environment")

    num_agents = None  # no agent axis

    @property
    def observation_space(self) -> spaces.Space:
        """A Dict of what Jumanji calls the fields of an observation."""
        return _observation_space(self.env)

    @property
    def action_space(self) -> spaces.Space:
        """Discrete, MultiDiscrete or Box; see above."""
        return _action_space(self.env)

    def reset(self, key: Key) -> EnvReset:
        """Begin an episode."""
        state, begin = self.env.reset(key)
        return EnvReset(strong(state), *self._seen(begin.observation))

    def step(self, state: PyTree, action: Array, key: Key) -> EnvStep:
        """Advance by one step; what is random in it is drawn from the state's own key."""
        state, after = self.env.step(state, self._taken(action))
        obs, mask = self._seen(after.observation)
        over = jnp.asarray(after.last(), bool)
        terminated = over & (jnp.asarray(after.discount) == 0.0).all()
        reward = jnp.asarray(after.reward, jnp.float32).sum()
        return EnvStep(strong(state), obs, reward, terminated, over & ~terminated, mask)

    def _taken(self, action: Array) -> Array:
        """The action in Jumanji's own form."""
        spec, space = self.env.action_spec, self.action_space
        if spec.shape and isinstance(space, spaces.Discrete):
            action = jnp.stack(jnp.unravel_index(action, tuple(np.asarray(spec.num_values))))
        return jnp.asarray(action, spec.dtype)

    def _seen(self, observation: Any) -> tuple[PyTree, Array | None]:
        """The observation of its space, and the mask [n]."""
        tree = _plain(observation)
        mask = tree.pop(MASK, None) if isinstance(tree, dict) else None
        obs = _cast(self.observation_space, tree)
        return obs, None if mask is None else jnp.asarray(mask, bool).reshape(-1)


def load(env_id: str, **kwargs: Any) -> Environment:
    """The environment `env_id` ("Snake-v1"); `kwargs` go to `jumanji.make` and must be hashable.

    Raises ImportError without Jumanji, ConfigError for an unknown id.
    """
    return Jumanji(_make(known("jumanji", env_id, ids()), **kwargs))


def ids() -> list[str]:
    """All environments there are."""
    return sorted(library("jumanji", "jumanji").registered_environments())


@functools.cache
def _make(env_id: str, **kwargs: Any) -> Any:
    """One object for each configuration: Jumanji compares its environments by identity, and so does jit."""
    return library("jumanji", "jumanji").make(env_id, **kwargs)


# ---------------------------------------------------------------- spaces


def _fields(value: Any) -> dict[str, Any] | None:
    """The fields of a NamedTuple or dataclass; None for an array."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return dict(value._asdict())
    if dataclasses.is_dataclass(value) and not isinstance(value, Array | jax.ShapeDtypeStruct):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _plain(value: Any) -> Any:
    fields = _fields(value)
    return value if fields is None else {name: _plain(x) for name, x in fields.items()}


@functools.cache
def _observation_space(env: Any) -> spaces.Space:
    shapes = jax.eval_shape(lambda key: env.reset(key)[1].observation, jax.random.key(0))
    with jax.ensure_compile_time_eval():
        return _space(env.observation_spec, shapes)


def _space(spec: Any, value: Any, amount: bool = False) -> spaces.Space:
    """The space of `value`, whose dtypes are right, with the bounds that `spec` declares; no categories if `amount`."""
    fields = _fields(value)
    if fields is not None:
        inner = {name: x for name, x in fields.items() if name != MASK}
        return spaces.Dict({name: _space(getattr(spec, name), x, name in AMOUNTS) for name, x in inner.items()})
    if hasattr(spec, "num_values") and not amount:
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
    if np.issubdtype(low.dtype, np.integer):  # MultiCVRP, which declares one choice more than there is
        assert mask is not None
        return spaces.MultiDiscrete(np.full(spec.shape, mask.shape[-1]))
    return spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)


def _cast(space: spaces.Space, tree: PyTree) -> PyTree:
    """`tree` with the dtypes of `space`."""
    if isinstance(space, spaces.Dict):
        return {name: _cast(inner, tree[name]) for name, inner in space.spaces.items()}
    dtype = jnp.int32 if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) else space.dtype
    return jnp.asarray(tree, dtype)
