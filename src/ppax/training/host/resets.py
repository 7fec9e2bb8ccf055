"""Start of a rollout on host environments: go on from their present state, or reset them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ppax.core.protocols import Agent
from ppax.core.types import ActorState, Key, PyTree
from ppax.envs import EnvError, HostEnv
from ppax.envs.hosting.arrays import each_group, element_of
from ppax.envs.hosting.host_env import reset_seeds
from ppax.envs.hosting.stepper import HostStep
from ppax.training.host.rows import stream_name, streams_like


def reset_if_needed(agent: Agent, env: HostEnv, actor: ActorState, key: Key) -> ActorState:
    """Return `actor` if the environments are in its state; else reset them and return the state after the reset.

    Seeds of the reset come from `key`. Raises EnvError if the reset fails, after closing the environments.
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
    """Raise EnvError if an observation after a reset is not finite."""
    obs = element_of(env.observation_space, iter(initial.obs))
    for leaf, streams in zip(initial.obs, streams_like(env, obs), strict=True):
        if leaf.dtype.kind == "f" and not (finite := np.isfinite(leaf).reshape(len(leaf), -1).all(axis=-1)).all():
            stream = int(np.arange(env.num_streams)[streams][np.argmin(finite)])
            raise EnvError(f"{stream_name(env, stream)}: its observation is not finite after its reset")


def _joined(parts: Sequence[HostStep]) -> HostStep:
    """Concatenate the results of all batches, as copies."""
    obs = [np.concatenate(x) for x in zip(*(part.obs for part in parts), strict=True)]
    reward, terminated, truncated, first, valid = (np.concatenate([part[i] for part in parts]) for i in range(1, 6))
    mask = each_group(lambda *masks: np.concatenate(masks), *(part.mask for part in parts))
    return HostStep(obs, reward, terminated, truncated, first, valid, mask)


def _pairs(leaves: Sequence[np.ndarray], tree: PyTree) -> Any:
    return zip(leaves, map(np.asarray, jax.tree.leaves(tree)), strict=True)
