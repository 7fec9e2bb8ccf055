"""V as one value output, learned by least squares. Schulman et al. 2017, https://arxiv.org/abs/1707.06347

L^VF of eq. 9, times 1/2.
"""

from __future__ import annotations

from typing import ClassVar

from jax import Array

from ppax.core.protocols import Adapted
from ppax.core.types import Metrics, PyTree, Scalar, number, part
from ppax.ppo.critics.base import clipped_value_loss


@part
class Regression:
    """Least-squares critic: value loss 0.5 (V - R)^2; neither V nor its target R is normalised here.

    Schulman et al. 2017, https://arxiv.org/abs/1707.06347
    """

    value_clip: Scalar | None = number(
        "value clipping: clip range of V around the old V, in units of V; none: off", default=None, above=0.0
    )
    huber_delta: Scalar | None = number(
        "Huber loss: error of V beyond which the loss is linear; none: squared error", default=None, above=0.0
    )

    num_values: ClassVar[int] = 1

    def init(self) -> Adapted:
        """No state."""
        return Adapted((), None)

    def value(self, state: PyTree, value_outputs: Array) -> Array:
        """V: the single value output."""
        return value_outputs[0]

    def error(self, state: PyTree, value_outputs: Array, target: Array, old_value: Array) -> Array:
        """Value loss of one row."""
        return clipped_value_loss(value_outputs[0], target, old_value, self.value_clip, self.huber_delta)

    def update(self, state: PyTree, targets: Array, valid: Array) -> Adapted:
        """No change: there is no state to update."""
        return Adapted(state, None)

    def metrics(self, state: PyTree, targets: Array, valid: Array) -> Metrics:
        """No metrics."""
        return {}
