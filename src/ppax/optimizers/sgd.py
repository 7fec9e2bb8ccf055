"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from typing import ClassVar

import optax

from ppax.types import Scalar, number, part, static


@part
class SGD:
    """Gradient descent, with momentum: m <- g + mu m; step m, or g + mu m. Sutskever et al. 2013, PMLR 28:1139"""

    momentum: Scalar = number("mu: share of the last step's momentum that is kept", default=0.0, low=0.0, high=1.0)
    nesterov: bool = static("look ahead: one more step of momentum", default=False)

    elementwise: ClassVar[bool] = True

    def __call__(self, learning_rate: Scalar) -> optax.GradientTransformation:
        """The transformation for one learning rate."""
        return optax.sgd(learning_rate, momentum=self.momentum, nesterov=self.nesterov)
