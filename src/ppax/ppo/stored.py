"""Evaluation of a stored rollout in chunks, so that activations stay in the processor's cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from ppax.arrays.sequences import to_sequences
from ppax.core.types import Transition


def evaluate_in_chunks(
    evaluate: Callable[[Transition], tuple[Array, Array]], steps: Transition, length: int, rows: int
) -> tuple[Array, Array]:
    """Return `evaluate(sequences)` of all steps [T, B], as [T, B], in chunks of about `rows` rows.

    `evaluate` takes sequences [M, L] of `length` steps, each with its first carry [M, 1, ...], and returns [M, L].
    """
    num_steps, streams = steps.valid.shape
    starts = to_sequences(steps.carry, 1)
    sequences = dataclasses.replace(to_sequences(dataclasses.replace(steps, carry=()), length), carry=starts)
    at_once = max(1, rows // length)
    if at_once >= num_steps * streams // length:
        pair = evaluate(sequences)
    else:

        def one(sequence: Transition) -> tuple[Array, Array]:
            return evaluate(jax.tree.map(lambda x: x[None], sequence))

        pair = jax.tree.map(lambda x: x[:, 0], jax.lax.map(one, sequences, batch_size=at_once))
    value, log_prob = (jnp.swapaxes(x.reshape(streams, num_steps), 0, 1) for x in pair)
    return value, log_prob
