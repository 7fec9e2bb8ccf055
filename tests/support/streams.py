"""Random streams for tests of advantage estimators, and helpers for float64 sums over them."""

from typing import NamedTuple

import jax
import numpy as np

from ppax.core.types import Targets, Transition

STEPS = 13


class Stream(NamedTuple):
    """One stream [T], or many [N, T]."""

    reward: np.ndarray
    value: np.ndarray
    next_value: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    ratio: np.ndarray

    def one(self, i):
        """Return stream `i` of many."""
        return Stream(*(x[i] for x in self))

    def last(self, t):
        """Return the last step of the episode of `t`, or of the stream."""
        ended = self.terminated | self.truncated
        return next((u for u in range(t, len(ended)) if ended[u]), len(ended) - 1)

    def beyond(self, t):
        """Return the bootstrap value after step `t`."""
        return 0.0 if self.terminated[t] else float(self.next_value[t])


def draw(seed, cases=200, chained=False):
    """Draw streams that never, sometimes or always end in both ways; `chained`: V'_t = V_{t+1} within episodes."""
    rng = np.random.default_rng(seed)
    reward, value, next_value = rng.normal(0.0, 1.0, (3, cases, STEPS)).astype(np.float32)
    often = rng.choice([0.0, 0.1, 0.5, 1.0], (2, cases, 1))
    terminated, truncated = rng.random((2, cases, STEPS)) < often
    if chained:
        following = np.concatenate([value[:, 1:], next_value[:, -1:]], axis=1)
        next_value = np.where(terminated | truncated, next_value, following)
    ratio = np.exp(rng.normal(0.0, 0.7, (cases, STEPS))).astype(np.float32)
    assert (terminated & truncated).any()
    assert (~terminated & ~truncated).all(axis=1).any()
    return Stream(reward, value, next_value, terminated, truncated, ratio)


@jax.jit
def _many(part, streams, ratio, gamma):
    def call(stream, ratio):
        flags = stream.terminated, stream.truncated
        return part(
            Transition(None, None, None, stream.value, stream.reward, *flags, None, None, ()),
            stream.next_value,
            gamma,
            ratio,
        )

    return jax.vmap(call)(streams, ratio)


def targets(part, stream, gamma=0.9, ratio=True):
    """Return the targets of a part for one stream or many, as NumPy arrays; `ratio=False`: without ratios.

    Numbers are traced, as in training: XLA rounds differently if a factor is a compile-time constant.
    """
    one = np.ndim(stream.reward) == 1
    streams = Stream(*(x[None] if one else x for x in stream))
    got = _many(part, streams, streams.ratio if ratio else None, gamma)
    return Targets(*(np.asarray(x)[0] if one else np.asarray(x) for x in got))


def by_hand(reward, value, next_value, terminated=None, truncated=None, ratio=None):
    """Return a stream from lists; flags are given as positions."""
    size = len(reward)
    flags = [np.isin(np.arange(size), [] if at is None else at) for at in (terminated, truncated)]
    numbers = [np.asarray(x, np.float32) for x in (reward, value, next_value)]
    return Stream(*numbers, *flags, np.ones(size, np.float32) if ratio is None else np.asarray(ratio, np.float32))


def poisoned(kind):
    """Return four steps with an end of one kind at step 1 and NaN in step 2."""
    nan = np.nan
    beyond = nan if kind == "terminated" else 3.0
    return by_hand([1, 1, nan, 1], [2, 2, nan, 2], [2, beyond, nan, 2], **{kind: [1]}, ratio=[1.5, 0.5, nan, 1])
