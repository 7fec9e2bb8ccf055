"""Optimisers, one a file: learning rate -> optax.GradientTransformation."""

from ppax.optimizers.actor_critic import ActorCritic
from ppax.optimizers.adam import Adam
from ppax.optimizers.adamw import AdamW
from ppax.optimizers.base import clipped
from ppax.optimizers.from_optax import Optax, factory_of, find_factory, optax_class, public_name
from ppax.optimizers.muon import Muon
from ppax.optimizers.rmsprop import RMSProp
from ppax.optimizers.sgd import SGD

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
