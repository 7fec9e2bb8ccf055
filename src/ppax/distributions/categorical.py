"""Categorical distribution over a Discrete space, with an optional mask of allowed actions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ppax.types import Key, part, static


@part
class Categorical:
    """Actions 0 to n - 1 with probabilities softmax(logits); the environment's action is `start + action`."""

    logits: Array  # [..., n] unnormalised
    start: int = static(default=0)  # first action of the Discrete space

    @classmethod
    def masked(cls, logits: Array, mask: Array | None, start: int = 0) -> Categorical:
        """Return the distribution over actions where `mask` [..., n] is True; a mask without any allows the first."""
        if mask is not None:
            all_false = ~mask.any(axis=-1, keepdims=True)
            mask = jnp.concatenate([mask[..., :1] | all_false, mask[..., 1:]], axis=-1)
            # finfo.min and not -inf: -inf - -inf is NaN in the gradient
            logits = jnp.where(mask, logits, float(jnp.finfo(logits.dtype).min))  # type: ignore[no-untyped-call]
        return cls(logits, start)

    @property
    def log_probs(self) -> Array:
        """Normalised log-probabilities [..., n]."""
        return jax.nn.log_softmax(self.logits)

    def sample(self, key: Key) -> Array:
        """Return sampled actions, int32 [...]."""
        return jax.random.categorical(key, self.logits).astype(jnp.int32)

    def log_prob(self, action: Array) -> Array:
        """Return the log-probability [...] of `action` [...]."""
        # a sum over a one-hot mask instead of a gather, whose gradient is a scatter: slow on every device
        chosen = jax.nn.one_hot(action, self.logits.shape[-1], dtype=bool)
        return jnp.where(chosen, self.log_probs, 0.0).sum(axis=-1)

    def entropy(self) -> Array:
        """Return the entropy -sum p log p [...]; masked actions contribute exactly 0."""
        log_probs = self.log_probs
        probs = jnp.exp(log_probs)
        return -jnp.where(probs > 0.0, probs * log_probs, 0.0).sum(axis=-1)

    def mode(self) -> Array:
        """Return the most likely action, int32 [...]."""
        return jnp.argmax(self.logits, axis=-1).astype(jnp.int32)

    def kl(self, other: Categorical) -> Array:
        """Return KL(self || other) [...]."""
        log_probs = self.log_probs
        probs = jnp.exp(log_probs)
        return jnp.where(probs > 0.0, probs * (log_probs - other.log_probs), 0.0).sum(axis=-1)

    def env_action(self, action: Array) -> Array:
        """Return `action` in the numbering of the space, which begins at `start`."""
        return action + self.start

    def metrics(self) -> dict[str, Array]:
        """Return no diagnostics."""
        return {}
