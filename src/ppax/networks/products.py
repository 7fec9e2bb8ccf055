"""Matrix products in the precision of their weights.

With weights in bfloat16 both factors are rounded to it and the sum is kept and told in float32, forwards and backwards:
what lies between two products stays float32. Work by elements would be slower in bfloat16 on a CPU, and less exact.

This needs a primitive of its own: of a product of two types JAX makes gradients that are products of two types, which
no matrix unit takes. And XLA gives to that of a CPU (Intel AMX) products A B and A B^T, but not A^T B, the gradient of
weights, whose A must be turned before (benchmarks/NOTES.md).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

SHORT = 16  # where weights have a side below, rounding would cost more than the product saves
BLOCK = 8  # columns that are turned at once
AXES = {"AB": (1, 0), "ABt": (1, 1), "AtB": (0, 0)}  # of both factors, which are summed over


def matmul(x: Array, kernel: Array) -> Array:
    """`x @ kernel` for x [..., k] and kernel [k, n], in the precision of `kernel`, told in float32."""
    if kernel.dtype != jnp.bfloat16:
        return x @ kernel
    if min(kernel.shape) < SHORT:
        return x.astype(jnp.float32) @ kernel.astype(jnp.float32)
    rows = x.reshape(-1, x.shape[-1]).astype(jnp.float32)
    told: Array = rounded.bind(rows, kernel.astype(jnp.float32), form="AB")
    return told.reshape(*x.shape[:-1], kernel.shape[1])


rounded = Primitive("rounded_product")  # of two float32 matrices


def _shape(a: Any, b: Any, *, form: str) -> Any:
    summed_a, summed_b = AXES[form]
    return jax.core.ShapedArray((a.shape[1 - summed_a], b.shape[1 - summed_b]), jnp.float32)


def _multiply(a: Array, b: Array, *, form: str) -> Array:
    summed_a, summed_b = AXES[form]
    axes = ((summed_a,), (summed_b,)), ((), ())
    a, b = a.astype(jnp.bfloat16), b.astype(jnp.bfloat16)
    return jax.lax.dot_general(a, b, axes, preferred_element_type=jnp.float32)


def _multiply_on_cpu(a: Array, b: Array, *, form: str) -> Array:
    if form == "AtB":
        a, form = _turned(a.astype(jnp.bfloat16)), "AB"
    return _multiply(a, b, form=form)


def _turned(a: Array) -> Array:
    """The transpose, in a way that XLA does not see through: turned in blocks, which are then put in their places."""
    rows, columns = a.shape
    block = BLOCK if rows % BLOCK == 0 else 1
    blocks = a.reshape(rows // block, block, columns).transpose(0, 2, 1)
    return jax.lax.optimization_barrier(blocks).transpose(1, 0, 2).reshape(columns, rows)


def _transpose_a(g: Array, a: Any, b: Array, *, form: str) -> Array:
    """Gradient of the first factor: of A B it is G B^T."""
    if form == "AtB":
        return rounded.bind(b, g, form="ABt")
    return rounded.bind(g, b, form={"AB": "ABt", "ABt": "AB"}[form])


def _transpose_b(g: Array, a: Array, b: Any, *, form: str) -> Array:
    """Gradient of the second factor: of A B it is A^T G."""
    if form == "ABt":
        return rounded.bind(g, a, form="AtB")
    return rounded.bind(a, g, form={"AB": "AtB", "AtB": "AB"}[form])


def _batch(factors: Any, axes: Any, *, form: str) -> tuple[Array, int]:
    a, b = factors
    if form != "AtB" and axes[1] is None:  # rows like any other
        a = jnp.moveaxis(a, axes[0], 0)
        told = rounded.bind(a.reshape(-1, a.shape[2]), b, form=form)
        return told.reshape(*a.shape[:2], told.shape[1]), 0
    return jax.vmap(partial(_multiply, form=form), axes)(a, b), 0


rounded.def_abstract_eval(_shape)
rounded.def_impl(jax.jit(_multiply, static_argnames="form"))
ad.defbilinear(rounded, _transpose_a, _transpose_b)
batching.primitive_batchers[rounded] = _batch
mlir.register_lowering(rounded, mlir.lower_fun(_multiply, multiple_results=False))
mlir.register_lowering(rounded, mlir.lower_fun(_multiply_on_cpu, multiple_results=False), platform="cpu")
