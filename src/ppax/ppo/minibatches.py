"""Minibatch samplers: parts that choose which sequences of a rollout each gradient step learns from."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.arrays.sequences import nearest_divisors
from ppax.core.types import Batch, ConfigError, Key, MinibatchIndices, Scalar, number, part, static

__all__ = ["Prioritised", "Shuffle", "ShuffleRows"]


SORT_BELOW = 256  # below this size a sort costs little, and all permutations are possible
ROUNDS = 8  # of the Feistel network


@part
class Shuffle:
    """Shuffled minibatches: every sequence once per epoch, in a new random order (or a fixed order: `shuffle`)."""

    num_minibatches: int = static("minibatches per epoch: one gradient step each", default=4, low=1)
    remainder: str = static(
        "if num_minibatches does not divide the number of sequences: error, or pad the smaller minibatches",
        default="error",
        choices=("error", "pad"),
    )

    shuffle: bool = static(
        "draw a new order in each epoch; otherwise take the sequences in order, stream by stream", default=True
    )

    def size(self, sequences: int, length: int = 1) -> int:
        """Return the number of sequences in each minibatch, padding included, of a rollout of `sequences` sequences.

        Raises ConfigError if the sequences cannot be divided into `num_minibatches`.
        """
        parts = self.num_minibatches
        if sequences % parts and (self.remainder == "error" or sequences < parts):
            raise ConfigError(
                f"num_minibatches = {parts} does not divide the {sequences} sequences of a rollout; "
                + nearest_divisors(sequences, parts)
                + ("" if sequences < parts else '; or set remainder = "pad"')
            )
        return -(-sequences // parts)

    def __call__(self, batch: Batch, key: Key) -> MinibatchIndices:
        """Return the sequences of every minibatch of an epoch, as indices [num_minibatches, size] into `batch` [M, L].

        The index M is padding: a sequence whose rows are all invalid.
        """
        sequences, parts = batch.steps.valid.shape[0], self.num_minibatches
        size = self.size(sequences)
        order = permutation(key, sequences) if self.shuffle else jnp.arange(sequences, dtype=jnp.int32)
        if size * parts == sequences:
            return MinibatchIndices(order.reshape(parts, size), None)
        # One padding index in each of the last minibatches: spread evenly, so that no minibatch is empty
        places = np.full((parts, size), sequences, np.int32)
        full = np.arange(parts) < parts - (size * parts - sequences)
        places[np.arange(size) < size - 1 + full[:, None]] = np.arange(sequences)
        return MinibatchIndices(jnp.append(order, sequences)[places], None)


@part
class ShuffleRows:
    """Shuffled minibatches of a fixed number of rows; a row is one step of one stream (an agent in an environment).

    Unlike with `Shuffle`, the size of a minibatch is an option, and stays the same when `num_envs` or `num_steps`
    change; the number of minibatches follows from the size.
    """

    rows: int = static("rows in a minibatch; must divide the rows of a rollout", default=256, low=1)
    shuffle: bool = static(
        "draw a new order in each epoch; otherwise take the sequences in order, stream by stream", default=True
    )

    num_minibatches: ClassVar[None] = None  # follows from the size of a rollout

    def size(self, sequences: int, length: int = 1) -> int:
        """Return the number of sequences of `length` steps in each minibatch of `rows` rows.

        Raises ConfigError if `rows` is no whole number of sequences, or does not divide the rows of a rollout.
        """
        total = sequences * length
        if self.rows % length or total % self.rows:
            whole = "" if length == 1 else f", of whole sequences of {length} steps"
            raise ConfigError(
                f"minibatch.rows = {self.rows} does not divide the {total} rows of a rollout{whole}; "
                + nearest_divisors(total, self.rows, length)
            )
        return self.rows // length

    def __call__(self, batch: Batch, key: Key) -> MinibatchIndices:
        """Return the sequences of every minibatch of an epoch, as indices [M * L / rows, rows / L] into `batch` [M, L].

        Raises ConfigError where the method `size` does.
        """
        sequences, length = batch.steps.valid.shape
        return Shuffle(sequences // self.size(sequences, length), shuffle=self.shuffle)(batch, key)


def permutation(key: Key, size: int) -> Array:
    """Random permutation of 0 .. size-1, [size] int32.

    A large permutation is made by a Feistel network, which maps indices one to one (Luby and Rackoff 1988,
    https://doi.org/10.1137/0217022): sorting random numbers would take up to a third of an iteration on a CPU.
    """
    if size < SORT_BELOW:
        return jax.random.permutation(key, jnp.arange(size, dtype=jnp.int32))
    bits = (size - 1).bit_length()
    data = jax.random.key_data(key)  # hash its bits: jax.random would compile a dozen kernels more
    keys = _hash(_hash(data[0] + jnp.arange(ROUNDS, dtype=jnp.uint32)) + data[-1])

    def scramble(x: Array) -> Array:
        """Return integers `x` below 2^bits, permuted among all such integers by a Feistel network.

        Each round xors one half of the bits with a hash of the other half.
        """
        high, low = bits // 2, bits - bits // 2
        left, right = x >> low, x & jnp.uint32(2**low - 1)
        for i in range(ROUNDS):
            left, right = right, left ^ (_hash(right ^ keys[i]) & jnp.uint32(2**high - 1))
            high, low = low, high
        return (left << low) | right

    # Cycle walking: scramble results >= size again until all are below it; a bijection of 0 .. size-1
    return jax.lax.while_loop(
        lambda x: (x >= size).any(),
        lambda x: jnp.where(x >= size, scramble(x), x),
        scramble(jnp.arange(size, dtype=jnp.uint32)),
    ).astype(jnp.int32)


def _hash(x: Array) -> Array:
    """Return a hash of each 32-bit integer in `x`; every bit of a hash depends on every bit of the integer."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


TINY = 1e-37  # lower bound of a probability: sequences of priority 0 are drawn last, in random order


@part
class Prioritised:
    """Prioritised sampling of sequences. Schaul et al. 2016, https://arxiv.org/abs/1511.05952, eq. 3 and 4, with
    sequences and priorities as in PufferLib (https://github.com/PufferAI/PufferLib) and JaxDEM.

    Probability P_i = (sum_t |A_ti|)^alpha / (sum of this over all S sequences); importance weight w_i = (S P_i)^-beta.

    With `weighted = loss`, beta = 1 and exact weights (`weights = inclusion`, or `simple` with replacement), the
    expected loss is the mean over all valid rows of the rollout, for policy, value and entropy. This does not hold if
    advantages are standardised by minibatch, or if all advantages of a sequence are 0. PufferLib and JaxDEM multiply
    the advantages alone, so that value loss and entropy stay biased towards frequently drawn sequences (`weighted =
    advantage`). With `weighted = loss`, the weights of a minibatch are also multiplied by (mean number of valid rows in
    its sequences / mean number of valid rows in all S sequences)^beta, which is 1 if all rows are valid.
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

    def size(self, sequences: int, length: int = 1) -> int:
        """Return the number of sequences in each prioritised minibatch of a rollout of `sequences`.

        Raises ConfigError if the rollout has too few sequences, if `num_minibatches` does not divide their number, or
        if the option `weights` does not suit `replacement`.
        """
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
        """Return indices and importance weights [num_minibatches, size] of sequences drawn from `batch` [M, L].

        Minibatches are drawn independently: a sequence may be in several of an epoch, and another in none.
        """
        valid = batch.steps.valid
        chance = self.probabilities(batch.targets.advantage, valid)
        index, weight = self._draw(chance, key)
        if self.weighted == "advantage":
            return MinibatchIndices(index, advantage_weight=weight)
        counts = valid.sum(axis=1, dtype=jnp.float32)
        drawn = counts[index].mean(axis=1, keepdims=True) / jnp.maximum(counts.mean(), 1.0 / counts.shape[0])
        return MinibatchIndices(index, weight * drawn**self.beta)

    def _draw(self, chance: Array, key: Key) -> tuple[Array, Array]:
        """Return indices and importance weights of sequences drawn by probabilities `chance` [S].

        Both are [num_minibatches, size].
        """
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
        """Return the sampling probability of each sequence, [M], from advantages [M, L] where `valid` [M, L].

        It is 0 for sequences with an advantage that is not finite. If all other sequences have advantages of 0, it is
        uniform over these.
        """
        total = jnp.abs(jnp.where(valid, advantage, 0.0)).sum(axis=1)
        finite = jnp.isfinite(total)
        top = jnp.max(total, where=finite, initial=0.0)
        share = jnp.where(top > 0.0, total / jnp.where(top > 0.0, top, 1.0), 1.0)  # relative: no power overflows
        priority = jnp.where(finite, share**self.alpha, 0.0)
        priority = jnp.where(finite.any(), priority, 1.0)
        return priority / priority.sum()

    def _weights(self, chance: Array) -> Array:
        """Return importance weights (S P)^-beta, [S], of S sequences; `chance` [S] are their probabilities P.

        The weight is 0 where P is 0: such a sequence is drawn only if no other sequence is left to draw.
        """
        return jnp.where(chance > 0.0, (chance.shape[0] * chance) ** -self.beta, 0.0)


def draw_distinct(key: Key, chance: Array, size: int) -> tuple[Array, Array]:
    """Return `size` distinct indices drawn by probabilities `chance` [S], and their inclusion probabilities, [size].

    Gumbel top-k: Kool et al. 2019, https://arxiv.org/abs/1903.06059. The score of an index is its log-probability plus
    Gumbel noise; the indices with the `size` largest scores are drawn. The inclusion probability of an index is the
    probability that its score exceeds the largest score of an index that was not drawn. The sum of the drawn entries,
    each divided by its inclusion probability, is an unbiased estimate of the sum over all S entries (section 4.2).
    """
    score = jnp.log(jnp.maximum(chance, TINY))
    best, index = jax.lax.top_k(score + jax.random.gumbel(key, score.shape), min(size + 1, score.shape[0]))
    if size == score.shape[0]:
        return index, jnp.ones(size, score.dtype)
    return index[:size], -jnp.expm1(-jnp.exp(score[index[:size]] - best[size]))
