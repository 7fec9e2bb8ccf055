"""Convolution and max pooling of images [height, width, channels], with orthogonal initialisation."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.types import Key, Params
from ppax.devices.platforms import float32_precision, rules
from ppax.networks.layers import orthogonal
from ppax.networks.products import matmul

LAYOUTS = ("hwc", "chw")


def init_conv(key: Key, size: int, channels_in: int, channels_out: int) -> Params:
    """Return `size` x `size` filters, orthogonal as a matrix from patch to channels, gain sqrt 2; zero bias."""
    matrix = orthogonal(key, size * size * channels_in, channels_out, math.sqrt(2.0))
    return {
        "kernel": matrix.reshape(size, size, channels_in, channels_out),
        "bias": jnp.zeros(channels_out, jnp.float32),
    }


def conv(params: Params, x: Array, stride: int = 1, padding: str = "VALID") -> Array:
    """Convolve one image [height, width, channels] with the filters, in the precision of the filters.

    On a CPU it uses matrix products, because XLA's CPU convolutions are 10 to 40 times slower inside a loop
    (https://github.com/jax-ml/jax/issues/12868); on accelerators it uses XLA's convolution.
    """
    convolve = convolve_by_library if rules().library_convolutions else convolve_by_products
    return convolve(x, params["kernel"], stride, padding) + params["bias"][None, None]


def convolve_by_library(x: Array, kernel: Array, stride: int, padding: str) -> Array:
    """Convolve [H, W, C] with [h, w, C, D] to [H', W', D] by XLA's convolution."""
    axes = ("NHWC", "HWIO", "NHWC")
    y: Array = jax.lax.conv_general_dilated(
        x[None].astype(kernel.dtype),
        kernel,
        (stride, stride),
        padding,
        dimension_numbers=axes,
        precision=None if kernel.dtype == jnp.bfloat16 else float32_precision(),
    )
    return y[0].astype(jnp.float32)


def convolve_by_products(x: Array, kernel: Array, stride: int, padding: str) -> Array:
    """Convolve [H, W, C] with [h, w, C, D] to [H', W', D] by one product of patches and filters (im2col).

    First, blocks of stride x stride pixels become channels (space to depth). The remaining convolution has stride 1;
    its patches are plain slices, whose gradient is padding: both are cheap, unlike slices with a stride.
    """
    rows, columns = x.shape[:2]
    high, wide, _, filters = kernel.shape
    (top, bottom), (left, right) = (_margins(*sizes, stride, padding) for sizes in ((rows, high), (columns, wide)))
    down, across = (rows + top + bottom - high) // stride + 1, (columns + left + right - wide) // stride + 1
    if min(down, across) <= 0:
        return jnp.zeros((max(down, 0), max(across, 0), filters), jnp.float32)
    n, m = -(-high // stride), -(-wide // stride)  # blocks covered by a filter
    ends = (
        (down + n - 1) * stride - rows - top,
        (across + m - 1) * stride - columns - left,
    )  # padding at the end; negative: crop unused pixels
    x = jax.lax.pad(x, jnp.zeros((), x.dtype), ((top, ends[0], 0), (left, ends[1], 0), (0, 0, 0)))
    kernel = jnp.pad(kernel, ((0, n * stride - high), (0, m * stride - wide), (0, 0), (0, 0)))
    if stride > 1:
        x, kernel = _blocks(x, stride), _blocks(kernel, stride)
    slices = [x[i : i + down, j : j + across] for i in range(n) for j in range(m)]
    patches = jnp.concatenate(slices, axis=-1).reshape(down * across, -1)
    return matmul(patches, kernel.reshape(-1, filters)).reshape(down, across, filters)


def _margins(size: int, window: int, stride: int, padding: str) -> tuple[int, int]:
    """Return the number of padding pixels before and after `size` pixels."""
    ((before, after),) = jax.lax.padtype_to_pads((size,), (window,), (stride,), padding)
    return before, after


def _blocks(x: Array, size: int) -> Array:
    """Reshape [H, W, C, ...] to [H / size, W / size, size * size * C, ...] (space to depth)."""
    rows, columns, channels, *rest = x.shape
    x = x.reshape(rows // size, size, columns // size, size, channels, *rest)
    return jnp.moveaxis(x, 2, 1).reshape(rows // size, columns // size, size * size * channels, *rest)


def max_pool(x: Array) -> Array:
    """Max pooling with window 3 x 3, stride 2 and padding "SAME".

    On a CPU by comparing slices. The gradient is that of XLA's pooling: among equal numbers, the first receives it.
    """
    if rules().library_convolutions:
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (3, 3, 1), (2, 2, 1), "SAME")
    return _largest_of_three(_largest_of_three(x, 1), 0)


def _largest_of_three(x: Array, axis: int) -> Array:
    """Max pooling along `axis` with window 3 and stride 2."""
    size = x.shape[axis]
    before, _ = _margins(size, 3, 2, "SAME")
    out = -(-size // 2)
    margins = [(0, 0, 0)] * x.ndim
    margins[axis] = before, 2 * (out + 1) - size - before, 0
    x = jax.lax.pad(x, jnp.asarray(-jnp.inf, x.dtype), margins)
    pairs = x.reshape(*x.shape[:axis], out + 1, 2, *x.shape[axis + 1 :])  # a slice with a stride has a slow gradient
    even, odd = (jax.lax.index_in_dim(pairs, i, axis + 1, keepdims=False) for i in range(2))
    first, second, third = (jax.lax.slice_in_dim(y, i, out + i, axis=axis) for y, i in ((even, 0), (odd, 0), (even, 1)))
    return _larger(_larger(first, second), third)


def _larger(a: Array, b: Array) -> Array:
    """Return the elementwise maximum; `a` where both are equal, NaN where one of them is NaN."""
    return jnp.where((a >= b) | (a != a), a, b)


def channels_last(x: Array, layout: str) -> Array:
    """Return an image as [height, width, channels]."""
    return x if layout == "hwc" else jnp.moveaxis(x, 0, -1)


def init_convs(key: Key, sizes: tuple[int, ...], channels: tuple[int, ...]) -> Params:
    """Return parameters of consecutive convolutions, named "0", "1", ...; `channels[0]` is that of the image."""
    keys = jax.random.split(key, len(sizes))
    return {str(i): init_conv(keys[i], size, channels[i], channels[i + 1]) for i, size in enumerate(sizes)}
