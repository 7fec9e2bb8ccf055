"""The residual convolutions of IMPALA: Espeholt et al. 2018, https://arxiv.org/abs/1802.01561, figure 3, right.

The paper's network is these and one dense layer: `hidden = [256]`, `activation = "relu"`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ppax.networks.encoders.convolution import LAYOUTS, channels_last, conv, init_convs, max_pool
from ppax.types import Key, Params, PyTree, part, static


@part
class ImpalaCNN:
    """A stage for each of `channels`: convolution, halving, two residual blocks; all of 3 x 3. In the end relu."""

    channels: tuple[int, ...] = static("channels of each stage", default=(16, 32, 32), low=1)
    layout: str = static("order of an image's axes", default="hwc", choices=LAYOUTS)

    def init(self, key: Key, example: PyTree) -> Params:
        """Filters for images like `example`, five convolutions a stage."""
        channels = (channels_last(example, self.layout).shape[-1], *self.channels)
        keys = jax.random.split(key, len(self.channels))
        stages = zip(keys, channels[:-1], channels[1:], strict=True)
        return {str(i): init_convs(k, (3,) * 5, (before, *(own,) * 5)) for i, (k, before, own) in enumerate(stages)}

    def __call__(self, params: Params, x: Array) -> Array:
        """One image to a vector."""
        x = channels_last(x, self.layout)
        for i in range(len(self.channels)):
            stage = params[str(i)]
            x = max_pool(conv(stage["0"], x, padding="SAME"))
            for one, other in (("1", "2"), ("3", "4")):
                inner = conv(stage[one], jax.nn.relu(x), padding="SAME")
                x = x + conv(stage[other], jax.nn.relu(inner), padding="SAME")
        return jnp.ravel(jax.nn.relu(x))
