"""Minibatch samplers, one a file."""

from ppax.minibatches.prioritised import Prioritised
from ppax.minibatches.shuffle import Shuffle

__all__ = ["Prioritised", "Shuffle"]
