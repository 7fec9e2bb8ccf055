"""What convolutional encoders share: images as [height, width, channels], orthogonal filters."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import Array

from ppax.networks.layers import orthogonal
from ppax.types import Key, Params

LAYOUTS = ("hwc", "chw")


def init_conv(key: Key, size: int, channels_in: int, channels_out: int) -> Params:
    """Filters of `size` x `size`: orthogonal as a matrix from a patch to the channels, gain sqrt 2; zero bias."""
    matrix = orthogonal(key, size * size * channels_in, channels_out, math.sqrt(2.0))
    return {
        "kernel": matrix.reshape(size, size, channels_in, channels_out),
        "bias": jnp.zeros(channels_out, jnp.float32),
    }


def conv(params: Params, x: Array, stride: int = 1, padding: str = "VALID") -> Array:
    """Cross-correlation of one image [height, width, channels] with the filters."""
    y = jax.lax.conv_general_dilated(
        x[None], params["kernel"], (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return y[0] + params["bias"][None, None]


def max_pool(x: Array) -> Array:
    """The largest of each 3 x 3, every second row and column."""
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (3, 3, 1), (2, 2, 1), "SAME")


def channels_last(x: Array, layout: str) -> Array:
    """An image as [height, width, channels]."""
    return x if layout == "hwc" else jnp.moveaxis(x, 0, -1)


def init_convs(key: Key, sizes: tuple[int, ...], channels: tuple[int, ...]) -> Params:
    """One convolution after the other, numbered "0", "1", ...; `channels` begins with the image's."""
    keys = jax.random.split(key, len(sizes))
    return {str(i): init_conv(keys[i], size, channels[i], channels[i + 1]) for i, size in enumerate(sizes)}
