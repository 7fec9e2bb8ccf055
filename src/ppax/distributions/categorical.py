"""Categorical distribution over a Discrete space, with an optional mask of allowed actions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ppax.types import Key, part, static


@part
class Categorical:
    """Actions 0 .. n-1 with probabilities softmax(logits); the environment receives `start + action`."""

    logits: Array  # [..., n] any real numbers
    start: int = static(default=0)  # the space's first action

    @classmethod
    def masked(cls, logits: Array, mask: Array | None, start: int = 0) -> Categorical:
        """Only the actions where `mask` [..., n] is True; where it allows nothing, the first action, with certainty."""
        if mask is not None:
            nothing = ~mask.any(axis=-1, keepdims=True)
            mask = jnp.concatenate([mask[..., :1] | nothing, mask[..., 1:]], axis=-1)
            # finfo.min and not -inf: -inf - -inf is NaN in the gradient
            logits = jnp.where(mask, logits, float(jnp.finfo(logits.dtype).min))  # type: ignore[no-untyped-call]
        return cls(logits, start)

    @property
    def log_probs(self) -> Array:
        """Normalised log-probabilities [..., n]."""
        return jax.nn.log_softmax(self.logits)

    def sample(self, key: Key) -> Array:
        """An action, int32 [...]."""
        return jax.random.categorical(key, self.logits).astype(jnp.int32)

    def log_prob(self, action: Array) -> Array:
        """Log-probability of `action` [...]."""
        # a sum over all actions and not a gather, whose gradient is a scatter: slow on every device
        chosen = jax.nn.one_hot(action, self.logits.shape[-1], dtype=bool)
        return jnp.where(chosen, self.log_probs, 0.0).sum(axis=-1)

    def entropy(self) -> Array:
        """-sum p log p [...]; a forbidden action adds exactly nothing."""
        log_probs = self.log_probs
        probs = jnp.exp(log_probs)
        return -jnp.where(probs > 0.0, probs * log_probs, 0.0).sum(axis=-1)

    def mode(self) -> Array:
        """The most likely action [...]."""
        return jnp.argmax(self.logits, axis=-1).astype(jnp.int32)

    def kl(self, other: Categorical) -> Array:
        """KL(self || other) [...]."""
        log_probs = self.log_probs
        probs = jnp.exp(log_probs)
        return jnp.where(probs > 0.0, probs * (log_probs - other.log_probs), 0.0).sum(axis=-1)

    def env_action(self, action: Array) -> Array:
        """The space's own number of `action`."""
        return action + self.start
