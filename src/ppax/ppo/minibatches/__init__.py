"""Minibatch samplers, one a file."""

from ppax.ppo.minibatches.prioritised import Prioritised
from ppax.ppo.minibatches.shuffle import Shuffle

__all__ = ["Prioritised", "Shuffle"]
