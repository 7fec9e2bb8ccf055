"""Faults of XLA that ppax must not meet: values of windows and shifted rows, compiled, against NumPy.

XLA for CPUs gives wrong values where an array is overwritten in place by a shifted slice of itself and then reshaped
(openxla/xla issue 49176; jax 0.10.2 to 0.12.0.1). ppax shifts by concatenation, which is not affected.
"""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.networks.memories.window import Window
from ppax.ppo import batches

SHIFTED = re.compile(r"(\w+)\.at\[[^\]]*:[^\]]*\]\.set\(\s*\1\[")  # x.at[1:].set(x[:-1])


def test_no_array_is_overwritten_by_a_shifted_slice_of_itself():
    sources = Path(ppax.__file__).parent.rglob("*.py")
    assert [path.name for path in sources if SHIFTED.search(path.read_text(encoding="utf-8"))] == []
    assert SHIFTED.search("stack = stack.at[1:].set(stack[:-1])")


@pytest.mark.parametrize("streams", [1, 3])
def test_windows_carried_through_a_compiled_loop(streams):
    steps, size, window = 12, 5, 4
    rng = np.random.default_rng(0)
    x = rng.normal(size=(steps, streams, size)).astype(np.float32)
    first = rng.random((steps, streams)) < 0.3
    memory = Window(window, hidden=())

    @jax.jit
    def features(x, first):
        carry = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], streams, 0), memory.initial_carry(size))

        def step(carry, row):
            out = jax.vmap(lambda carry, x, first: memory.scan((), carry, x[None], first[None]))(carry, *row)
            return out.carry, out.features.reshape(1, streams, window * size)

        return jax.lax.scan(step, carry, (x, first))[1][:, 0]

    expected = np.zeros((steps, streams, window, size), np.float32)
    for b in range(streams):
        stack = np.zeros((window, size), np.float32)
        for t in range(steps):
            stack = np.zeros_like(stack) if first[t, b] else stack
            stack = np.concatenate([stack[1:], x[t, b][None]])
            expected[t, b] = stack
    np.testing.assert_array_equal(features(x, first), expected.reshape(steps, streams, -1))


def test_next_values_are_shifted_rows():
    streams = 16
    value = np.arange(8 * streams, dtype=np.float32).reshape(8, streams)
    last = -np.arange(streams, dtype=np.float32)

    @jax.jit
    def shifted(value, last):
        moved = value + 1.0  # computed, so that XLA may overwrite it
        steps = ppax.types.Transition(*[moved] * 9, carry=())
        return jax.vmap(batches.next_values, (1, 0), 1)(steps, last).reshape(1, 8, streams)

    np.testing.assert_array_equal(shifted(value, last)[0], np.concatenate([value[1:] + 1.0, last[None]]))
