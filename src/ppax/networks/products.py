"""Matrix products with rounded factors (mixed precision), with gradients that are fast on a CPU.

Inside of `rounding(True)` (devices/layout.py), or with weights in bfloat16, both factors are rounded to bfloat16; the
product accumulates and returns float32, in the forward and the backward pass. Everything between two products stays
float32: elementwise operations in bfloat16 would be slower on a CPU, and less accurate. Gradients of float32 weights
are float32; weights stored in bfloat16 would get gradients in bfloat16.

The products are a JAX primitive of ppax, for two reasons. JAX's gradients of a product of mixed types are products of
mixed types, which no matrix unit supports. And the gradient of the weights has the form A^T B, at which XLA's CPU
backend is slowest: in float32 it takes up to ten times as long, and in bfloat16 it does not use the matrix unit. On a
CPU one factor is therefore transposed first (benchmarks/NOTES.md).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ppax.devices.layout import rounding
from ppax.devices.platforms import RULES, float32_precision

MIN_SIDE = 16  # kernels with a shorter side are multiplied in float32: rounding would cost more than it saves
BLOCK = 8  # rows per block of a transposition in bfloat16
# A^T B in float32 of fewer rows and more results than this stays as it is: XLA spreads it over the cores
FEW_ROWS, MANY_RESULTS = 256, 2**15
AXES = {"AB": (1, 0), "ABt": (1, 1), "AtB": (0, 0)}  # contracted axis of each factor, by form of the product


def matmul(x: Array, kernel: Array) -> Array:
    """Return `x @ kernel` for x [..., k] and kernel [k, n].

    With `rounding(True)`, or for a bfloat16 kernel, both factors are rounded to bfloat16, unless the kernel is small
    (see MIN_SIDE); the product accumulates and returns float32.
    """
    if rounding.value or kernel.dtype == jnp.bfloat16:
        x, kernel = x.astype(jnp.float32), kernel.astype(jnp.float32)
        return _product(x, kernel, rounded=True) if _is_large(kernel) else float32_matmul(x, kernel)
    return float32_matmul(x, kernel) if x.dtype == kernel.dtype == jnp.float32 else x @ kernel


def factor(kernel: Array) -> Array:
    """Return `kernel` [k, n] in the precision in which `matmul` would read it here: rounded to bfloat16, or unchanged.

    It is for a backward pass of the caller's own, which multiplies by the kernel as by a constant: JAX traces such a
    backward pass later, when the context `rounding` is left already.
    """
    return kernel.astype(jnp.bfloat16) if rounding.value and _is_large(kernel) else kernel


def _is_large(kernel: Array) -> bool:
    """Return True if both sides of a kernel [k, n] are at least MIN_SIDE, so that rounding its products saves time."""
    return min(kernel.shape) >= MIN_SIDE


def _product(x: Array, kernel: Array, rounded: bool) -> Array:
    """Return `x @ kernel` [..., n] of float32 arrays by ppax's primitive, with factors in bfloat16 if `rounded`."""
    rows = product.bind(x.reshape(-1, x.shape[-1]), kernel, form="AB", rounded=rounded)
    out: Array = rows.reshape(*x.shape[:-1], kernel.shape[1])
    return out


# A forward-mode rule, which JAX transposes by itself: without a gradient the product stays an ordinary one
@jax.custom_jvp
def float32_matmul(x: Array, kernel: Array) -> Array:
    """Return `x @ kernel` of float32 arrays [..., k] and [k, n], with a gradient of the kernel that is fast on a CPU.

    The gradient is computed by the primitive `product`, which avoids products A^T B.
    """
    return jnp.matmul(x, kernel, precision=float32_precision())


def _float32_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (x, kernel), (of_x, of_kernel) = primals, tangents
    multiply = partial(jnp.matmul, precision=float32_precision())
    out = multiply(x, kernel)
    terms = [] if isinstance(of_x, SymbolicZero) else [multiply(of_x, kernel)]
    terms += [] if isinstance(of_kernel, SymbolicZero) else [_product(x, of_kernel, rounded=False)]
    return out, sum(terms[1:], terms[0]) if terms else jnp.zeros_like(out)


float32_matmul.defjvp(_float32_jvp, symbolic_zeros=True)

# Two float32 matrices, rounded to bfloat16 where `rounded`, to a float32 product
product = Primitive("ppax_product")


def _abstract_eval(a: Any, b: Any, *, form: str, rounded: bool) -> Any:
    contracted_a, contracted_b = AXES[form]
    return jax.core.ShapedArray((a.shape[1 - contracted_a], b.shape[1 - contracted_b]), jnp.float32)


def _multiply(a: Array, b: Array, *, form: str, rounded: bool) -> Array:
    contracted_a, contracted_b = AXES[form]
    axes = ((contracted_a,), (contracted_b,)), ((), ())
    if rounded:
        a, b = a.astype(jnp.bfloat16), b.astype(jnp.bfloat16)
    precision = None if rounded else float32_precision()
    return jax.lax.dot_general(a, b, axes, precision, preferred_element_type=jnp.float32)


def _multiply_transposed(a: Array, b: Array, *, form: str, rounded: bool) -> Array:
    """Return a matrix product on a CPU, where the form A^T B is slow: one factor is transposed in memory first.

    `form` says which factor counts as transposed: "AB" (none), "ABt" or "AtB". Only "AtB" is changed: A is transposed,
    or B if it is narrower. If `rounded`, factors are rounded to bfloat16.
    """
    if form == "AtB" and rounded:
        a, form = _transposed_in_blocks(a.astype(jnp.bfloat16)), "AB"
    elif form == "AtB" and b.shape[1] > 1 and (len(a) >= FEW_ROWS or a.shape[1] * b.shape[1] <= MANY_RESULTS):
        if b.shape[1] <= a.shape[1]:  # the narrower factor: (B^T A)^T
            return _kept(_multiply(_kept(b.T), a, form="AB", rounded=False)).T
        a, form = _kept(a.T), "AB"
    return _multiply(a, b, form=form, rounded=rounded)


def _kept(x: Array) -> Array:
    """Return `x` behind XLA's optimisation barrier: a transposition in `x` is not folded into the next product."""
    kept: Array = jax.lax.optimization_barrier(x)
    return kept


def _transposed_in_blocks(a: Array) -> Array:
    """Return the transposed matrix a^T, computed by blocks of rows.

    So XLA cannot fold the transposition back into the product after it.
    """
    rows, columns = a.shape
    block = BLOCK if rows % BLOCK == 0 else 1
    blocks = a.reshape(rows // block, block, columns).transpose(0, 2, 1)
    return _kept(blocks).transpose(1, 0, 2).reshape(columns, rows)


def _transpose_a(g: Array, a: Any, b: Array, *, form: str, rounded: bool) -> Array:
    """Return the gradient of a product's first factor A from the product's gradient `g`; for form "AB" it is g B^T.

    `form` says which factor of the product counts as transposed: "AB" (none), "ABt" or "AtB".
    """
    if form == "AtB":
        return product.bind(b, g, form="ABt", rounded=rounded)
    return product.bind(g, b, form={"AB": "ABt", "ABt": "AB"}[form], rounded=rounded)


def _transpose_b(g: Array, a: Array, b: Any, *, form: str, rounded: bool) -> Array:
    """Return the gradient of a product's second factor B from the product's gradient `g`; for form "AB" it is A^T g.

    `form` says which factor of the product counts as transposed: "AB" (none), "ABt" or "AtB".
    """
    if form == "ABt":
        return product.bind(g, a, form="AtB", rounded=rounded)
    return product.bind(a, g, form={"AB": "AtB", "AtB": "AB"}[form], rounded=rounded)


def _batch(factors: Any, axes: Any, *, form: str, rounded: bool) -> tuple[Array, int]:
    a, b = factors
    if form != "AtB" and axes[1] is None:  # unbatched second factor: the batch axis becomes rows of one product
        axis = min(axes[0], 1)  # the order of rows is free: only a batch axis at the end has to move
        a = jnp.moveaxis(a, axes[0], axis)
        out = product.bind(a.reshape(-1, a.shape[2]), b, form=form, rounded=rounded)
        return out.reshape(*a.shape[:2], out.shape[1]), axis
    return jax.vmap(partial(_multiply, form=form, rounded=rounded), axes)(a, b), 0


product.def_abstract_eval(_abstract_eval)
product.def_impl(jax.jit(_multiply, static_argnames=("form", "rounded")))
ad.defbilinear(product, _transpose_a, _transpose_b)
batching.primitive_batchers[product] = _batch
mlir.register_lowering(product, mlir.lower_fun(_multiply, multiple_results=False))
for platform in (name for name, own in RULES.items() if own.transposed_products):
    mlir.register_lowering(product, mlir.lower_fun(_multiply_transposed, multiple_results=False), platform=platform)
