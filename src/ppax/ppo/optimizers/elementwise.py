"""Whether an optimiser is elementwise, found in the operations of its update.

An elementwise optimiser may get all parameters as one vector, which needs few operations. That holds if each operation
on arrays combines equal places of arrays of equal shape, the same operations for parameters of every shape, and the
state has arrays of these shapes alone. Nothing is computed: the update is traced for shapes, small ones and ones that
are large enough for optimisers that treat wide matrices in another way (Adafactor those from 128).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.extend import core

SHAPES = ((5, 3), (7,), (2**15, 2**14), (2**14,), (3, 3, 2**12, 2**13))
# Elementwise primitives; a broadcast counts if it is of a scalar, or of an array to its own shape
NAMES = """abs add add_any and cbrt ceil clamp convert_element_type copy copy_p cos div eq erf exp exp2 expm1 floor ge
    gt integer_pow is_finite le log log1p logistic lt max min mul ne neg nextafter not or pow rem round rsqrt select_n
    sign sin sqrt square stop_gradient sub tan tanh xor broadcast_in_dim"""
ELEMENTWISE = frozenset(NAMES.split())
UNCOUNTED = ("broadcast_in_dim", "convert_element_type", "copy")  # absent where a type or shape is right already


def traced_update(factory: Callable[..., Any], fixed: Mapping[str, Any], traced: Sequence[str]) -> Any:
    """Trace one update of the optimiser `factory(learning_rate, **fixed)`; the options `traced` are tracers, too.

    Raises whatever the factory raises. Returns (program, shapes of the state).
    """
    params = {str(i): jax.ShapeDtypeStruct(shape, jnp.float32) for i, shape in enumerate(SHAPES)}
    scalar = jax.ShapeDtypeStruct((), jnp.float32)
    numbers = dict.fromkeys(traced, scalar)

    def steps(rate: Any, numbers: Any) -> optax.GradientTransformationExtraArgs:
        return optax.with_extra_args_support(factory(rate, **fixed, **numbers))

    def update(rate: Any, numbers: Any, gradient: Any, state: Any, params: Any) -> Any:
        return steps(rate, numbers).update(gradient, state, params)

    state = jax.eval_shape(lambda rate, numbers, params: steps(rate, numbers).init(params), scalar, numbers, params)
    return jax.make_jaxpr(update)(scalar, numbers, params, state, params), state


def is_elementwise(factory: Callable[..., Any], fixed: Mapping[str, Any], traced: Sequence[str]) -> bool:
    """Return whether the optimiser is elementwise; False where that is not certain."""
    program, state = traced_update(factory, fixed, traced)
    if any(leaf.shape not in ((), *SHAPES) for leaf in jax.tree.leaves(state)):
        return False
    operations: dict[Any, list[str]] = {shape: [] for shape in SHAPES}
    for equation in _equations(program.jaxpr):
        shapes = {x.aval.shape for x in (*equation.invars, *equation.outvars)} - {()}
        if not shapes:
            continue  # scalars, such as step counters and learning rates
        name = equation.primitive.name
        if name not in ELEMENTWISE or len(shapes) > 1 or not shapes <= operations.keys():
            return False
        if name not in UNCOUNTED:
            operations[shapes.pop()].append(name)
    return len({tuple(names) for names in operations.values()}) == 1


def _equations(jaxpr: core.Jaxpr) -> Iterator[Any]:
    """Yield the operations of a program, those of called functions in their place."""
    for equation in jaxpr.eqns:
        inner = [x for x in equation.params.values() if isinstance(x, core.ClosedJaxpr | core.Jaxpr)]
        if len(inner) == 1 and equation.primitive.name in ("jit", "pjit", "closed_call", "custom_jvp_call", "remat"):
            yield from _equations(inner[0].jaxpr if isinstance(inner[0], core.ClosedJaxpr) else inner[0])
        else:
            yield equation
