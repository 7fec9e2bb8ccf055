"""Optimisers as parts: learning rate -> an optax transformation, rebuilt inside each update.

So the learning rate and every other number stay leaves, and the optimiser's state holds moments only. Where
`elementwise` is True the transformation may see all parameters as one vector; otherwise it gets the tree.
"""

from __future__ import annotations

import optax

from ppax.optimizers.actor_critic import ActorCritic, check_groups
from ppax.types import Optimizer, Scalar


def clipped(
    optimizer: Optimizer, learning_rate: Scalar, max_grad_norm: Scalar | None, num_epochs: int
) -> optax.GradientTransformationExtraArgs:
    """The transformation of `optimizer` behind a clip by global norm; it is told the number of each epoch, `epoch`.

    Raises ConfigError where what the agent says of both groups contradicts what the optimiser says of one.
    """
    if isinstance(optimizer, ActorCritic):
        check_groups(optimizer, max_grad_norm, num_epochs)
    steps = optimizer(learning_rate)
    if max_grad_norm is not None:
        steps = optax.chain(optax.clip_by_global_norm(max_grad_norm), steps)
    return optax.with_extra_args_support(steps)
