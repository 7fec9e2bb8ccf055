"""Ways to draw minibatches: one a file."""

from ppax.minibatches.shuffle import Shuffle

__all__ = ["Shuffle"]
