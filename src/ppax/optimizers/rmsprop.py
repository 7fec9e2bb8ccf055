"""RMSProp. Tieleman and Hinton 2012."""

from __future__ import annotations

from typing import ClassVar

import optax

from ppax.types import Scalar, number, part, static


@part
class RMSProp:
    """g / (sqrt(v) + eps), v a decaying mean of g^2 from 0, as in PyTorch. Tieleman and Hinton 2012, lecture 6e."""

    decay: Scalar = number("decay of the mean squared gradient", default=0.99, low=0.0, high=1.0)
    eps: Scalar = number("added to the root of the mean square", default=1e-5, above=0.0)
    momentum: Scalar = number("share of the last step that is added to the next", default=0.0, low=0.0, high=1.0)
    centered: bool = static("by the gradient's variance instead of its mean square", default=False)

    elementwise: ClassVar[bool] = True

    def __call__(self, learning_rate: Scalar) -> optax.GradientTransformation:
        """The transformation for one learning rate."""
        return optax.rmsprop(
            learning_rate,
            decay=self.decay,
            eps=self.eps,
            eps_in_sqrt=False,
            momentum=self.momentum,
            centered=self.centered,
        )
