"""Plain minibatches: a fresh permutation of all sequences each epoch, each used exactly once."""

from __future__ import annotations

import jax
from jax import Array

from ppax.types import Batch, Key, part, static


@part
class Shuffle:
    """Every sequence once an epoch, in a fresh random order."""

    num_minibatches: int = static("gradient steps in one epoch", default=4, low=1)

    def __call__(self, batch: Batch, key: Key) -> Array:
        """Indices [num_minibatches, M / num_minibatches] of the sequences in `batch` [M, L]."""
        sequences = batch.steps.valid.shape[0]
        return jax.random.permutation(key, sequences).reshape(self.num_minibatches, -1)
