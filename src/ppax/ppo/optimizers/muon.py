"""Muon: momentum with orthogonalised updates of matrices. Jordan 2024, https://kellerjordan.github.io/posts/muon/"""

from __future__ import annotations

from typing import ClassVar

import optax

from ppax.core.types import Scalar, number, part, static


@part
class Muon:
    """Muon: momentum with orthogonalised updates of matrices. Jordan 2024, https://kellerjordan.github.io/posts/muon

    As `optax.contrib.muon`: leaves with two axes, first and last layers included, with five Newton-Schulz steps; all
    others (biases, log standard deviations, convolutions) with Adam and Nesterov momentum.
    """

    beta: Scalar = number("decay rate of the momentum of matrices", default=0.95, low=0.0, high=1.0)
    weight_decay: Scalar = number("weight decay of matrices, per unit of learning rate", default=0.0, low=0.0)
    eps: Scalar = number("epsilon: added to denominators", default=1e-8, above=0.0)
    adam_scale: Scalar = number(
        "learning rate of Adam (parameters that are not matrices) over that of matrices", default=1.0, low=0.0
    )
    b1: Scalar = number("beta1 of Adam, for parameters that are not matrices", default=0.9, low=0.0, high=1.0)
    b2: Scalar = number("beta2 of Adam, for parameters that are not matrices", default=0.999, low=0.0, high=1.0)
    consistent_rms: Scalar | None = number(
        "root mean square of a matrix update over learning_rate; none: scale by sqrt(max(1, outputs / inputs))",
        default=None,
        above=0.0,
    )
    nesterov: bool = static("Nesterov momentum", default=True)

    elementwise: ClassVar[bool] = False

    def __call__(self, learning_rate: Scalar) -> optax.GradientTransformation:
        """Transformation for one learning rate."""
        return optax.contrib.muon(
            learning_rate,
            beta=self.beta,
            eps=self.eps,
            weight_decay=self.weight_decay,
            nesterov=self.nesterov,
            adam_b1=self.b1,
            adam_b2=self.b2,
            adam_learning_rate=learning_rate * self.adam_scale,
            consistent_rms=self.consistent_rms,
        )
