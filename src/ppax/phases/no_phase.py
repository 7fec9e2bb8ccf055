"""No auxiliary phase."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from ppax.arrays.metrics import Table
from ppax.protocols import Phased
from ppax.types import Batch, Key, LearnerState, PyTree, Scalar, part


@part
class NoPhase:
    """No auxiliary phase: the gradient steps of PPO's objective only."""

    def init(self, agent: Any, observation_space: spaces.Space, key: Key) -> PyTree:
        """Return no state."""
        return ()

    def rescale_value(self, state: PyTree, scale: Scalar, shift: Scalar) -> PyTree:
        """Return the state as it is: there is no value head."""
        return state

    def __call__(self, agent: Any, learner: LearnerState, batch: Batch) -> Phased:
        """Return the learner as it is, so that the program is the same as without this part."""
        return Phased(learner, Table({}))
