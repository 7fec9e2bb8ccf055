"""Activation regularisation: an L2 penalty on the features. Merity et al. 2017, https://arxiv.org/abs/1708.01009

The paper calls it AR. Here the mean square takes the place of the norm, so that `coef` does not depend on the width.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ppax.core.types import Scalar, number, part
from ppax.ppo.extension import Extension, Rows, Terms


@part
class FeatureNorm(Extension):
    """Penalty on large features: coef * mean square of the network's features, summed over those of actor and critic.

    Merity et al. 2017, https://arxiv.org/abs/1708.01009. A network of one module that returns (policy, value) has no
    other features than these outputs, which are then penalised.
    """

    coef: Scalar = number("weight of the features' mean square in the loss", default=1e-3, low=0.0)

    def terms(self, rows: Rows) -> Terms:
        """Return the penalty on large features for each row, [N]."""
        squares = [jnp.square(x).reshape(x.shape[0], -1).mean(axis=1) for x in jax.tree.leaves(rows.policy.features)]
        return Terms({"feature_norm_loss": self.coef * jnp.stack(squares).sum(axis=0)})
