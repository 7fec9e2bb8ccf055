"""Rollouts of host environments: how they start, and how they are converted to those of `ppax.collect`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.core.protocols import Agent
from ppax.core.types import ActorState, Collected, Gathered, Key, LearnerState, PyTree, TrainState, Transition
from ppax.devices.tracing import renewed
from ppax.envs import HostEnv
from ppax.envs.hosting.arrays import each_group, element_of
from ppax.envs.hosting.faults import NotFiniteValue
from ppax.envs.hosting.host_env import reset_seeds
from ppax.envs.hosting.stepper import HostStep
from ppax.training.collection import Counts, StreamRows, count_step, with_last_value
from ppax.training.host.collection import HostRollout, not_finite_in
from ppax.training.host.policy import PolicyInputs
from ppax.training.host.streams import stream_name, streams_like
from ppax.training.host.tensor_collection import collector_of


class Rollouts:
    """Collector of rollouts in host environments: `state.num_steps` steps of all streams with the agent's policy.

    A stream is one agent in one environment.
    """

    def __init__(self, agent: Agent, env: HostEnv, state: TrainState):
        self._agent, self._env, self._state = agent, env, state
        self._policy, self._collect = collector_of(agent, env, state.learner)
        self._value, self._collected = jax.jit(renewed(value_of)), jax.jit(renewed(collected_from))

    def __call__(self, learner: LearnerState, actor: ActorState, key: Key) -> Gathered:
        """Return one rollout, collected with the policy of `learner`, and the actor states before and after it.

        Collection begins at `actor`; if the environments are in another state, as after a resume, they are reset first,
        and the state before the rollout is that after the reset. Raises EnvError if an environment fails; then all are
        closed.
        """
        agent, num_steps = self._agent, self._state.num_steps
        reset_key, act_key = jax.random.split(key)
        actor = reset_if_needed(agent, self._env, actor, reset_key)
        self._policy.begin(agent, learner, num_steps, act_key)
        length = agent.sequence_length(num_steps)
        rollout = self._collect(self._policy, self._value, self._env, actor, num_steps, length, (agent, learner))
        return Gathered(actor, self._collected(agent, learner, actor, rollout))


def reset_if_needed(agent: Agent, env: HostEnv, actor: ActorState, key: Key) -> ActorState:
    """Return `actor` if the environments are in its state; else reset them and return the state after the reset.

    Seeds of the reset come from the random key `key`. Raises EnvError if the reset fails, after closing the
    environments.
    """
    host = env.host
    if host.position and (np.asarray(actor.env_state) == host.position).all():
        last = _joined(host.last)
        if all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in _pairs(last.obs, actor.obs)):
            return actor
    try:
        initial = _joined(host.reset(reset_seeds(key, env.num_envs)))
        _check_initial(env, initial)
    except BaseException:
        env.close()
        raise
    zeros = np.zeros(env.num_streams, np.float32)
    fresh: dict[str, Any] = {
        "obs": element_of(env.observation_space, iter(initial.obs)),
        "first": initial.first,
        "action_mask": initial.mask,
        "carry": jax.tree.map(np.asarray, agent.start_carry(env.num_streams)),
        "episode_return": zeros,
        "episode_length": zeros.astype(np.int32),
        "reward_trace": zeros,
    }
    return actor._replace(**fresh)


def _check_initial(env: HostEnv, initial: HostStep) -> None:
    """Raise NotFiniteValue if an observation in `initial`, the result of a reset, is not finite."""
    obs = element_of(env.observation_space, iter(initial.obs))
    for leaf, streams in zip(initial.obs, streams_like(env, obs), strict=True):
        if leaf.dtype.kind == "f" and not (finite := np.isfinite(leaf).reshape(len(leaf), -1).all(axis=-1)).all():
            stream = int(np.arange(env.num_streams)[streams][np.argmin(finite)])
            value = not_finite_in(leaf[np.argmin(finite)])
            raise NotFiniteValue(f"{stream_name(env, stream)}: its observation is {value} after its reset")


def _joined(parts: Sequence[HostStep]) -> HostStep:
    """Return the step results `parts`, one for each batch of environments, joined to one result; arrays are copied."""
    obs = [np.concatenate(x) for x in zip(*(part.obs for part in parts), strict=True)]
    reward, terminated, truncated, first, valid = (np.concatenate([part[i] for part in parts]) for i in range(1, 6))
    mask = each_group(lambda *masks: np.concatenate(masks), *(part.mask for part in parts))
    return HostStep(obs, reward, terminated, truncated, first, valid, mask)


def _pairs(leaves: Sequence[np.ndarray], tree: PyTree) -> Any:
    return zip(leaves, map(np.asarray, jax.tree.leaves(tree)), strict=True)


def value_of(agent: Agent, learner: LearnerState, inputs: PolicyInputs) -> Array:
    """Return V [e] of the observations of a batch of e streams (one agent in one environment each)."""
    return agent.policy(learner, *inputs).value


def collected_from(agent: Agent, learner: LearnerState, actor: ActorState, rollout: HostRollout) -> Collected:
    """Return a host rollout that began at `actor`, in the form in which `ppax.collect` returns rollouts.

    V, log-probabilities and episode statistics, which the host loop does not record, are computed here; `learner` is
    the one that acted.
    """
    before, after = (jax.tree.map(lambda x, cut=cut: x[cut], rollout[:3]) for cut in (slice(-1), -1))
    unknown = jnp.zeros(rollout.valid.shape, jnp.float32)
    stored: dict[str, Any] = {name: getattr(rollout, name) for name in ("action", "terminated", "valid", "final_value")}
    steps = Transition(
        obs=before[0],
        log_prob=unknown,
        value=unknown,
        reward=jnp.where(rollout.valid, rollout.reward, 0.0),  # rewards of invalid steps are undefined
        truncated=rollout.truncated & ~rollout.terminated,
        first=before[1],
        action_mask=before[2],
        carry=rollout.carry,
        **stored,
    )
    value, log_prob = agent.evaluate_rollout(learner, steps)
    steps = dataclasses.replace(steps, value=value, log_prob=log_prob)

    discount, played = agent.discount(actor.first.shape[0]), rollout.played
    counted: Any = steps if played is None else played
    inputs: Any = counted.reward, counted.ended, counted.valid, rollout.episode_stats

    def count(actor: ActorState, step: Any) -> tuple[ActorState, Counts]:
        # from one decision to the next of the same stream
        gamma = discount if played is None else jnp.where(step[2], discount, 1.0)
        return count_step(gamma, actor, *step)

    actor, counts = jax.lax.scan(count, actor, inputs)
    obs, first, mask = after
    ended_with: dict[str, Any] = {"env_state": rollout.env_state, "carry": rollout.last_carry}
    actor = actor._replace(obs=obs, first=first, action_mask=mask, **ended_with)
    over: Any = counted.ended if rollout.episode_stats is None else rollout.episode_stats.over
    over = over if rollout.logged is None else over & rollout.logged
    metrics = {name: jnp.where(over, x, 0.0) for name, x in rollout.metrics.items()}  # undefined in other steps
    if played is not None:
        counts = counts._replace(reward_trace=jnp.take_along_axis(counts.reward_trace, played.until, 0))
    collected = with_last_value(agent, learner, actor, StreamRows(steps, counts, metrics), over)
    return collected._replace(rollout=collected.rollout._replace(played=played))
