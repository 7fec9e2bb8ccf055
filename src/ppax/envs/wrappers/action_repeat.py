"""Action repeat: each action is applied several times in a row, and the rewards are summed.

Mnih et al., "Human-level control through deep reinforcement learning", 2015, https://doi.org/10.1038/nature14236 (frame
skipping there; without the maximum over frames).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.arrays.sequences import where_rows
from ppax.core.types import EnvReset, EnvStep, Key, PyTree, part, static
from ppax.envs.wrappers.agent_groups import count_agents, where_agents
from ppax.envs.wrappers.wrapper import Wrapper


class ActionRepeatState(NamedTuple):
    """State of the environment whose actions are repeated, and which agents' episodes have ended."""

    inner: PyTree
    ended: Array  # [] or [A]


class _Repeats(NamedTuple):
    """Carry of the scan over repeats of an action: the accumulated result, and which agents' episodes have ended."""

    step: EnvStep
    ended: Array  # [] or [A]


@part
class ActionRepeat(Wrapper):
    """Wrapper of `env` that applies each action `repeats` times, or to the episode's end, as one step of the agent.

    A time limit inside this wrapper counts single steps; one around it counts steps of the agent. An agent whose
    episode ends between two repeats gets its final observation and no further reward; the other agents go on.
    """

    repeats: int = static("action repeat: environment steps for each action", low=1)

    def reset(self, key: Key) -> EnvReset:
        """Return a new episode of the inner environment."""
        start = self.env.reset(key)
        agents = () if self.num_agents is None else (count_agents(self.num_agents),)
        return start._replace(state=ActionRepeatState(start.state, jnp.zeros(agents, bool)))

    def step(self, state: ActionRepeatState, action: PyTree, key: Key) -> EnvStep:
        """Return the result of up to `repeats` steps of the inner environment with the same action.

        Rewards are summed, and flags stay once they are set.
        """

        def once(carry: _Repeats, repeat: Array) -> tuple[_Repeats, None]:
            before, ended = carry
            now = self.env.step(before.state, action, jax.random.fold_in(key, repeat))
            earlier = ended & (repeat > 0)
            now = now._replace(
                # freeze the state after the episode's end, to keep the final observation
                state=where_rows(ended.all(), before.state, now.state),
                obs=where_agents(self.num_agents, earlier, before.obs, now.obs),
                reward=before.reward + jnp.where(ended, 0.0, now.reward),
                terminated=before.terminated | (now.terminated & ~ended),
                truncated=before.truncated | (now.truncated & ~ended),
                action_mask=where_agents(self.num_agents, earlier, before.action_mask, now.action_mask),
                global_state=where_rows(earlier.all(), before.global_state, now.global_state),
                metrics=jax.tree.map(partial(_kept, earlier), before.metrics, now.metrics),
            )
            return _Repeats(now, ended | now.terminated | now.truncated), None

        shapes = jax.eval_shape(self.env.step, state.inner, action, key)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes._replace(state=()))
        start = _Repeats(zeros._replace(state=state.inner), state.ended)
        (step, ended), _ = jax.lax.scan(once, start, jnp.arange(self.repeats))
        return step._replace(state=ActionRepeatState(step.state, ended))


def _kept(earlier: Array, before: Array, now: Array) -> Array:
    """Return a metric of one of several repeats of an action: that of `before` where the episode had ended `earlier`.

    `earlier` is [A]; a metric [] is shared by all agents.
    """
    return jnp.where(earlier if now.ndim == earlier.ndim else earlier.all(), before, now)
