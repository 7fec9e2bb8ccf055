"""Programs traced anew: JAX keeps a traced program by the function's identity and its arguments.

So it does not see that something else has changed which tracing reads: an attribute of a class, a global variable of a
module, a replaced method, a variable of an enclosing function. Tracing again takes a fraction of the time of compiling.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

KEPT = 32  # programs whose compiled form is kept for a function that would be traced to the same program
# Parameters of operations that only differentiation reads, which has happened: a new function in every trace
RULES = ("jvp_jaxpr_fun", "jvp_jaxpr_thunk", "fwd_jaxpr_thunk", "bwd")

_kept: OrderedDict[Callable[..., Any], tuple[Callable[..., Any], Any]] = OrderedDict()  # copy: original, its program


@contextmanager
def unchecked() -> Iterator[None]:
    """Context without the checks of `jax_debug_nans` and `jax_debug_infs`, for programs that handle such numbers."""
    with jax.debug_nans(False), jax.debug_infs(False):
        yield


def compiled(jitted: Any, *arguments: Any) -> Any:
    """Compile a jitted function for `arguments`; in `jax.disable_jit` return it as it is, to be interpreted."""
    return jitted if jax.config.jax_disable_jit else jitted.lower(*arguments).compile()  # type: ignore[attr-defined]


def renewed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a copy of `function` for `jax.jit` and its kin, which JAX has not traced yet."""

    @functools.wraps(function)
    def copy(*arguments: Any, **options: Any) -> Any:
        return function(*arguments, **options)

    return copy


def current(
    function: Callable[..., Any], *arguments: Any, static: Sequence[str] = (), **options: Any
) -> Callable[..., Any]:
    """Return a copy of `function` for `jax.jit`, whose program is the one that `function` has now.

    `arguments` and `options`, arrays or their shapes, are those of the call; `static` is `static_argnames`. The
    function is traced; if it gave this program before, the result is the earlier copy, whose compiled programs JAX has.
    """
    copy = renewed(function)
    traced = jax.jit(copy, static_argnames=tuple(static)).trace(*arguments, **options)
    program = (traced.jaxpr, jax.tree.structure((arguments, options)), jax.tree.structure(traced.out_info))
    for earlier, (original, known) in list(_kept.items()):
        if original is function and known[1:] == program[1:] and same(known[0], program[0]):
            _kept[earlier] = _kept.pop(earlier, (original, known))
            return earlier
    _kept[copy] = (function, program)
    while len(_kept) > KEPT:
        _kept.popitem(last=False)
    return copy


def same(one: core.ClosedJaxpr, other: core.ClosedJaxpr) -> bool:
    """Return whether two programs are equal: operations, their order and parameters, shapes, and constants' values."""
    return _equal(one.consts, other.consts) and _equal_bodies(one.jaxpr, other.jaxpr)


def _equal_bodies(one: core.Jaxpr, other: core.Jaxpr) -> bool:
    if one is other:
        return True
    if len(one.eqns) != len(other.eqns):
        return False
    counterpart: dict[Any, Any] = {}  # variable of `one`: variable of `other`

    def defined(before: Sequence[Any], after: Sequence[Any]) -> bool:
        counterpart.update(zip(before, after, strict=False))
        return len(before) == len(after) and all(a.aval == b.aval for a, b in zip(before, after, strict=True))

    def read(before: Sequence[Any], after: Sequence[Any]) -> bool:
        return len(before) == len(after) and all(map(reads_same, before, after))

    def reads_same(before: Any, after: Any) -> bool:
        if isinstance(before, core.Literal) or isinstance(after, core.Literal):
            return type(before) is type(after) and before.aval == after.aval and _equal(before.val, after.val)
        return counterpart.get(before) is after

    if not (defined(one.constvars, other.constvars) and defined(one.invars, other.invars)):
        return False
    for before, after in zip(one.eqns, other.eqns, strict=True):
        if before.primitive is not after.primitive or not read(before.invars, after.invars):
            return False
        if not _equal(before.params, after.params) or not defined(before.outvars, after.outvars):
            return False
    return read(one.outvars, other.outvars)


def _equal(one: Any, other: Any) -> bool:
    """Return whether two parameters of operations, or constants, are equal."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, core.ClosedJaxpr):
        return same(one, other)
    if isinstance(one, core.Jaxpr):
        return _equal_bodies(one, other)
    if isinstance(one, dict):
        names = one.keys() - set(RULES)
        return names == other.keys() - set(RULES) and all(_equal(one[name], other[name]) for name in names)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(_equal, one, other))
    if hasattr(one, "dtype") and hasattr(one, "shape"):
        return _same_array(one, other)
    return bool(one == other) or (isinstance(one, float) and one != one and other != other)


def _same_array(one: Any, other: Any) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
        one, other = jax.random.key_data(one), jax.random.key_data(other)
    return np.asarray(one).tobytes() == np.asarray(other).tobytes()
