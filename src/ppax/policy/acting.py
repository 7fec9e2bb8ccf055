"""The part of an agent and its learner that acting needs: current networks, parameters and statistics."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from ppax.core.protocols import Agent
from ppax.core.types import OF_LEARNING, LearnerState


class Acting(NamedTuple):
    """Agent without self-play, and the learner without what only learning reads."""

    agent: Agent
    learner: Any  # LearnerState with empty optimiser and reward statistics, or a dict of them by group


def acting(agent: Any, learner: Any) -> Acting:
    """Return the part of `agent` and `learner` that acting needs; leaves of `learner` may be anything."""
    if agent.pool is not None:  # self-play: the current learners act, as in evaluations
        agent, learner = agent.agent, learner.current
    return Acting(agent, jax.tree.map(_needed, learner, is_leaf=_is_learner))


def _needed(learner: LearnerState) -> LearnerState:
    """Return parameters, observation statistics and the critic's state."""
    return learner._replace(**OF_LEARNING)


def _is_learner(node: object) -> bool:
    return isinstance(node, LearnerState)
