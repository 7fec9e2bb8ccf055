"""Residual convolutions of IMPALA: Espeholt et al. 2018, https://arxiv.org/abs/1802.01561, figure 3, right.

The paper's network adds one dense layer: `hidden = [256]`, `activation = "relu"`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.types import Key, Params, PyTree, part, static
from ppax.networks.encoders.convolution import LAYOUTS, channels_last, conv, init_convs, max_pool


@part
class ImpalaCNN:
    """IMPALA's residual network: a stage for each of `channels`, then relu.

    A stage is a 3 x 3 convolution, max pooling that halves the image, and two residual blocks of 3 x 3 convolutions.
    """

    channels: tuple[int, ...] = static("channels of each stage", default=(16, 32, 32), low=1)
    layout: str = static("axis order of images: channels last or first", default="hwc", choices=LAYOUTS)

    def init(self, key: Key, example: PyTree) -> Params:
        """Return filters for images of the shape of `example`, five convolutions for each stage."""
        channels = (channels_last(example, self.layout).shape[-1], *self.channels)
        keys = jax.random.split(key, len(self.channels))
        stages = zip(keys, channels[:-1], channels[1:], strict=True)
        return {str(i): init_convs(k, (3,) * 5, (size, *(out,) * 5)) for i, (k, size, out) in enumerate(stages)}

    def __call__(self, params: Params, x: Array) -> Array:
        """Return the flattened features of one image."""
        x = channels_last(x, self.layout)
        for i in range(len(self.channels)):
            stage = params[str(i)]
            x = max_pool(conv(stage["0"], x, padding="SAME"))
            for one, other in (("1", "2"), ("3", "4")):
                inner = conv(stage[one], jax.nn.relu(x), padding="SAME")
                x = x + conv(stage[other], jax.nn.relu(inner), padding="SAME")
        return jnp.ravel(jax.nn.relu(x))
