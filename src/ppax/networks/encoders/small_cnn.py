"""Convolution of MinAtar's networks: Young and Tian 2019, https://arxiv.org/abs/1903.03176

The paper's network adds one dense layer: `hidden = [128]`, `activation = "relu"`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.types import Key, Params, PyTree, part, static
from ppax.networks.encoders.convolution import LAYOUTS, channels_last, conv, init_convs


@part
class SmallCNN:
    """Convolutions of 3 x 3 with relu, one for each of `channels`; for images of about 10 x 10 pixels."""

    channels: tuple[int, ...] = static("channels of each convolution", default=(16,), low=1)
    layout: str = static("axis order of images: channels last or first", default="hwc", choices=LAYOUTS)

    def init(self, key: Key, example: PyTree) -> Params:
        """Return filters for images of the shape of `example`."""
        channels = (channels_last(example, self.layout).shape[-1], *self.channels)
        return init_convs(key, (3,) * len(self.channels), channels)

    def __call__(self, params: Params, x: Array) -> Array:
        """Return the flattened features of one image."""
        x = channels_last(x, self.layout)
        for i in range(len(self.channels)):
            x = jax.nn.relu(conv(params[str(i)], x))
        return jnp.ravel(x)
