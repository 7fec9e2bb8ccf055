"""V as one number, by least squares. Schulman et al. 2017, https://arxiv.org/abs/1707.06347

L^VF there, eq. 9, with the factor 1/2 that makes its slope the error.
"""

from __future__ import annotations

from typing import ClassVar

from jax import Array

from ppax.critics.base import Adapted, clipped_value_loss
from ppax.types import Metrics, PyTree, Scalar, number, part


@part
class Regression:
    """0.5 (V - R)^2, in units of the reward."""

    value_clip: Scalar | None = number(
        "how far V may move from the old V, in units of V, before its gradient stops", default=None, above=0.0
    )
    huber_delta: Scalar | None = number("V's error beyond which its loss is linear", default=None, above=0.0)

    num_values: ClassVar[int] = 1

    def init(self) -> Adapted:
        """Nothing is kept."""
        return Adapted((), None)

    def value(self, state: PyTree, numbers: Array) -> Array:
        """The only number."""
        return numbers[0]

    def error(self, state: PyTree, numbers: Array, target: Array, old_value: Array) -> Array:
        """The loss of one row."""
        return clipped_value_loss(numbers[0], target, old_value, self.value_clip, self.huber_delta)

    def update(self, state: PyTree, targets: Array, valid: Array) -> Adapted:
        """Nothing is learned of the targets' scale."""
        return Adapted(state, None)

    def metrics(self, state: PyTree, targets: Array, valid: Array) -> Metrics:
        """None."""
        return {}
