"""RMSProp. Tieleman and Hinton 2012."""

from __future__ import annotations

from typing import ClassVar

import optax

from ppax.core.types import Scalar, number, part, static


@part
class RMSProp:
    """RMSProp as in PyTorch: g / (sqrt(v) + eps), v the decaying mean of g^2. Tieleman and Hinton 2012, lecture 6e."""

    decay: Scalar = number("decay rate of the mean squared gradient", default=0.99, low=0.0, high=1.0)
    eps: Scalar = number("epsilon: added to the root of the mean squared gradient", default=1e-5, above=0.0)
    momentum: Scalar = number(
        "momentum: share of the last update that is added to the next", default=0.0, low=0.0, high=1.0
    )
    centered: bool = static(
        "centred RMSProp: divide by the gradient's standard deviation instead of its root mean square", default=False
    )

    elementwise: ClassVar[bool] = True

    def __call__(self, learning_rate: Scalar) -> optax.GradientTransformation:
        """Transformation for one learning rate."""
        return optax.rmsprop(
            learning_rate,
            decay=self.decay,
            eps=self.eps,
            eps_in_sqrt=False,
            momentum=self.momentum,
            centered=self.centered,
        )
