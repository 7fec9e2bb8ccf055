"""Optimisers as parts: learning rate -> optax.GradientTransformation, rebuilt inside each update.

The learning rate and all other numbers therefore stay leaves, and the optimiser's state holds moments only. If
`elementwise` is True, the transformation gets the flattened parameter vector; otherwise the parameter tree.
"""

from __future__ import annotations

import optax

from ppax.core.protocols import Optimizer
from ppax.core.types import Scalar
from ppax.ppo.optimizers.actor_critic import ActorCritic, check_groups


def clipped(
    optimizer: Optimizer, learning_rate: Scalar, max_grad_norm: Scalar | None, num_epochs: int
) -> optax.GradientTransformationExtraArgs:
    """Gradient clipping by global norm, then `optimizer`; `update` takes the extra argument `epoch`.

    Raises ConfigError if clips or epochs of actor and critic contradict those of the agent.
    """
    if isinstance(optimizer, ActorCritic):
        check_groups(optimizer, max_grad_norm, num_epochs)
    steps = optimizer(learning_rate)
    if max_grad_norm is not None:
        steps = optax.chain(optax.clip_by_global_norm(max_grad_norm), steps)
    return optax.with_extra_args_support(steps)
