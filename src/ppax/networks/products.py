"""Matrix products in the precision of their weights (mixed precision).

With weights in bfloat16, both factors are rounded to bfloat16; the product accumulates and returns float32, in the
forward and the backward pass. Everything between two products stays float32: elementwise operations in bfloat16 would
be slower on a CPU, and less accurate.

Two reasons for a primitive of its own. JAX's gradients of a product of mixed types are products of mixed types, which
no matrix unit supports. And XLA's CPU backend runs A B and A B^T on the matrix unit (Intel AMX), but not A^T B, the
gradient of the weights; there A is transposed first (benchmarks/NOTES.md).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ppax.program.platforms import RULES

MIN_SIDE = 16  # kernels with a shorter side are multiplied in float32: rounding would cost more than it saves
BLOCK = 8  # rows per block of a transposition
AXES = {"AB": (1, 0), "ABt": (1, 1), "AtB": (0, 0)}  # contracted axis of each factor, by form of the product


def matmul(x: Array, kernel: Array) -> Array:
    """Return `x @ kernel` for x [..., k] and kernel [k, n].

    A bfloat16 kernel rounds both factors to bfloat16, and accumulates and returns float32.
    """
    if kernel.dtype != jnp.bfloat16:
        return x @ kernel
    if min(kernel.shape) < MIN_SIDE:
        return x.astype(jnp.float32) @ kernel.astype(jnp.float32)
    rows = x.reshape(-1, x.shape[-1]).astype(jnp.float32)
    out: Array = bf16_matmul.bind(rows, kernel.astype(jnp.float32), form="AB")
    return out.reshape(*x.shape[:-1], kernel.shape[1])


bf16_matmul = Primitive("bf16_matmul")  # two float32 matrices, rounded to bfloat16, to a float32 product


def _abstract_eval(a: Any, b: Any, *, form: str) -> Any:
    contracted_a, contracted_b = AXES[form]
    return jax.core.ShapedArray((a.shape[1 - contracted_a], b.shape[1 - contracted_b]), jnp.float32)


def _multiply(a: Array, b: Array, *, form: str) -> Array:
    contracted_a, contracted_b = AXES[form]
    axes = ((contracted_a,), (contracted_b,)), ((), ())
    a, b = a.astype(jnp.bfloat16), b.astype(jnp.bfloat16)
    return jax.lax.dot_general(a, b, axes, preferred_element_type=jnp.float32)


def _multiply_in_blocks(a: Array, b: Array, *, form: str) -> Array:
    if form == "AtB":
        a, form = _transposed_in_blocks(a.astype(jnp.bfloat16)), "AB"
    return _multiply(a, b, form=form)


def _transposed_in_blocks(a: Array) -> Array:
    """Transpose blocks of rows, then place them; XLA cannot fold this back into the product."""
    rows, columns = a.shape
    block = BLOCK if rows % BLOCK == 0 else 1
    blocks = a.reshape(rows // block, block, columns).transpose(0, 2, 1)
    return jax.lax.optimization_barrier(blocks).transpose(1, 0, 2).reshape(columns, rows)


def _transpose_a(g: Array, a: Any, b: Array, *, form: str) -> Array:
    """Return the gradient of the first factor A from that of the product, `g`; for form "AB" it is G B^T."""
    if form == "AtB":
        return bf16_matmul.bind(b, g, form="ABt")
    return bf16_matmul.bind(g, b, form={"AB": "ABt", "ABt": "AB"}[form])


def _transpose_b(g: Array, a: Array, b: Any, *, form: str) -> Array:
    """Return the gradient of the second factor B from that of the product, `g`; for form "AB" it is A^T G."""
    if form == "ABt":
        return bf16_matmul.bind(g, a, form="AtB")
    return bf16_matmul.bind(a, g, form={"AB": "AtB", "AtB": "AB"}[form])


def _batch(factors: Any, axes: Any, *, form: str) -> tuple[Array, int]:
    a, b = factors
    if form != "AtB" and axes[1] is None:  # unbatched second factor: the batch axis becomes rows of one product
        a = jnp.moveaxis(a, axes[0], 0)
        out = bf16_matmul.bind(a.reshape(-1, a.shape[2]), b, form=form)
        return out.reshape(*a.shape[:2], out.shape[1]), 0
    return jax.vmap(partial(_multiply, form=form), axes)(a, b), 0


bf16_matmul.def_abstract_eval(_abstract_eval)
bf16_matmul.def_impl(jax.jit(_multiply, static_argnames="form"))
ad.defbilinear(bf16_matmul, _transpose_a, _transpose_b)
batching.primitive_batchers[bf16_matmul] = _batch
mlir.register_lowering(bf16_matmul, mlir.lower_fun(_multiply, multiple_results=False))
for platform in (name for name, own in RULES.items() if own.block_transposes):
    mlir.register_lowering(bf16_matmul, mlir.lower_fun(_multiply_in_blocks, multiple_results=False), platform=platform)
