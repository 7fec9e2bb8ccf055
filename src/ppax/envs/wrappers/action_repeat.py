"""Action repeat as a part: each action is taken several times in a row, and their rewards are summed.

Mnih et al., "Human-level control through deep reinforcement learning", 2015, https://doi.org/10.1038/nature14236
(there: frame skipping, without the maximum over frames).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from gymnasium import spaces
from jax import Array

from ppax.arrays.sequences import where_rows
from ppax.envs.wrappers.agent_groups import count, where_agents
from ppax.types import Environment, EnvReset, EnvStep, Key, PyTree, part, static


class ActionRepeatState(NamedTuple):
    """The repeated environment's own state, and whose episode is over."""

    inner: PyTree
    ended: Array  # [] or [A]


class _Repeats(NamedTuple):
    """The step so far, and whose episode is over."""

    step: EnvStep
    ended: Array  # [] or [A]


@part
class ActionRepeat:
    """`env`, where each action is taken `repeats` times, or until the episode's end; together they are one step.

    A time limit inside counts single steps, one around it counts steps of the agent. An agent whose own episode ends
    between gets no reward from then on, and sees the observation of its end; its fellows play on.
    """

    env: Environment
    repeats: int = static("times that each action is taken", low=1)

    @property
    def observation_space(self) -> spaces.Space:
        """That of `env`."""
        return self.env.observation_space

    @property
    def action_space(self) -> spaces.Space:
        """That of `env`."""
        return self.env.action_space

    @property
    def num_agents(self) -> int | dict[str, int] | None:
        """That of `env`."""
        return self.env.num_agents

    def reset(self, key: Key) -> EnvReset:
        """Reset `env`."""
        start = self.env.reset(key)
        agents = () if self.num_agents is None else (count(self.num_agents),)
        return start._replace(state=ActionRepeatState(start.state, jnp.zeros(agents, bool)))

    def step(self, state: ActionRepeatState, action: PyTree, key: Key) -> EnvStep:
        """Take `action` up to `repeats` times; rewards are summed, flags stay once they are set."""

        def once(so_far: _Repeats, turn: Array) -> tuple[_Repeats, None]:
            before, ended = so_far
            now = self.env.step(before.state, action, jax.random.fold_in(key, turn))
            earlier = ended & (turn > 0)
            now = now._replace(
                # where the episode is over nothing moves, so that its end stays to be seen
                state=where_rows(ended.all(), before.state, now.state),
                obs=where_agents(self.num_agents, earlier, before.obs, now.obs),
                reward=before.reward + jnp.where(ended, 0.0, now.reward),
                terminated=before.terminated | (now.terminated & ~ended),
                truncated=before.truncated | (now.truncated & ~ended),
                action_mask=where_agents(self.num_agents, earlier, before.action_mask, now.action_mask),
                global_state=where_rows(earlier.all(), before.global_state, now.global_state),
            )
            return _Repeats(now, ended | now.terminated | now.truncated), None

        shapes = jax.eval_shape(self.env.step, state.inner, action, key)
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes._replace(state=()))
        begin = _Repeats(nothing._replace(state=state.inner), state.ended)
        (step, ended), _ = jax.lax.scan(once, begin, jnp.arange(self.repeats))
        return step._replace(state=ActionRepeatState(step.state, ended))
