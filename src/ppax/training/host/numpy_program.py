"""Interpreter of JAX functions in NumPy: for small arrays much cheaper than a call of a compiled program.

Operations that depend only on the first argument (the parameters) are computed once, by `bind`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ppax.core.types import PyTree
from ppax.training.host.operations import ELEMENTWISE, functions
from ppax.training.host.tracing import NoNumpyVersion as NoNumpyVersion
from ppax.training.host.tracing import Trace

Step = tuple[Callable[..., Any], tuple[int, ...], int]  # a NumPy call, the slots that it reads, the slot that it writes


class NumpyProgram:
    """NumPy version of `function(slow, *fast)` for arguments of the given shapes. Raises NoNumpyVersion."""

    def __init__(self, function: Callable[..., PyTree], slow: PyTree, *fast: PyTree):
        trace = Trace(function, slow, *fast)
        self.result, self._values, self._outputs = trace.result, trace.values, trace.outputs
        split = len(jax.tree.leaves(slow))
        self._slow_inputs, self._fast_inputs = trace.inputs[:split], trace.inputs[split:]
        self._needed, changing = trace.needed, set(self._fast_inputs)
        self._once: list[Step] = []  # operations that depend on the first argument alone
        self._each: list[Step] = []
        for name, _, params, reads, writes in trace.operations:
            try:
                calls = functions(name, params, len(writes))
            except NotImplementedError as error:
                raise NoNumpyVersion(str(error)) from error
            each_time = not changing.isdisjoint(reads)
            if each_time and name in ELEMENTWISE:
                shape = trace.shapes[writes[0]]
                reads = tuple(x if x in changing else self._spread(x, trace.shapes[x], shape) for x in reads)
            steps = self._each if each_time else self._once
            steps += [(call, reads, slot) for call, slot in zip(calls, writes, strict=True) if slot in self._needed]
            changing.update(writes if each_time else ())

    def _spread(self, slot: int, before: tuple[int, ...], shape: tuple[int, ...]) -> int:
        """Return a slot with the value of `slot`, broadcast by `bind`: NumPy adds equal shapes twice as fast."""
        if before in ((), shape):
            return slot
        self._values.append(None)
        spread = len(self._values) - 1
        self._once.append((lambda x: np.broadcast_to(x, shape).copy(), (slot,), spread))
        return spread

    def bind(self, slow: PyTree) -> None:
        """Set the first argument and run the operations that depend on it alone."""
        for slot, leaf in zip(self._slow_inputs, jax.tree.leaves(slow), strict=True):
            if slot in self._needed:
                self._values[slot] = np.asarray(leaf)
        self._run(self._once, self._values)

    def __call__(self, *fast: Any) -> list[Any]:
        """Return the leaves of the result for the leaves of the other arguments."""
        values = self._values.copy()
        for slot, leaf in zip(self._fast_inputs, fast, strict=True):
            values[slot] = leaf
        self._run(self._each, values)
        return [values[slot] for slot in self._outputs]

    def _run(self, steps: Sequence[Step], values: list[Any]) -> None:
        for function, reads, writes in steps:
            # in most steps one or two operands, for which a list would take longer than the loop
            if len(reads) == 2:
                first, second = reads
                values[writes] = function(values[first], values[second])
            elif len(reads) == 1:
                values[writes] = function(values[reads[0]])
            else:
                values[writes] = function(*[values[slot] for slot in reads])
