"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from typing import ClassVar

import optax

from ppax.core.types import Scalar, number, part, static


@part
class SGD:
    """Stochastic gradient descent with momentum. Sutskever et al. 2013, PMLR 28:1139

    m <- g + mu m; the update is m, or g + mu m with Nesterov momentum.
    """

    momentum: Scalar = number("momentum mu: decay rate of the momentum", default=0.0, low=0.0, high=1.0)
    nesterov: bool = static("Nesterov momentum", default=False)

    elementwise: ClassVar[bool] = True

    def __call__(self, learning_rate: Scalar) -> optax.GradientTransformation:
        """Transformation for one learning rate."""
        return optax.sgd(learning_rate, momentum=self.momentum, nesterov=self.nesterov)
