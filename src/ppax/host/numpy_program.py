"""Interpreter of JAX functions in NumPy: for small arrays much cheaper than a call of a compiled program.

Operations that depend only on the first argument (the parameters) are computed once, by `bind`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ppax.host.operations import ELEMENTWISE, functions
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
        self._once: list[Step] = []  # what depends on the first argument alone
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
        self._call = _as_function(self._each, self._fast_inputs, self._outputs)

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
        for function, reads, writes in self._once:
            self._values[writes] = function(*[self._values[slot] for slot in reads])

    def __call__(self, *fast: Any) -> list[Any]:
        """Return the leaves of the result for the leaves of the other arguments."""
        result: list[Any] = self._call(self._values, *fast)
        return result


def _as_function(steps: Sequence[Step], inputs: Sequence[int], outputs: Sequence[int]) -> Callable[..., list[Any]]:
    """Compile `steps` to a Python function of the values of all slots and of the `inputs`; it returns the `outputs`.

    Its text consists of slot numbers alone. A loop over the steps would take 3 us more for a small network, a third of
    the whole call.
    """
    local = {*inputs, *(writes for _, _, writes in steps)}

    def name(slot: int) -> str:
        return f"x{slot}" if slot in local else f"values[{slot}]"

    body = [f"{name(writes)} = f{i}({', '.join(map(name, reads))})" for i, (_, reads, writes) in enumerate(steps)]
    lines = [*body, f"return [{', '.join(map(name, outputs))}]"]
    space: dict[str, Any] = {f"f{i}": function for i, (function, _, _) in enumerate(steps)}
    exec(f"def call({', '.join(['values', *map(name, inputs)])}):\n " + "\n ".join(lines), space)
    function: Callable[..., list[Any]] = space["call"]
    return function
