"""Convolutions of DQN: Mnih et al. 2015, https://doi.org/10.1038/nature14236

The paper's network adds one dense layer: `hidden = [512]`, `activation = "relu"`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.types import Key, Params, PyTree, part, static
from ppax.networks.encoders.convolution import LAYOUTS, channels_last, conv, init_convs

SIZES, STRIDES = (8, 4, 3), (4, 2, 1)


@part
class NatureCNN:
    """DQN's three convolutions with relu, for images of at least 36 x 36 pixels.

    Filters and strides: 8 x 8 with 4, 4 x 4 with 2, 3 x 3 with 1.
    """

    channels: tuple[int, ...] = static("channels of the three convolutions", default=(32, 64, 64), low=1)
    layout: str = static("axis order of images: channels last or first", default="hwc", choices=LAYOUTS)

    def init(self, key: Key, example: PyTree) -> Params:
        """Return filters for images of the shape of `example`."""
        return init_convs(key, SIZES, (channels_last(example, self.layout).shape[-1], *self.channels))

    def __call__(self, params: Params, x: Array) -> Array:
        """Return the flattened features of one image."""
        x = channels_last(x, self.layout)
        for i, stride in enumerate(STRIDES):
            x = jax.nn.relu(conv(params[str(i)], x, stride))
        return jnp.ravel(x)
