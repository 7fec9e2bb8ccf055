"""Muon: momentum with orthogonalised updates of matrices. Jordan 2024, https://kellerjordan.github.io/posts/muon/"""

from __future__ import annotations

from typing import ClassVar

import optax

from ppax.types import Scalar, number, part, static


@part
class Muon:
    """Muon: momentum whose matrices are made orthogonal. Jordan et al. 2024, https://kellerjordan.github.io/posts/muon

    As `optax.contrib.muon`: leaves with two axes, the first and last layers' among them, by five Newton-Schulz steps;
    all others (biases, log standard deviations, convolutions) by Adam with Nesterov momentum.
    """

    beta: Scalar = number("decay of the momentum of matrices", default=0.95, low=0.0, high=1.0)
    weight_decay: Scalar = number("pull of matrices towards 0, times learning_rate", default=0.0, low=0.0)
    eps: Scalar = number("added to denominators", default=1e-8, above=0.0)
    adam_scale: Scalar = number("learning rate of all that is no matrix, over that of matrices", default=1.0, low=0.0)
    b1: Scalar = number("decay of the mean gradient of all that is no matrix", default=0.9, low=0.0, high=1.0)
    b2: Scalar = number("decay of its mean square", default=0.999, low=0.0, high=1.0)
    consistent_rms: Scalar | None = number(
        "root mean square of a step, over learning_rate; by default sqrt(max(1, outputs / inputs)) times orthogonal",
        default=None,
        above=0.0,
    )
    nesterov: bool = static("look ahead: one more step of momentum", default=True)

    elementwise: ClassVar[bool] = False

    def __call__(self, learning_rate: Scalar) -> optax.GradientTransformation:
        """The transformation for one learning rate."""
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
