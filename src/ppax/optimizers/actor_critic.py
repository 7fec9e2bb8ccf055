"""Separate optimisers for actor and critic."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax

from ppax.optimizers.adam import Adam
from ppax.types import ConfigError, Optimizer, Params, PyTree, Scalar, number, part, static


@part
class ActorCritic:
    """An optimiser, a learning rate, a clip and epochs of its own for the actor and for the critic, told apart by name.

    The agent's own `max_grad_norm` looks at the gradient of both together, also while one of them rests: set it to
    None to clip each alone. Epochs beyond a group's own leave its parameters and its optimiser as they are. A stop by
    `kl.target_kl` stops both. Not for networks whose actor and critic share parameters: they are refused.
    """

    actor: Optimizer = dataclasses.field(default=Adam(), metadata={"doc": "optimiser of the actor"})
    critic: Optimizer = dataclasses.field(default=Adam(), metadata={"doc": "optimiser of the critic"})
    actor_scale: Scalar = number("the actor's learning rate over the agent's", default=1.0, low=0.0)
    critic_scale: Scalar = number("the critic's learning rate over the agent's", default=1.0, low=0.0)
    actor_max_grad_norm: Scalar | None = number("bound on the norm of the actor's gradient", default=None, above=0.0)
    critic_max_grad_norm: Scalar | None = number("bound on the norm of the critic's gradient", default=None, above=0.0)
    actor_epochs: int | None = static(
        "passes over each rollout in which the actor learns, the first ones; by default all", default=None, low=1
    )
    critic_epochs: int | None = static(
        "passes over each rollout in which the critic learns, the first ones; by default all", default=None, low=1
    )
    actor_keys: tuple[str, ...] = static(
        "the actor's parameters, by top-level name; each that is there", default=("actor", "policy", "log_std")
    )
    critic_keys: tuple[str, ...] = static(
        "the critic's parameters, by top-level name; all must be there", default=("critic", "value")
    )

    elementwise: ClassVar[bool] = False

    def __call__(self, learning_rate: Scalar) -> optax.GradientTransformation:
        """The transformation for one learning rate."""
        actor, critic = self.actor(learning_rate * self.actor_scale), self.critic(learning_rate * self.critic_scale)
        if self.actor_max_grad_norm is not None:
            actor = optax.chain(optax.clip_by_global_norm(self.actor_max_grad_norm), actor)
        if self.critic_max_grad_norm is not None:
            critic = optax.chain(optax.clip_by_global_norm(self.critic_max_grad_norm), critic)
        actor, critic = _first_epochs(actor, self.actor_epochs), _first_epochs(critic, self.critic_epochs)
        return optax.partition({"actor": actor, "critic": critic}, self._owners)

    def _owners(self, params: Params) -> dict[str, Any]:
        """Whose each top-level entry of `params` is; ConfigError where that cannot be said."""
        there = tuple(params) if isinstance(params, dict) else ()
        missing = [key for key in self.critic_keys if key not in there]
        if missing:
            raise ConfigError(
                f"optimizer: the critic has no {_names(missing)} of its own among the parameters {_names(there)}; "
                "separate optimisers need separate networks: set network.shared = false, or optimizer.critic_keys"
            )
        unknown = [key for key in there if key not in self.actor_keys + self.critic_keys]
        if unknown:
            raise ConfigError(
                f"optimizer: whose are the parameters {_names(unknown)}? "
                "Name them in optimizer.actor_keys or optimizer.critic_keys"
            )
        both = [key for key in self.actor_keys if key in self.critic_keys]
        if both:
            raise ConfigError(f"optimizer: {_names(both)} stands in actor_keys and in critic_keys: leave it in one")
        return {key: "critic" if key in self.critic_keys else "actor" for key in there}


def _first_epochs(steps: optax.GradientTransformation, epochs: int | None) -> optax.GradientTransformation:
    """`steps` that rest, moments and all, from epoch number `epochs` on."""
    if epochs is None:
        return steps
    moving = optax.with_extra_args_support(steps)

    def update(gradient: Params, state: PyTree, params: Params | None = None, *, epoch: Any, **extra: Any) -> Any:
        after = moving.update(gradient, state, params, epoch=epoch, **extra)
        resting = jax.tree.map(jnp.zeros_like, after[0]), state
        return jax.tree.map(partial(jnp.where, epoch < epochs), after, resting)

    return optax.GradientTransformationExtraArgs(moving.init, update)


def check_groups(optimizer: ActorCritic, max_grad_norm: Scalar | None, num_epochs: int) -> None:
    """ConfigError where clips or epochs of the two groups contradict those of the agent."""
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
            f"num_epochs = {num_epochs}, which none stands for; nearest: num_epochs = {most}"
        )


def _or_none(value: int | None) -> str:
    return "none" if value is None else str(value)


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "(no dict)"
