"""Interpreter that runs JAX functions in NumPy: for small arrays much cheaper than a call of a compiled program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend import core

from ppax.core.types import PyTree
from ppax.devices.tracing import renewed
from ppax.training.host.operations import ELEMENTWISE, functions

CALLS = {"jit", "pjit", "closed_call", "core_call", "checkpoint", "custom_jvp_call", "custom_vjp_call"}
SHAPES = {"reshape", "broadcast_in_dim", "squeeze"}  # views, if the number of elements stays the same
Call = tuple[Callable[..., Any], tuple[int, ...], int]  # a NumPy call, the slots that it reads, the slot that it writes


class NumpyProgram:
    """NumPy version of the JAX function `function(slow, *fast)`, for arguments of the given shapes.

    `slow` is an argument that seldom changes, such as parameters: what depends on it alone is computed by `bind`, once,
    and the rest in each call. Raises NoNumpyVersion if an operation of the function has no NumPy version.
    """

    def __init__(self, function: Callable[..., PyTree], slow: PyTree, *fast: PyTree):
        trace = Trace(function, slow, *fast)
        self.result, self._values, self._outputs = trace.result, trace.values, trace.outputs
        split = len(jax.tree.leaves(slow))
        self._slow_inputs, self._fast_inputs = trace.inputs[:split], trace.inputs[split:]
        self._needed, changing = trace.needed, set(self._fast_inputs)
        self._once: list[Call] = []  # operations that depend on the first argument alone
        self._each: list[Call] = []
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
        """Return the number of a new slot (place of a value), which has the value of `slot` broadcast to `shape`.

        `before` is the shape of `slot`; if it needs no broadcast, the result is `slot` itself. `bind` broadcasts the
        value, as NumPy adds arrays of equal shapes twice as fast.
        """
        if before in ((), shape):
            return slot
        self._values.append(None)
        spread = len(self._values) - 1
        self._once.append((lambda x: np.broadcast_to(x, shape).copy(), (slot,), spread))
        return spread

    def bind(self, slow: PyTree) -> None:
        """Set the function's first argument to `slow`, and run the operations that depend on it alone."""
        for slot, leaf in zip(self._slow_inputs, jax.tree.leaves(slow), strict=True):
            if slot in self._needed:
                self._values[slot] = np.asarray(leaf)
        self._run(self._once, self._values)

    def __call__(self, *fast: Any) -> list[Any]:
        """Return the leaves of the function's result; `fast` are the leaves of all its arguments but the first."""
        values = self._values.copy()
        for slot, leaf in zip(self._fast_inputs, fast, strict=True):
            values[slot] = leaf
        self._run(self._each, values)
        return [values[slot] for slot in self._outputs]

    def _run(self, steps: Sequence[Call], values: list[Any]) -> None:
        for function, reads, writes in steps:
            # in most steps one or two operands, for which a list would take longer than the loop
            if len(reads) == 2:
                first, second = reads
                values[writes] = function(values[first], values[second])
            elif len(reads) == 1:
                values[writes] = function(values[reads[0]])
            else:
                values[writes] = function(*[values[slot] for slot in reads])


class Trace:
    """Flat list of the operations of `function(*arguments)`, which read and write numbered slots (places of values).

    The function is traced to a jaxpr, and every function that it calls is inlined. NumPy and ONNX versions are made
    from this list, so that network, normalisation and distribution are written in JAX alone. Arguments may be arrays or
    their shapes, also with a symbolic size (`jax.export.symbolic_shape`). Every slot is written once: by an operation,
    as an input, or as a constant. Raises NoNumpyVersion for a `jax.lax.reshape` with `dimensions`, which also
    transposes.
    """

    def __init__(self, function: Callable[..., PyTree], *arguments: PyTree):
        closed, self.result = jax.make_jaxpr(renewed(function), return_shape=True)(*arguments)
        self.values: list[Any] = []  # constant of each slot; None: an input or a result
        self.shapes: list[tuple[Any, ...]] = []  # of each slot
        self.operations: list[Operation] = []
        self._slots: dict[Any, int] = {}
        # slot of a view: slot of its base, and the base's shape
        self._views: dict[int, tuple[int, tuple[Any, ...]]] = {}
        self.inputs = [self._new(var) for var in closed.jaxpr.invars]
        self._inline(closed.jaxpr, closed.consts)
        self.outputs = [self._slot(var) for var in closed.jaxpr.outvars]
        self._drop_unused()

    def _new(self, var: Any, value: Any = None) -> int:
        self.values.append(value)
        self.shapes.append(tuple(var.aval.shape))
        self._slots[var] = len(self.values) - 1
        return len(self.values) - 1

    def _slot(self, atom: Any) -> int:
        if isinstance(atom, core.Literal):
            self.values.append(np.asarray(atom.val, _dtype(atom)))
            self.shapes.append(np.shape(atom.val))
            return len(self.values) - 1
        return self._slots[atom]

    def _inline(self, jaxpr: Any, consts: Sequence[Any]) -> None:
        """Append the operations of a jaxpr to the list; calls are replaced by the called functions' operations.

        `consts` are the values of the jaxpr's constants.
        """
        for var, const in zip(jaxpr.constvars, consts, strict=True):
            self._new(var, np.asarray(const))
        for eqn in jaxpr.eqns:
            name = eqn.primitive.name
            if name in CALLS:
                inner = next(eqn.params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in eqn.params)
                self._call(inner, [self._slot(atom) for atom in eqn.invars], eqn.outvars)
            elif name == "scan" and eqn.params["length"] == 1:
                self._single_step(eqn)
            elif name == "convert_element_type" and eqn.invars[0].aval == eqn.outvars[0].aval:  # no-op
                self._slots[eqn.outvars[0]] = self._slot(eqn.invars[0])
            elif name == "reshape" and eqn.params.get("dimensions") is not None:
                raise NoNumpyVersion("a reshape that permutes")
            elif _is_reshape(name, eqn):
                self._view(self._slot(eqn.invars[0]), eqn.invars[0].aval.shape, eqn.outvars[0], eqn.outvars[0].aval)
            else:
                reads = tuple(self._slot(atom) for atom in eqn.invars)
                writes = tuple(self._new(var) for var in eqn.outvars)
                if name in ("div", "pow") and _dtype(eqn.outvars[0]).kind != "f":
                    name = f"{name} of integers"
                self.operations.append(Operation(name, eqn.primitive, dict(eqn.params), reads, writes))

    def _call(self, inner: Any, arguments: Sequence[int], results: Sequence[Any]) -> None:
        """Append the operations of a called function `inner`, a jaxpr that may be closed, to the list.

        `arguments` are the slots (numbered places) of its arguments; `results` are the caller's variables for its
        results.
        """
        body, closed_over = getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())
        # a function called twice has the same variables: the second call overwrites their slots
        self._slots.update(zip(body.invars, arguments, strict=True))
        self._inline(body, closed_over)
        self._slots.update(zip(results, [self._slot(atom) for atom in body.outvars], strict=True))

    def _single_step(self, eqn: Any) -> None:
        """Append the operations of a scan of length 1, `eqn`: its body, without the time axis.

        A memory has such a scan when the policy acts.
        """
        body, arguments = eqn.params["jaxpr"], []
        # what is scanned has one axis more outside of the body; parameters that say so differ between versions of JAX
        for atom, var in zip(eqn.invars, body.jaxpr.invars, strict=True):
            slot, shape = self._slot(atom), atom.aval.shape
            arguments.append(slot if shape == var.aval.shape else self._view(slot, shape, var, var.aval))
        self._call(body, arguments, eqn.outvars)
        for var, inner in zip(eqn.outvars, body.jaxpr.outvars, strict=True):
            if var.aval.shape != inner.aval.shape:
                self._view(self._slots[var], inner.aval.shape, var, var.aval)

    def _view(self, slot: int, before: Sequence[Any], var: Any, aval: Any) -> int:
        """Return the slot (numbered place) of a reshaped value, and append the reshape to the operations.

        `before` is the shape of `slot`; `var` and `aval` are the result's variable and shape. A reshape that undoes an
        earlier one, as `vmap` makes around matrix products, is not appended: the slot is that of the original value.
        """
        shape = tuple(aval.shape)
        base, original = self._views.get(slot, (slot, tuple(before)))
        if shape == original:
            self._slots[var] = base
            return base
        view = self._new(var)
        self._views[view] = base, original
        params = {"new_sizes": shape, "dimensions": None, "sharding": None}
        self.operations.append(Operation("reshape", jax.lax.reshape_p, params, (base,), (view,)))
        return view

    def _drop_unused(self) -> None:
        """Remove the operations whose results no output of the function needs."""
        self.needed, kept = set(self.outputs), []
        for operation in reversed(self.operations):
            if self.needed.intersection(operation.writes):
                kept.append(operation)
                self.needed.update(operation.reads)
        self.operations = kept[::-1]


class Operation(NamedTuple):
    """JAX primitive with its parameters, and the slots (numbered places of values) that it reads and writes."""

    name: str
    primitive: Any
    params: dict[str, Any]
    reads: tuple[int, ...]
    writes: tuple[int, ...]


class NoNumpyVersion(Exception):
    """Error of a function with a JAX operation that has no NumPy version in ppax, so that it must be compiled."""


def _is_reshape(name: str, eqn: Any) -> bool:
    """Return whether the operation `eqn` only changes the shape; `name` is that of its primitive.

    So does a transposition that moves only axes of size 1.
    """
    if name == "transpose":
        moved = [axis for axis in eqn.params["permutation"] if eqn.invars[0].aval.shape[axis] != 1]
        return moved == sorted(moved)
    return name in SHAPES and eqn.invars[0].aval.size == eqn.outvars[0].aval.size


def _dtype(atom: Any) -> Any:
    return atom.aval.dtype
