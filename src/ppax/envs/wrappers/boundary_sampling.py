"""Boundary sampling of automatic domain randomisation (ADR), which sets one parameter to an end of its range.

It is done in a share of the episodes, because ADR measures the policy at the ends. Akkaya et al. 2019,
https://arxiv.org/abs/1910.07113, algorithms 1 and 2.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.protocols import Environment
from ppax.core.types import ConfigError, EnvReset, EnvStep, Key, PyTree, Scalar, part, static
from ppax.envs.wrappers.agent_groups import count_agents
from ppax.envs.wrappers.wrapper import Wrapper

EPISODE_RETURN = "episode_return"


class BoundarySamplingState(NamedTuple):
    """State of the environment with drawn parameters, the end of a range at which the episode is, and its return.

    `end` is 2 i if parameter i is at its lower end, 2 i + 1 if it is at its upper end, and 2 d if none of the d
    parameters is at an end on purpose. The return is that of the episode so far, [] or one number for each agent.
    """

    inner: Any  # params.RandomisedState
    end: Array  # [] int32, 2i: lower end of the number i, 2i + 1: its upper end; 2d: none
    episode_return: Array  # [] or [A]


@part
class BoundarySampling(Wrapper):
    """Wrapper of `env`, which draws parameters at resets: in a `share` of episodes one of them is an end of its range.

    This is the boundary sampling of automatic domain randomisation (ADR), which measures the policy at the ends. For
    each end of a range there are two metrics, whose values in the last steps of episodes are summed over a rollout: the
    performance in an episode at this end (`total_name`), and 1, which counts the episode (`count_name`). Performance is
    the undiscounted return, or the environment's metric of the name `metric`; with an agent axis, that of each agent.
    If ADR moves an end of a range during an episode that is played at this end, the episode is not counted.
    """

    env: Any  # Randomised
    share: Scalar = dataclasses.field(metadata={"parameters": ()})
    names: tuple[str, ...] = static()  # [d] numbers whose ends are visited
    metric: str = static()

    def reset(self, key: Key) -> EnvReset:
        """Return a new episode in which one parameter may be at an end of its range.

        All other parameters are drawn from their ranges.
        """
        end_key, reset_key = jax.random.split(key)
        none = 2 * len(self.names)
        end = jnp.minimum(jax.random.uniform(end_key, (), jnp.float32) / self.share * none, none).astype(jnp.int32)
        low, high = dict(self.env.low), dict(self.env.high)
        for i, name in enumerate(self.names):
            low[name] = jnp.where(end == 2 * i + 1, self.env.high[name], self.env.low[name])
            high[name] = jnp.where(end == 2 * i, self.env.low[name], self.env.high[name])
        start: EnvReset = dataclasses.replace(self.env, low=low, high=high).reset(reset_key)
        agents = () if self.num_agents is None else (count_agents(self.num_agents),)
        return start._replace(state=BoundarySamplingState(start.state, end, jnp.zeros(agents, jnp.float32)))

    def inside(self, state: BoundarySamplingState) -> tuple[Environment, PyTree]:
        """Return the inner environment and its state."""
        return self.env, state.inner

    def step(self, state: BoundarySamplingState, action: PyTree, key: Key) -> EnvStep:
        """Return the result of one step of the inner environment, with two metrics for each end of a range.

        For the end at which this episode is played, they are, in every step, the performance (the undiscounted return
        so far, or the environment's metric of the name `metric`) and 1; for all other ends they are 0. Episode
        statistics use their values in an episode's last step only.
        """
        step: EnvStep = self.env.step(state.inner, action, key)
        so_far = state.episode_return + jnp.asarray(step.reward, jnp.float32)
        performance = so_far if self.metric == EPISODE_RETURN else self._metric(step)
        metrics = dict(step.metrics)
        for end, (name, value) in enumerate(self._ends()):
            counts = (state.end == end) & (state.inner.numbers[name] == value)
            metrics[total_name(end)] = jnp.where(counts, performance, 0.0)
            metrics[count_name(end)] = jnp.where(counts, jnp.ones_like(performance), 0.0)
        return step._replace(state=BoundarySamplingState(step.state, state.end, so_far), metrics=metrics)

    def _ends(self) -> Iterator[tuple[str, Scalar]]:
        """Yield (name of the parameter, value) of every end of a range: of each parameter the lower, then the upper."""
        for name in self.names:
            for value in self.env.ends(name):
                yield name, value

    def _metric(self, step: EnvStep) -> Array:
        if self.metric not in step.metrics:
            known = ", ".join((EPISODE_RETURN, *step.metrics))
            raise ConfigError(f"schedule.metric = {self.metric!r}: the environment has no such metric; it has {known}")
        return jnp.asarray(step.metrics[self.metric], jnp.float32)


def total_name(end: int) -> str:
    """Return the name of the metric that sums the policy's performance at one end of a parameter's range.

    `end` is 2 i for the lower end of parameter i and 2 i + 1 for its upper end. The name has slashes, which the names
    of an environment's own metrics never have.
    """
    return f"ends/total/{end}"


def count_name(end: int) -> str:
    """Return the name of the metric that counts the episodes at one end of a parameter's range.

    `end` is 2 i for the lower end of parameter i and 2 i + 1 for its upper end.
    """
    return f"ends/count/{end}"
