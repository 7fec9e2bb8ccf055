"""Categorical distribution over a Discrete space, with an optional mask of allowed actions."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.types import Key, part, static

# Up to this many actions, the numbers of each action are an array of their own: XLA's CPU backend does not vectorise
# loops over a short last axis
FEW = 8


@part
class Categorical:
    """Distribution over n actions, 0 to n - 1, with probabilities softmax(logits).

    The environment's action is `start + action`.
    """

    logits: Array  # [..., n] unnormalised
    start: int = static(default=0)  # first action of the Discrete space

    @classmethod
    def masked(cls, logits: Array, mask: Array | None, start: int = 0) -> Categorical:
        """Return the categorical distribution over the actions where `mask` [..., n] is True; None allows all actions.

        If no action is allowed, the first one has probability 1. `start` is the number of the first action in the
        action space.
        """
        if mask is not None:
            all_false = ~mask.any(axis=-1, keepdims=True)
            mask = jnp.concatenate([mask[..., :1] | all_false, mask[..., 1:]], axis=-1)
            # finfo.min and not -inf: -inf - -inf is NaN in the gradient
            logits = jnp.where(mask, logits, float(jnp.finfo(logits.dtype).min))  # type: ignore[no-untyped-call]
        return cls(logits, start)

    @property
    def log_probs(self) -> Array:
        """Normalised log-probabilities of the n actions of a categorical distribution, [..., n]."""
        return jnp.stack(self._parts, axis=-1) if self._few else self._parts[0]

    @property
    def _few(self) -> bool:
        return self.logits.shape[-1] <= FEW

    @property
    def _parts(self) -> list[Array]:
        """Normalised log-probabilities of the n actions, as a list of arrays.

        With at most 8 actions the list has one array [...] for each action, otherwise a single array [..., n]: on a
        CPU, XLA does not vectorise loops over a short last axis.
        """
        if not self._few:
            return [jax.nn.log_softmax(self.logits)]
        logits = [self.logits[..., i] for i in range(self.logits.shape[-1])]
        largest = jax.lax.stop_gradient(functools.reduce(jnp.maximum, logits))
        shifted = [x - largest for x in logits]
        normaliser = jnp.log(functools.reduce(operator.add, map(jnp.exp, shifted)))
        return [x - normaliser for x in shifted]

    def _sum(self, terms: Sequence[Array]) -> Array:
        """Return the sum over the n actions, [...], of `terms`, a list of arrays like that of `_parts`.

        With at most 8 actions the list has one array [...] for each action, otherwise a single array [..., n].
        """
        return functools.reduce(operator.add, terms) if self._few else terms[0].sum(axis=-1)

    def sample(self, key: Key) -> Array:
        """Return sampled actions of a categorical distribution, from 0 to n - 1, int32 [...]."""
        return jax.random.categorical(key, self.logits).astype(jnp.int32)

    def log_prob(self, action: Array) -> Array:
        """Return the log-probability [...] of `action` [...], from 0 to n - 1."""
        # a sum over a one-hot mask instead of a gather, whose gradient is a scatter: slow on every device
        n = self.logits.shape[-1]
        chosen = [action == i for i in range(n)] if self._few else [jax.nn.one_hot(action, n, dtype=bool)]
        return self._sum([jnp.where(own, x, 0.0) for own, x in zip(chosen, self._parts, strict=True)])

    def entropy(self) -> Array:
        """Return the entropy -sum p log p of a categorical distribution, [...], in nats.

        Actions that are not allowed contribute exactly 0.
        """
        return -self._sum([_times_probability(x, x) for x in self._parts])

    def mode(self) -> Array:
        """Return the most likely action, from 0 to n - 1, int32 [...]."""
        return jnp.argmax(self.logits, axis=-1).astype(jnp.int32)

    def kl(self, other: Categorical) -> Array:
        """Return KL(self || other) [...] of two categorical distributions over the same n actions."""
        pairs = zip(self._parts, other._parts, strict=True)
        return self._sum([_times_probability(x, x - y) for x, y in pairs])

    def env_action(self, action: Array) -> Array:
        """Return `action`, from 0 to n - 1, in the numbering of the action space, which begins at `start`."""
        return action + self.start if self.start else action

    def metrics(self) -> dict[str, Array]:
        """Return {}, as categorical distributions have no diagnostics."""
        return {}


def _times_probability(log_prob: Array, x: Array) -> Array:
    """Return p x, where p is the exponential of `log_prob`; 0 where p is 0, even if x is infinite."""
    prob = jnp.exp(log_prob)
    return jnp.where(prob > 0.0, prob * x, 0.0)
