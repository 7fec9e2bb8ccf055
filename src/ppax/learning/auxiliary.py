"""Auxiliary losses in an update: parameters of their own beside the network's, and further inputs of each row.

The learner keeps both apart, because acting, policies and exports need the network alone; an optimiser gets them as one
tree. A loss without parameters leaves all as it is.
"""

from __future__ import annotations

import dataclasses

import jax
from gymnasium import spaces

from ppax.learning.forward import in_float32
from ppax.protocols import AuxiliaryLoss, AuxiliaryModel, Network
from ppax.types import ConfigError, Key, LearnerState, Params, Rollout

NAME = "auxiliary"  # of these parameters among the network's
FOLDED = 2**32 - 4  # into a learner's key for their initial values


def init(loss: AuxiliaryLoss, network: Network, params: Params, observation_space: spaces.Space, key: Key) -> Params:
    """Initial parameters of `loss` beside those of the network, `params`; () if it has none."""
    if not isinstance(loss, AuxiliaryModel):
        return ()
    if not isinstance(params, dict) or NAME in params:
        raise ConfigError(
            f"auxiliary: {type(loss).__name__} has parameters of its own, beside those of the network: a dict without "
            f"the name {NAME!r}; rename that of your network"
        )
    return in_float32(loss.init(network, observation_space, jax.random.fold_in(key, FOLDED)))


def joined(params: Params, own: Params) -> Params:
    """Parameters of the network and those of the auxiliary loss as one tree."""
    return params | {NAME: own} if jax.tree.leaves(own) else params


def together(learner: LearnerState) -> LearnerState:
    """Learner whose `params` have those of the auxiliary loss, too."""
    return learner._replace(params=joined(learner.params, learner.auxiliary))


def apart(learner: LearnerState) -> LearnerState:
    """Inverse of `together`, after gradient steps."""
    if not jax.tree.leaves(learner.auxiliary):
        return learner
    rest = {name: x for name, x in learner.params.items() if name != NAME}
    return learner._replace(params=rest, auxiliary=learner.params[NAME])


def with_inputs(loss: AuxiliaryLoss, rollout: Rollout) -> Rollout:
    """Rollout with the further inputs of the loss in its steps."""
    if not isinstance(loss, AuxiliaryModel):
        return rollout
    return rollout._replace(steps=dataclasses.replace(rollout.steps, auxiliary=loss.inputs(rollout)))
