"""Adam. Kingma and Ba 2015, https://arxiv.org/abs/1412.6980"""

from __future__ import annotations

from typing import ClassVar

import optax

from ppax.core.types import Scalar, number, part


@part
class Adam:
    """Adam. Kingma and Ba 2015, https://arxiv.org/abs/1412.6980"""

    b1: Scalar = number("Adam beta1: decay rate of the mean gradient", default=0.9, low=0.0, high=1.0)
    b2: Scalar = number("Adam beta2: decay rate of the mean squared gradient", default=0.999, low=0.0, high=1.0)
    eps: Scalar = number("Adam epsilon: added to the root of the mean squared gradient", default=1e-5, above=0.0)

    elementwise: ClassVar[bool] = True  # works on the flattened parameter vector

    def __call__(self, learning_rate: Scalar) -> optax.GradientTransformation:
        """Transformation for one learning rate."""
        return optax.adam(learning_rate, b1=self.b1, b2=self.b2, eps=self.eps)
