"""Wrappers that limit or repeat steps: a limit that truncates episodes, and actions that are applied several times."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.arrays.sequences import where_rows
from ppax.core.protocols import Environment
from ppax.core.types import EnvReset, EnvStep, Key, PyTree, Scalar, number, part, static
from ppax.envs.hosting.time_limit import MOST_STEPS
from ppax.envs.wrappers.agent_groups import count_agents, where_agents
from ppax.envs.wrappers.wrapper import Wrapper

# Time limits: a wrapper that truncates the episodes of a compiled environment.
#
# Pardo et al., "Time Limits in Reinforcement Learning", 2018, https://arxiv.org/abs/1712.00378: a limit that is not
# part of the task must not be learned as a terminal state, so it never sets `terminated`.


class TimeLimitState(NamedTuple):
    """State of the environment with a time limit, and the length of its episode so far."""

    inner: PyTree
    elapsed: Array  # [] int32, steps since the reset


@part
class TimeLimit(Wrapper):
    """Wrapper of `env` that truncates after `max_steps` steps; a termination in that step sets both flags.

    Example of an environment of your own, a walk to the right over a distance of 10 (types from `ppax.core.types`):

        @ppax.part
        class Walk:
            observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
            action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
            num_agents = None

            def reset(self, key):
                place = jax.random.uniform(key, (1,))
                return EnvReset(place, place)

            def step(self, state, action, key):
                place = state + action
                return EnvStep(place, place, -jnp.ones(()), place[0] >= 10.0, jnp.zeros((), bool))

        env = VectorEnv(TimeLimit(Walk(), 50), num_envs=64)
    """

    # a leaf, so that evaluation can use another limit without recompilation
    max_steps: Scalar = number(
        "steps after which an episode is truncated", default=dataclasses.MISSING, low=1, high=MOST_STEPS
    )

    def reset(self, key: Key) -> EnvReset:
        """Return a new episode of the inner environment, of length 0 so far."""
        start = self.env.reset(key)
        return start._replace(state=TimeLimitState(start.state, jnp.zeros((), jnp.int32)))

    def inside(self, state: TimeLimitState) -> tuple[Environment, PyTree]:
        """Return the inner environment and its state."""
        return self.env, state.inner

    def step(self, state: TimeLimitState, action: PyTree, key: Key) -> EnvStep:
        """Return the result of a step of the inner environment, truncated if the episode has `max_steps` steps."""
        step = self.env.step(state.inner, action, key)
        elapsed = state.elapsed + 1
        return step._replace(
            state=TimeLimitState(step.state, elapsed),
            truncated=step.truncated | (elapsed >= self.max_steps),
        )


# Action repeat: each action is applied several times in a row, and the rewards are summed.
#
# Mnih et al., "Human-level control through deep reinforcement learning", 2015, https://doi.org/10.1038/nature14236
# (frame skipping there; without the maximum over frames).


class ActionRepeatState(NamedTuple):
    """State of the environment whose actions are repeated, and whether each agent's episode has ended, [] or [A].

    A is the number of agents; there is no agent axis in an environment of one agent.
    """

    inner: PyTree
    ended: Array  # [] or [A]


class _Repeats(NamedTuple):
    """Carry of the scan over repeats of an action: the result so far, and whether each agent's episode has ended."""

    step: EnvStep
    ended: Array  # [] or [A]


@part
class ActionRepeat(Wrapper):
    """Wrapper of `env` that applies each action `repeats` times, or until the episode ends, as one step of the agent.

    A time limit inside this wrapper counts single steps; one around it counts steps of the agent. An agent whose
    episode ends between two repeats gets its final observation and no further reward; the other agents go on.
    """

    repeats: int = static("action repeat: environment steps for each action", low=1)

    def reset(self, key: Key) -> EnvReset:
        """Return a new episode of the inner environment."""
        start = self.env.reset(key)
        agents = () if self.num_agents is None else (count_agents(self.num_agents),)
        return start._replace(state=ActionRepeatState(start.state, jnp.zeros(agents, bool)))

    def inside(self, state: ActionRepeatState) -> tuple[Environment, PyTree]:
        """Return the inner environment and its state."""
        return self.env, state.inner

    def step(self, state: ActionRepeatState, action: PyTree, key: Key) -> EnvStep:
        """Return the result of up to `repeats` steps of the inner environment with the same action.

        Rewards are summed; `terminated` and `truncated` are True if they were in one of these steps.
        """

        def once(carry: _Repeats, repeat: Array) -> tuple[_Repeats, None]:
            before, ended = carry
            now = self.env.step(before.state, action, jax.random.fold_in(key, repeat))
            earlier = ended & (repeat > 0)
            now = now._replace(
                # freeze the state after the episode's end, to keep the final observation
                state=where_rows(ended.all(), before.state, now.state),
                obs=where_agents(self.num_agents, earlier, before.obs, now.obs),
                reward=before.reward + jnp.where(ended, 0.0, jnp.asarray(now.reward, jnp.float32)),
                terminated=before.terminated | (now.terminated & ~ended),
                truncated=before.truncated | (now.truncated & ~ended),
                action_mask=where_agents(self.num_agents, earlier, before.action_mask, now.action_mask),
                global_state=where_rows(earlier.all(), before.global_state, now.global_state),
                metrics=jax.tree.map(partial(_kept, earlier), before.metrics, now.metrics),
            )
            return _Repeats(now, ended | now.terminated | now.truncated), None

        shapes = jax.eval_shape(self.env.step, state.inner, action, key)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes._replace(state=()))
        none = jnp.zeros(shapes.reward.shape, jnp.float32)  # the environment's rewards may be integers
        start = _Repeats(zeros._replace(state=state.inner, reward=none), state.ended)
        (step, ended), _ = jax.lax.scan(once, start, jnp.arange(self.repeats))
        return step._replace(state=ActionRepeatState(step.state, ended))


def _kept(earlier: Array, before: Array, now: Array) -> Array:
    """Return a metric after one repeat of an action: `now`, or `before` for agents whose episode has already ended.

    `now` is the metric's value after this repeat, and `before` its value after the previous repeat, [] or [A] for A
    agents. `earlier`, [] or [A], is a mask, True for agents whose episode ended before this repeat. A metric [] is
    shared by all agents: it is `before` only if the episodes of all agents have ended.
    """
    return jnp.where(earlier if now.ndim == earlier.ndim else earlier.all(), before, now)
