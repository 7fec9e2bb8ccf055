"""Separate optimisers for actor and critic."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax

from ppax.core.parts import slot
from ppax.core.protocols import Optimizer
from ppax.core.types import ConfigError, Params, PyTree, Scalar, number, part, static
from ppax.ppo.optimizers.adam import Adam


@part
class ActorCritic:
    """Separate optimiser, learning rate, gradient clipping and number of epochs for actor and critic.

    Parameters belong to the actor or the critic by their top-level name. The agent's `max_grad_norm` clips the gradient
    of both together, also after the last epoch of one: set it to None to clip each alone. After its last epoch a
    group's parameters and optimiser state do not change. An early stop by `kl.target_kl` stops both. Raises ConfigError
    for networks whose actor and critic share parameters.
    """

    actor: Optimizer = slot("optimizer", "optimiser of the actor", default=Adam())
    critic: Optimizer = slot("optimizer", "optimiser of the critic", default=Adam())
    actor_scale: Scalar = number("ratio of the actor's learning rate to the agent's", default=1.0, low=0.0)
    critic_scale: Scalar = number("ratio of the critic's learning rate to the agent's", default=1.0, low=0.0)
    actor_max_grad_norm: Scalar | None = number(
        "gradient clipping of the actor: largest norm; none: off", default=None, above=0.0
    )
    critic_max_grad_norm: Scalar | None = number(
        "gradient clipping of the critic: largest norm; none: off", default=None, above=0.0
    )
    actor_epochs: int | None = static(
        "number of first epochs in which the actor learns; none: all num_epochs", default=None, low=1
    )
    critic_epochs: int | None = static(
        "number of first epochs in which the critic learns; none: all num_epochs", default=None, low=1
    )
    actor_keys: tuple[str, ...] = static(
        "top-level names of the actor's parameters; missing ones are ignored",
        default=("actor", "policy", "log_std", "extensions"),
    )
    critic_keys: tuple[str, ...] = static(
        "top-level names of the critic's parameters; all must exist", default=("critic", "value")
    )

    elementwise: ClassVar[bool] = False

    def __call__(self, learning_rate: Scalar) -> optax.GradientTransformation:
        """Transformation for one learning rate."""
        actor, critic = self.actor(learning_rate * self.actor_scale), self.critic(learning_rate * self.critic_scale)
        if self.actor_max_grad_norm is not None:
            actor = optax.chain(optax.clip_by_global_norm(self.actor_max_grad_norm), actor)
        if self.critic_max_grad_norm is not None:
            critic = optax.chain(optax.clip_by_global_norm(self.critic_max_grad_norm), critic)
        actor, critic = _first_epochs(actor, self.actor_epochs), _first_epochs(critic, self.critic_epochs)
        return optax.partition({"actor": actor, "critic": critic}, self._owners)

    def _owners(self, params: Params) -> dict[str, Any]:
        """Label "actor" or "critic" for each top-level name of `params`; ConfigError if a name has none or both."""
        names = tuple(params) if isinstance(params, dict) else ()
        missing = [key for key in self.critic_keys if key not in names]
        if missing:
            raise ConfigError(
                f"optimizer: the critic has no {_names(missing)} of its own among the parameters {_names(names)}; "
                "separate optimisers need separate networks: set network.shared = false, or optimizer.critic_keys"
            )
        unknown = [key for key in names if key not in self.actor_keys + self.critic_keys]
        if unknown:
            raise ConfigError(
                f"optimizer: the parameters {_names(unknown)} belong neither to the actor nor to the critic; "
                "name them in optimizer.actor_keys or optimizer.critic_keys"
            )
        both = [key for key in self.actor_keys if key in self.critic_keys]
        if both:
            raise ConfigError(
                f"optimizer: {_names(both)} is in actor_keys and in critic_keys; remove it from one of them"
            )
        return {key: "critic" if key in self.critic_keys else "actor" for key in names}


def _first_epochs(steps: optax.GradientTransformation, epochs: int | None) -> optax.GradientTransformation:
    """Transformation `steps` in the first `epochs` epochs; afterwards zero updates and an unchanged state."""
    if epochs is None:
        return steps
    active = optax.with_extra_args_support(steps)

    def update(gradient: Params, state: PyTree, params: Params | None = None, *, epoch: Any, **extra: Any) -> Any:
        after = active.update(gradient, state, params, epoch=epoch, **extra)
        frozen = jax.tree.map(jnp.zeros_like, after[0]), state
        return jax.tree.map(partial(jnp.where, epoch < epochs), after, frozen)

    return optax.GradientTransformationExtraArgs(active.init, update)


def check_groups(optimizer: ActorCritic, max_grad_norm: Scalar | None, num_epochs: int) -> None:
    """Raise ConfigError if clips or epochs of actor and critic contradict those of the agent."""
    own = [name for name in ("actor_max_grad_norm", "critic_max_grad_norm") if getattr(optimizer, name) is not None]
    if own and max_grad_norm is not None:
        raise ConfigError(
            f"optimizer.{own[0]}: the agent's max_grad_norm would clip the gradient of both groups together first; "
            'write max_grad_norm = "none" in [agent] (--agent.max-grad-norm none; None in Python) to clip each alone'
        )
    actor, critic = optimizer.actor_epochs, optimizer.critic_epochs
    most = max(num_epochs if epochs is None else epochs for epochs in (actor, critic))
    if most != num_epochs:
        raise ConfigError(
            f"optimizer.actor_epochs = {_or_none(actor)} and critic_epochs = {_or_none(critic)}: the larger must be "
            f"num_epochs = {num_epochs}, also the meaning of none; nearest: num_epochs = {most}"
        )


def _or_none(value: int | None) -> str:
    return "none" if value is None else str(value)


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "(no dict)"
