"""Many copies of one environment as streams, with next-step autoreset.

The step after an episode's end ignores the action and returns the first observation of the next episode; that step is
not `valid`. So the final observation of an episode simply is the next observation, and V of it needs no special case.
An agent whose own episode ended while others play on is absent: its steps are not valid either, until all restart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from gymnasium import spaces
from jax import Array

from ppax.arrays import masks
from ppax.arrays.sequences import where_rows
from ppax.envs.hosting.arrays import in_32_bits
from ppax.envs.wrappers.agent_groups import Group, Grouped, count
from ppax.envs.wrappers.resets import fresh_resets
from ppax.envs.wrappers.team_view import TeamView
from ppax.types import Environment, EnvReset, EnvStep, Key, PyTree, VectorStep, part, static


class VectorState(NamedTuple):
    """Where all environments stand."""

    env: PyTree  # [E, ...]
    ended: Array  # [E, A] this agent's part of the running episode is over


@part
class VectorEnv:
    """`num_envs` copies of `env`; B = num_envs * num_agents streams."""

    env: Environment
    num_envs: int = static("copies that are stepped together", default=64, low=1)
    name: str = static("what `make` was asked for", default="")
    resets: Callable[[Environment, Array, Key], EnvReset] = static(default=fresh_resets)
    changed: tuple[str, ...] = static("numbers of `env` that `make` was told (params.py)", default=())
    options: tuple[tuple[str, Any], ...] = static("what `make` was told to load `env` with", default=())

    def __repr__(self) -> str:
        name = self.name or type(self.env).__name__
        agents = f" of {self.num_agents} agents" if self.num_agents > 1 else ""
        seen = f"observations {self.observation_space}, actions {self.action_space}"
        return f"VectorEnv({name}: {self.num_envs} environments{agents}, {seen})"

    @property
    def observation_space(self) -> spaces.Space:
        """Space of one stream's observation."""
        return self.env.observation_space

    @property
    def action_space(self) -> spaces.Space:
        """Space of one stream's action."""
        return self.env.action_space

    @property
    def actor_obs(self) -> tuple[str, ...]:
        """Entries of a Dict observation that are not for the critic alone; (): all."""
        inner = self.env.env if isinstance(self.env, Grouped) else self.env
        return inner.actor_obs if isinstance(inner, TeamView) else ()

    @property
    def num_agents(self) -> int:
        """Agents in each environment, 1 where there is no axis of them."""
        return count(self.env.num_agents)

    @property
    def sizes(self) -> tuple[tuple[str, int], ...]:
        """Name of each group of agents, and how many are in it; () where all are alike."""
        agents = self.env.num_agents
        return tuple(agents.items()) if isinstance(agents, dict) else ()

    @property
    def groups(self) -> dict[str, Group]:
        """What each group sees and does; {} where all are alike."""
        seen, done = self.observation_space, self.action_space
        return {name: Group(seen[name], done[name], size, self.actor_obs) for name, size in self.sizes}  # type: ignore[index]

    @property
    def num_streams(self) -> int:
        """B."""
        return self.num_envs * self.num_agents

    def reset(self, key: Key) -> tuple[VectorState, PyTree, PyTree | None]:
        """Begin everywhere: the state, observations [B, ...] and masks [B, n]; `key` as in `step`."""
        key = jax.random.split(key, self.num_envs) if key.ndim == 0 else key
        start = fresh_resets(self.env, jnp.ones(self.num_envs, bool), key)
        ended = jnp.zeros((self.num_envs, self.num_agents), bool)
        return (
            VectorState(start.state, ended),
            narrow(self._to_streams(start.obs)),
            self._to_masks(start.action_mask),
        )

    def step(self, state: VectorState, action: PyTree, key: Key) -> VectorStep:
        """One step of every stream, action [B, ...]; environments whose episode is over begin the next one.

        `key` is one for each environment, [E], or one from which those are made.
        """
        key = jax.random.split(key, self.num_envs) if key.ndim == 0 else key
        over = state.ended.all(axis=1)  # [E]
        taken = jax.vmap(self.env.step)(state.env, self._to_envs(action), key)
        stay = _seen(taken)
        now = jax.lax.cond(  # with few environments mostly nothing is over, and resets cost more than steps
            over.any(),
            # the same keys again: where an environment begins anew, its step is thrown away
            lambda: where_rows(over, _seen(self.resets(self.env, over, jax.random.clone(key))), stay),
            lambda: stay,
        )
        valid = ~state.ended  # [E, A]
        terminated, truncated = (x.reshape(valid.shape) & valid for x in (taken.terminated, taken.truncated))
        ended = (state.ended & ~over[:, None]) | terminated | truncated
        first = jnp.broadcast_to(over[:, None], valid.shape)
        reward = jnp.where(valid, taken.reward.reshape(valid.shape), 0.0).astype(jnp.float32)
        streams = self.num_streams
        return VectorStep(
            VectorState(now.state, ended),
            narrow(self._to_streams(now.obs)),
            reward.reshape(streams),
            terminated.reshape(streams),
            truncated.reshape(streams),
            valid.reshape(streams),
            first.reshape(streams),
            self._to_masks(now.action_mask),
        )

    def _to_streams(self, tree: PyTree) -> PyTree:
        """[E, A, ...] (or [E, ...] without an agent axis) to [B, ...]."""
        if self.env.num_agents is None:
            return tree
        return jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), tree)

    def _to_masks(self, mask: PyTree | None) -> PyTree | None:
        """Masks [B, n] in the layout of masks.py."""
        seen = self._to_streams(mask)
        if seen is None or not self.sizes:
            return masks.complete(self.action_space, seen, self.num_streams)
        return {
            name: masks.complete(one.action_space, seen.get(name), self.num_envs * one.num_agents)
            for name, one in self.groups.items()
        }

    def _to_envs(self, tree: PyTree) -> PyTree:
        """[B, ...] to what the environments take."""
        if self.env.num_agents is None:
            return tree
        return jax.tree.map(lambda x: x.reshape(self.num_envs, -1, *x.shape[1:]), tree)


def narrow(tree: PyTree) -> PyTree:
    """64-bit numbers in 32 bits: with JAX_ENABLE_X64 an environment that pins no dtypes gives them."""
    return jax.tree.map(lambda x: x.astype(in_32_bits(x.dtype)), tree)


def _seen(now: EnvReset | EnvStep) -> EnvReset:
    """What streams get to see of it."""
    return EnvReset(now.state, now.obs, now.action_mask)
