"""Auxiliary losses in an update and while acting: parameters, further inputs of each row, states of each stream.

The learner keeps their parameters and those of the network apart, because acting, policies and exports need the network
alone; an optimiser gets them as one tree. A loss without any of these leaves all as it is.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
from gymnasium import spaces
from jax import Array

from ppax.arrays.sequences import where_rows
from ppax.learning.batches import repeated
from ppax.learning.forward import in_float32
from ppax.losses import NoPolicyLoss
from ppax.protocols import AuxiliaryGuide, AuxiliaryLoss, AuxiliaryModel, AuxiliaryStreams
from ppax.types import ConfigError, Decision, Exploring, ForwardPass, Guide, Key, LearnerState, Params, PyTree, Rollout

NAME = "auxiliary"  # key of the auxiliary loss's parameters among those of the network
FOLDED = 2**32 - 4  # folded into a learner's key to initialise the auxiliary loss's parameters
GUIDED = 2**32 - 6  # folded into the keys of acting for the choice between policy and guide, and the guide's sample


def init(agent: Any, params: Params, observation_space: spaces.Space, key: Key) -> Params:
    """Initial parameters of the auxiliary loss of `agent` (a PPO), apart from the network's; () if it has none."""
    loss: AuxiliaryLoss = agent.auxiliary
    if guides(loss) and not isinstance(agent.loss, NoPolicyLoss):
        raise ConfigError(
            f"auxiliary.beta: some actions are the teacher's, whose probability ratio in {type(agent.loss).__name__} "
            'would be wrong; must be none, or with agent.loss = "none", in Python loss=ppax.losses.NoPolicyLoss()'
        )
    if not isinstance(loss, AuxiliaryModel):
        return ()
    if not isinstance(params, dict) or NAME in params:
        raise ConfigError(
            f"auxiliary: {type(loss).__name__} has parameters of its own; those of the network must be a dict without "
            f"the name {NAME!r}; rename that of your network"
        )
    return in_float32(loss.init(agent.network, observation_space, jax.random.fold_in(key, FOLDED)))


def joined(params: Params, own: Params) -> Params:
    """Parameters of the network and those of the auxiliary loss as one tree."""
    return params | {NAME: own} if jax.tree.leaves(own) else params


def together(learner: LearnerState) -> LearnerState:
    """Learner whose `params` include those of the auxiliary loss, for gradient steps."""
    return learner._replace(params=joined(learner.params, learner.auxiliary))


def apart(learner: LearnerState) -> LearnerState:
    """Inverse of `together`, after gradient steps."""
    if not jax.tree.leaves(learner.auxiliary):
        return learner
    rest = {name: x for name, x in learner.params.items() if name != NAME}
    return learner._replace(params=rest, auxiliary=learner.params[NAME])


class WithInputs(NamedTuple):
    """Rollout with the further inputs of an auxiliary loss in its steps, and the next state of its streams."""

    rollout: Rollout
    streams: PyTree  # [B, ...] the next `ActorState.auxiliary`; () if it has none


def with_inputs(loss: AuxiliaryLoss, rollout: Rollout) -> WithInputs:
    """Rollout with the further inputs of the loss in its steps, before gradient steps."""
    inputs: PyTree = ()
    streams: PyTree = ()
    if isinstance(loss, AuxiliaryModel):
        inputs = loss.inputs(rollout)
    elif isinstance(loss, AuxiliaryStreams):
        inputs, streams = loss.follow(rollout)
    else:
        return WithInputs(rollout, ())
    return WithInputs(rollout._replace(steps=dataclasses.replace(rollout.steps, auxiliary=inputs)), streams)


def initial_streams(loss: AuxiliaryLoss, num_streams: int) -> PyTree:
    """Initial state of the loss for each stream, [B, ...]; () if it has none."""
    return loss.initial_streams(num_streams) if isinstance(loss, AuxiliaryStreams) else ()


def guides(loss: AuxiliaryLoss) -> bool:
    """Whether the loss acts in the policy's place in some steps."""
    return isinstance(loss, AuxiliaryGuide) and loss.initial_guide(1) is not None


def with_guide(loss: AuxiliaryLoss, carry: PyTree, num_streams: int) -> PyTree:
    """Carry of a network for each stream, [B, ...], with the state of a loss that acts in its place in some steps."""
    carry = repeated(in_float32(carry), num_streams)
    guide = loss.initial_guide(num_streams) if isinstance(loss, AuxiliaryGuide) else None
    if guide is None:
        return carry
    return carry._replace(guide=guide) if isinstance(carry, Exploring) else Exploring(carry, (), guide)


def guided(
    loss: AuxiliaryLoss,
    policy: ForwardPass,
    decision: Decision,
    inputs: tuple[PyTree, Array, PyTree | None],
    key: Key,
) -> Decision:
    """Decision of `policy`, with the actions of an AuxiliaryGuide in steps where it acts; `key` is [] or [B].

    `inputs` are observations, `first` and action masks [B, ...]. Log-probabilities are those of the policy.
    """
    carry = decision.carry
    if not (isinstance(carry, Exploring) and isinstance(carry.guide, Guide) and isinstance(loss, AuxiliaryGuide)):
        return decision
    distribution, streams = policy.distribution, decision.value.shape[0]
    fold = partial(jax.random.fold_in, data=GUIDED)
    keys = jax.vmap(fold)(key) if key.ndim else jax.random.split(fold(key), streams)
    memory, acts, action = loss.act(carry.guide.memory, distribution, *inputs, keys)
    carry, action = carry._replace(guide=Guide(memory, acts)), where_rows(acts, action, decision.action)
    return Decision(carry, action, distribution.env_action(action), distribution.log_prob(action), decision.value)
