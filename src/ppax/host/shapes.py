"""Shapes and shardings of what the compiled program of a host run takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec

from ppax.envs import HostEnv
from ppax.envs.hosting.arrays import EpisodeStats
from ppax.host.collection import HostRollout
from ppax.host.rows import no_carry
from ppax.learning.exploration import remembered
from ppax.program import sharding
from ppax.program.sharding import AXIS, SAME, SPLIT
from ppax.protocols import Agent
from ppax.training import Trained, state_specs
from ppax.types import PyTree, TrainState


def argument_shapes(program: Callable[..., Trained], agent: Agent, env: HostEnv, state: TrainState) -> tuple[Any, ...]:
    """Return the shapes of the arguments of `program`, training.py's `_finish`, before any rollout."""
    actor, num_steps = state.actor, state.num_steps
    decision = jax.eval_shape(
        agent.act, state.learner, actor.carry, actor.obs, actor.first, actor.action_mask, state.key
    )

    def stack(tree: PyTree, count: int) -> PyTree:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct((count, *x.shape), x.dtype), tree)

    obs, first, mask = stack((actor.obs, actor.first, actor.action_mask), num_steps + 1)
    flag, number = stack((actor.first, actor.reward_trace), num_steps)
    memory = remembered(actor.carry)
    carry = stack(memory, num_steps // agent.sequence_length(num_steps)) if jax.tree.leaves(memory) else no_carry(env)
    final_value = number if env.host.has_final_obs else None
    episode_stats = EpisodeStats(number, flag) if env.host.spec.has_episode_stats else None
    steps = (stack(decision.action, num_steps), number, flag, flag, flag, final_value, episode_stats)
    metrics = dict.fromkeys(env.host.spec.metrics, number)
    rollout = HostRollout(obs, first, mask, *steps, carry, actor.carry, metrics, actor.env_state)
    arguments = agent, np.int32(1), env, state, actor, rollout
    totals = jax.eval_shape(program, *arguments, None, state.learner).metrics
    return *arguments, totals, state.learner


def rollout_specs() -> HostRollout:
    """Sharding specs of a rollout: by stream."""
    steps = PartitionSpec(None, AXIS)
    specs: dict[str, Any] = dict.fromkeys(HostRollout._fields, steps) | {"last_carry": SPLIT, "env_state": SPLIT}
    return HostRollout(**specs)


def argument_shardings(state: TrainState, devices: int) -> Any:
    """Return the shardings of the program's arguments; None for one device."""
    if devices == 1:
        return None
    return sharding.shardings((SAME, SAME, None, state_specs(state), SPLIT, rollout_specs(), SAME, SAME), devices)
