"""Interpreter of JAX functions in NumPy: for small arrays much cheaper than a call of a compiled program.

Operations that depend only on the first argument (the parameters) are computed once, by `bind`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ppax.host.operations import functions
from ppax.host.tracing import NoNumpyVersion as NoNumpyVersion
from ppax.host.tracing import Trace
from ppax.types import PyTree

Step = tuple[Callable[..., Any], tuple[int, ...], int]  # a NumPy call, the slots that it reads, the slot that it writes


class NumpyProgram:
    """NumPy version of `function(slow, *fast)` for arguments of the given shapes. Raises NoNumpyVersion."""

    def __init__(self, function: Callable[..., PyTree], slow: PyTree, *fast: PyTree):
        trace = Trace(function, slow, *fast)
        self.result, self._values, self._outputs = trace.result, trace.values, trace.outputs
        split = len(jax.tree.leaves(slow))
        self._slow_inputs, self._fast_inputs = trace.inputs[:split], trace.inputs[split:]
        self._needed, changing = trace.needed, set(self._fast_inputs)
        self._once: list[Step] = []
        self._each: list[Step] = []
        for name, _, params, reads, writes in trace.operations:
            try:
                calls = functions(name, params, len(writes))
            except NotImplementedError as error:
                raise NoNumpyVersion(str(error)) from error
            steps = self._each if changing.intersection(reads) else self._once
            steps += [(call, reads, slot) for call, slot in zip(calls, writes, strict=True) if slot in self._needed]
            changing.update(writes if changing.intersection(reads) else ())

    def bind(self, slow: PyTree) -> None:
        """Set the first argument and run the operations that depend on it alone."""
        for slot, leaf in zip(self._slow_inputs, jax.tree.leaves(slow), strict=True):
            if slot in self._needed:
                self._values[slot] = np.asarray(leaf)
        self._run(self._once)

    def __call__(self, *fast: Any) -> list[Any]:
        """Return the leaves of the result for the leaves of the other arguments."""
        values = self._values
        for slot, leaf in zip(self._fast_inputs, fast, strict=True):
            values[slot] = leaf
        self._run(self._each)
        return [values[slot] for slot in self._outputs]

    def _run(self, steps: Sequence[Step]) -> None:
        values = self._values
        for function, reads, writes in steps:
            values[writes] = function(*[values[slot] for slot in reads])
