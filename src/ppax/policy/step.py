"""One step of a policy as a pure function, with parameters as an argument."""

from __future__ import annotations

from typing import Any, NamedTuple

from jax import Array

from ppax.core.protocols import Agent
from ppax.core.types import Key, PyTree
from ppax.policy.actor import Actor


class Stepped(NamedTuple):
    """Result of one step of all streams."""

    carry: PyTree  # [B, ...] memory after this observation; () if the policy has none
    action: PyTree  # [B, ...] as the environment takes it: clipped or squashed, with the starts of Discrete
    log_prob: Array  # [B] log-probability of the action as sampled, before clipping


def step(
    agent: Agent | Actor, learner: Any, carry: PyTree, obs: PyTree, first: Array, mask: PyTree | None, key: Key | None
) -> Stepped:
    """Act for all streams [B, ...]: the mode of the distribution without `key`, else a sample; `key` is [] or [B].

    Arguments are those of `Agent.act`; with groups they are dicts by group, except for `first` [B].
    """
    if key is None:
        out = agent.policy(learner, carry, obs, first, mask)
        action = out.distribution.mode()
        return Stepped(out.carry, out.distribution.env_action(action), out.distribution.log_prob(action))
    decision = agent.act(learner, carry, obs, first, mask, key)
    return Stepped(decision.carry, decision.env_action, decision.log_prob)
