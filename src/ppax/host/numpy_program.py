"""Interpreter of JAX functions in NumPy: for small arrays much cheaper than a call of a compiled program.

The function is traced to a jaxpr, so network, normalisation and distribution are defined once. Operations that depend
only on the first argument (the parameters) are computed once, by `bind`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Any

import jax
import numpy as np
from jax.extend import core

from ppax.host.operations import OPERATIONS, SEVERAL
from ppax.types import PyTree

CALLS = {"jit", "pjit", "closed_call", "core_call", "checkpoint", "custom_jvp_call", "custom_vjp_call"}
SHAPES = {"reshape", "broadcast_in_dim", "squeeze"}  # views, if the number of elements stays the same


class NoNumpyVersion(Exception):
    """Error: the function contains an operation that has no NumPy counterpart here."""


Step = tuple[Callable[..., Any], tuple[int, ...], int]  # a NumPy call, the slots that it reads, the slot that it writes


class NumpyProgram:
    """NumPy version of `function(slow, *fast)` for arguments of the given shapes. Raises NoNumpyVersion."""

    def __init__(self, function: Callable[..., PyTree], slow: PyTree, *fast: PyTree):
        closed, self.result = jax.make_jaxpr(function, return_shape=True)(slow, *fast)
        self._values: list[Any] = []
        self._steps: list[Step] = []
        self._slots: dict[Any, int] = {}
        self._views: dict[
            int, tuple[int, tuple[int, ...]]
        ] = {}  # slot of a view: slot of its base, and the base's shape
        inputs = [self._new(var) for var in closed.jaxpr.invars]
        self._inline(closed.jaxpr, closed.consts)
        self._outputs = [self._slot(var) for var in closed.jaxpr.outvars]
        split = len(jax.tree.leaves(slow))
        self._slow_inputs, self._fast_inputs = inputs[:split], inputs[split:]
        self._split()

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

    def _new(self, var: Any, value: Any = None) -> int:
        self._values.append(value)
        self._slots[var] = len(self._values) - 1
        return len(self._values) - 1

    def _slot(self, atom: Any) -> int:
        if isinstance(atom, core.Literal):
            self._values.append(np.asarray(atom.val, _dtype(atom)))
            return len(self._values) - 1
        return self._slots[atom]

    def _inline(self, jaxpr: Any, consts: Sequence[Any]) -> None:
        """Append the steps of a jaxpr, with the functions that it calls inlined."""
        for var, const in zip(jaxpr.constvars, consts, strict=True):
            self._new(var, np.asarray(const))
        for eqn in jaxpr.eqns:
            name = eqn.primitive.name
            if name in CALLS:
                inner = next(eqn.params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in eqn.params)
                body, closed_over = getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())
                # a function called twice has the same variables: the second call overwrites their slots
                for var, atom in zip(body.invars, eqn.invars, strict=True):
                    self._slots[var] = self._slot(atom)
                self._inline(body, closed_over)
                for var, atom in zip(eqn.outvars, [self._slot(x) for x in body.outvars], strict=True):
                    self._slots[var] = atom
            elif name == "convert_element_type" and eqn.invars[0].aval == eqn.outvars[0].aval:  # no-op
                self._slots[eqn.outvars[0]] = self._slot(eqn.invars[0])
            elif name == "reshape" and eqn.params.get("dimensions") is not None:
                raise NoNumpyVersion("a reshape that permutes")
            elif name in SHAPES and eqn.invars[0].aval.size == eqn.outvars[0].aval.size:
                self._view(eqn.invars[0], eqn.outvars[0])
            else:
                reads = tuple(self._slot(atom) for atom in eqn.invars)
                for function, var in zip(_functions(eqn), eqn.outvars, strict=True):
                    self._steps.append((function, reads, self._new(var)))

    def _view(self, atom: Any, var: Any) -> None:
        """Add a reshape; one that undoes an earlier reshape, as `vmap` makes around matrix products, needs no call."""
        slot, shape = self._slot(atom), tuple(var.aval.shape)
        base, original = self._views.get(slot, (slot, tuple(atom.aval.shape)))
        if shape == original:
            self._slots[var] = base
            return
        view = self._new(var)
        self._views[view] = base, original
        self._steps.append((methodcaller("reshape", shape), (base,), view))

    def _split(self) -> None:
        """Drop unused steps, and split the rest into those run once by `bind` and those run at each call."""
        needed, kept = set(self._outputs), []
        for step in reversed(self._steps):
            _, reads, writes = step
            if writes in needed:
                kept.append(step)
                needed.update(reads)
        self._needed, changing = needed, set(self._fast_inputs)
        self._once: list[Step] = []
        self._each: list[Step] = []
        for step in reversed(kept):
            _, reads, writes = step
            if changing.intersection(reads):
                changing.add(writes)
                self._each.append(step)
            else:
                self._once.append(step)


def _functions(eqn: Any) -> list[Callable[..., Any]]:
    """Return a NumPy function for each result of one operation. Raises NoNumpyVersion."""
    name = eqn.primitive.name
    if name in SEVERAL:
        return [SEVERAL[name](eqn.params, i) for i in range(len(eqn.outvars))]
    if name not in OPERATIONS:
        raise NoNumpyVersion(name)
    if name in ("div", "pow") and _dtype(eqn.outvars[0]).kind != "f":
        raise NoNumpyVersion(f"{name} of integers")
    try:
        return [OPERATIONS[name](eqn.params)]
    except NotImplementedError as error:
        raise NoNumpyVersion(str(error)) from error


def _dtype(atom: Any) -> Any:
    return atom.aval.dtype
