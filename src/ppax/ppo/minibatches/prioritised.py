"""Prioritised sampling of sequences by advantage, with importance weights.

Schaul et al. 2016, https://arxiv.org/abs/1511.05952 (eq. 3 and 4), with sequences and priorities as in PufferLib
(https://github.com/PufferAI/PufferLib) and JaxDEM. In expectation, samples with weight 1 / (S P) are uniform. In the
paper the weights multiply the whole loss; PufferLib and JaxDEM multiply the advantages alone, so that value loss and
entropy stay biased towards frequently drawn sequences (option `weighted`).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ppax.arrays.sequences import nearest_divisors
from ppax.core.types import Batch, ConfigError, Key, MinibatchIndices, Scalar, number, part, static

TINY = 1e-37  # lower bound of a probability: sequences of priority 0 are drawn last, in random order


@part
class Prioritised:
    """Prioritised sampling of sequences. Schaul et al. 2016, https://arxiv.org/abs/1511.05952

    Probability P_i = (sum_t |A_ti|)^alpha / sum over the S sequences;  importance weight w_i = (S P_i)^-beta.

    With `weighted = loss` and beta = 1, exact weights make the expected loss the mean over all valid rows of the
    rollout, for policy, value and entropy, unless advantages are standardised by minibatch or those of a whole sequence
    are 0. With invalid rows, w_i is also multiplied by (valid rows drawn / valid rows of a uniform draw)^beta.
    """

    alpha: Scalar = number(
        "priority exponent: 0: uniform; 1: in proportion to a sequence's sum of |advantage|", default=0.8, low=0.0
    )
    beta: Scalar = number(
        "importance weight exponent at the start: 0: no correction; 1: full correction",
        default=0.2,
        anneal_to="beta_end",
        low=0.0,
        high=1.0,
    )
    beta_end: Scalar = number(
        "importance weight exponent at the end of training; beta is annealed linearly", default=1.0, low=0.0, high=1.0
    )
    num_minibatches: int = static("minibatches per epoch: one gradient step each", default=4, low=1)
    minibatch_size: int | None = static(
        "sequences in a minibatch; default: all sequences / num_minibatches", default=None, low=1
    )
    replacement: bool = static("sample with replacement within a minibatch", default=False)
    weights: str = static(
        "importance weights: simple: (S P)^-beta; inclusion: from inclusion probabilities, exact without replacement",
        default="simple",
        choices=("simple", "inclusion"),
    )
    weighted: str = static(
        "term that the weights multiply: the whole loss (Schaul et al.) or the advantage alone (PufferLib, JaxDEM)",
        default="loss",
        choices=("loss", "advantage"),
    )

    def size(self, sequences: int) -> int:
        """Sequences in each minibatch; ConfigError if there are too few or if `weights` do not suit `replacement`."""
        if self.replacement and self.weights == "inclusion":
            raise ConfigError(
                'minibatch.weights = "inclusion" is for draws without replacement; with replacement = true the exact '
                'weights are weights = "simple"'
            )
        if self.minibatch_size is None:
            if sequences % self.num_minibatches:
                raise ConfigError(
                    f"num_minibatches = {self.num_minibatches} does not divide the {sequences} sequences of a rollout; "
                    + nearest_divisors(sequences, self.num_minibatches)
                    + "; or set minibatch_size"
                )
            return sequences // self.num_minibatches
        if self.minibatch_size > sequences and not self.replacement:
            raise ConfigError(
                f"minibatch_size = {self.minibatch_size}: a rollout has {sequences} sequences; "
                f"nearest valid value: {sequences}, or set replacement = true"
            )
        return self.minibatch_size

    def __call__(self, batch: Batch, key: Key) -> MinibatchIndices:
        """Draw indices and weights [num_minibatches, size] of sequences in `batch` [M, L], independent minibatches."""
        valid = batch.steps.valid
        chance = self.probabilities(batch.targets.advantage, valid)
        index, weight = self._draw(chance, key)
        if self.weighted == "advantage":
            return MinibatchIndices(index, advantage_weight=weight)
        counts = valid.sum(axis=1, dtype=jnp.float32)
        drawn = counts[index].mean(axis=1, keepdims=True) / jnp.maximum(counts.mean(), 1.0 / counts.shape[0])
        return MinibatchIndices(index, weight * drawn**self.beta)

    def _draw(self, chance: Array, key: Key) -> tuple[Array, Array]:
        """Indices and weights [num_minibatches, size] by probabilities `chance` [S]."""
        size = self.size(chance.shape[0])
        if self.replacement:
            index = jax.random.choice(key, chance.shape[0], (self.num_minibatches, size), p=chance).astype(jnp.int32)
            return index, self._weights(chance)[index]
        keys = jax.random.split(key, self.num_minibatches)
        index, inclusion = jax.vmap(draw_distinct, (0, None, None))(keys, chance, size)
        if self.weights == "inclusion":
            # inclusion probability of a uniform draw: size / S
            return index, (inclusion * (chance.shape[0] / size)) ** -self.beta
        return index, self._weights(chance)[index]

    def probabilities(self, advantage: Array, valid: Array) -> Array:
        """Sampling probabilities P [M] from advantages [M, L]; uniform if all are 0, 0 for non-finite sequences."""
        total = jnp.abs(jnp.where(valid, advantage, 0.0)).sum(axis=1)
        finite = jnp.isfinite(total)
        top = jnp.max(total, where=finite, initial=0.0)
        share = jnp.where(top > 0.0, total / jnp.where(top > 0.0, top, 1.0), 1.0)  # relative: no power overflows
        priority = jnp.where(finite, share**self.alpha, 0.0)
        priority = jnp.where(finite.any(), priority, 1.0)
        return priority / priority.sum()

    def _weights(self, chance: Array) -> Array:
        """Importance weights (S P)^-beta, [M]; 0 where P is 0 (such a sequence is drawn only if no other is left)."""
        return jnp.where(chance > 0.0, (chance.shape[0] * chance) ** -self.beta, 0.0)


def draw_distinct(key: Key, chance: Array, size: int) -> tuple[Array, Array]:
    """Sample `size` distinct indices by probabilities `chance` [S]; return them with their inclusion probabilities.

    Gumbel top-k: Kool et al. 2019, https://arxiv.org/abs/1903.06059. Inclusion probabilities are conditional on the
    largest score that was left out; a mean over S weighted by their inverse is unbiased (section 4.2).
    """
    score = jnp.log(jnp.maximum(chance, TINY))
    best, index = jax.lax.top_k(score + jax.random.gumbel(key, score.shape), min(size + 1, score.shape[0]))
    if size == score.shape[0]:
        return index, jnp.ones(size, score.dtype)
    return index[:size], -jnp.expm1(-jnp.exp(score[index[:size]] - best[size]))
