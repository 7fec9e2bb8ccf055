"""Optimisers, one a file: learning rate -> optax.GradientTransformation."""

from ppax.ppo.optimizers.actor_critic import ActorCritic
from ppax.ppo.optimizers.adam import Adam
from ppax.ppo.optimizers.adamw import AdamW
from ppax.ppo.optimizers.base import clipped
from ppax.ppo.optimizers.from_optax import Optax, factory_of, find_factory, optax_class, public_name
from ppax.ppo.optimizers.muon import Muon
from ppax.ppo.optimizers.rmsprop import RMSProp
from ppax.ppo.optimizers.sgd import SGD

__all__ = [
    "SGD",
    "ActorCritic",
    "Adam",
    "AdamW",
    "Muon",
    "Optax",
    "RMSProp",
    "clipped",
    "factory_of",
    "find_factory",
    "optax_class",
    "public_name",
]
