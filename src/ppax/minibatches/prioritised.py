"""Prioritised sequences: those with large advantages are drawn more often, and weigh less.

Schaul et al. 2016, https://arxiv.org/abs/1511.05952, with the segments and priorities of PufferLib and JaxDEM. In
expectation a draw with weight 1 / (S P) is a uniform one, as eq. 3 and 4 there have it. There the weights multiply the
whole update of a sample; PufferLib (https://github.com/PufferAI/PufferLib) and JaxDEM multiply the advantages alone, so
that value loss and entropy stay biased towards what is drawn often (`weighted`).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from ppax.arrays.sequences import nearest_divisors
from ppax.types import Batch, ConfigError, Key, MinibatchIndices, Scalar, number, part, static

TINY = 1e-37  # a sequence without priority comes after all that have one, in random order


@part
class Prioritised:
    """P_i = (sum_t |A_ti|)^alpha / sum over the S sequences;  importance weight w_i = (S P_i)^-beta.

    With `weighted = loss` and beta = 1, exact weights make the expected loss the mean over all valid rows of the
    rollout, for policy, value and entropy, if advantages are not standardised by minibatch and no sequence's are all 0.
    Where sequences have invalid rows, w_i is also multiplied by (valid rows drawn / valid rows of a uniform draw)^beta.
    """

    alpha: Scalar = number("0: all alike; 1: in proportion to the sum of |advantage|", default=0.8, low=0.0)
    beta: Scalar = number("how far weights make up for it, at first: 0: not; 1: fully", default=0.2, low=0.0, high=1.0)
    beta_end: Scalar = number(
        "beta at the end of training; it moves on a straight line", default=1.0, low=0.0, high=1.0
    )
    num_minibatches: int = static("gradient steps in one epoch", default=4, low=1)
    minibatch_size: int | None = static(
        "sequences in each; by default all of them over num_minibatches", default=None, low=1
    )
    replacement: bool = static("a sequence may be drawn more than once into a minibatch", default=False)
    weights: str = static(
        "simple: as above, exact with replacement; inclusion: exact without, from the chance to be among those drawn",
        default="simple",
        choices=("simple", "inclusion"),
    )
    weighted: str = static(
        "what the weights multiply: the whole loss, as Schaul et al.; or the advantage alone, as PufferLib and JaxDEM",
        default="loss",
        choices=("loss", "advantage"),
    )

    def anneal(self, progress: Array) -> Prioritised:
        """With beta as it is at this `progress` of training, in [0, 1]."""
        share = jnp.clip(progress, 0.0, 1.0)
        return dataclasses.replace(self, beta=self.beta + (self.beta_end - self.beta) * share)

    def size(self, sequences: int) -> int:
        """Sequences in each minibatch; ConfigError where there are too few, or where weights do not fit the draw."""
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
        """Indices and weights [num_minibatches, size] of sequences in `batch` [M, L]; minibatches are independent."""
        valid = batch.steps.valid
        chance = self.probabilities(batch.targets.advantage, valid)
        index, weight = self._draw(chance, key)
        if self.weighted == "advantage":
            return MinibatchIndices(index, advantage_weight=weight)
        counts = valid.sum(axis=1, dtype=jnp.float32)
        drawn = counts[index].mean(axis=1, keepdims=True) / jnp.maximum(counts.mean(), 1.0 / counts.shape[0])
        return MinibatchIndices(index, weight * drawn**self.beta)

    def _draw(self, chance: Array, key: Key) -> tuple[Array, Array]:
        """Indices and weights [num_minibatches, size] by chances [S]."""
        size = self.size(chance.shape[0])
        if self.replacement:
            index = jax.random.choice(key, chance.shape[0], (self.num_minibatches, size), p=chance).astype(jnp.int32)
            return index, self._weights(chance)[index]
        keys = jax.random.split(key, self.num_minibatches)
        index, inclusion = jax.vmap(draw_distinct, (0, None, None))(keys, chance, size)
        if self.weights == "inclusion":
            # a uniform draw would include each with chance size / S
            return index, (inclusion * (chance.shape[0] / size)) ** -self.beta
        return index, self._weights(chance)[index]

    def probabilities(self, advantage: Array, valid: Array) -> Array:
        """P [M] from advantages [M, L]: uniform where all are 0, never one that is not finite."""
        total = jnp.abs(jnp.where(valid, advantage, 0.0)).sum(axis=1)
        finite = jnp.isfinite(total)
        top = jnp.max(total, where=finite, initial=0.0)
        share = jnp.where(top > 0.0, total / jnp.where(top > 0.0, top, 1.0), 1.0)  # of the largest: no power overflows
        priority = jnp.where(finite, share**self.alpha, 0.0)
        priority = jnp.where(finite.any(), priority, 1.0)
        return priority / priority.sum()

    def _weights(self, chance: Array) -> Array:
        """(S P)^-beta [M]. Where P is 0 there is no advantage to weigh; such a sequence comes when no other is left."""
        return jnp.where(chance > 0.0, (chance.shape[0] * chance) ** -self.beta, 0.0)


def draw_distinct(key: Key, chance: Array, size: int) -> tuple[Array, Array]:
    """`size` distinct indices, drawn one after another by `chance` [S], and the probability that each is among them.

    Gumbel top-k: Kool et al. 2019, https://arxiv.org/abs/1903.06059. The probability is given the best that was left
    out; a mean over S estimated with its inverse is unbiased (there, section 4.2).
    """
    score = jnp.log(jnp.maximum(chance, TINY))
    best, index = jax.lax.top_k(score + jax.random.gumbel(key, score.shape), min(size + 1, score.shape[0]))
    if size == score.shape[0]:
        return index, jnp.ones(size, score.dtype)
    return index[:size], -jnp.expm1(-jnp.exp(score[index[:size]] - best[size]))
