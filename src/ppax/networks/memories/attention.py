"""Attention over the last few steps: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762

With a learned weight for each distance (Raffel et al. 2020, https://arxiv.org/abs/1910.10683, section 2.1), and layer
norms before each half of the block (Parisotto et al. 2020, https://arxiv.org/abs/1910.06764).

The carry is a cache of keys and values of recent steps, so acting computes each of them once.
"""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.types import ConfigError, Key, Memory, Params, PyTree, part, static
from ppax.devices.platforms import float32_precision
from ppax.networks.layers import dense, init_dense, init_norm, layer_norm
from ppax.networks.memories.window import Recent, empty_window, prepend_recent


@part
class Attention:
    """Memory by attention: a causal transformer block over the last `steps` steps of the episode."""

    width: int = static("model width: size of the embedding and of the output", default=64, low=1)
    steps: int = static("context length: steps attended to, including the current one", default=16, low=1)
    heads: int = static("attention heads; must divide the width", default=4, low=1)

    steps_at_once: ClassVar[bool] = True
    own_products: ClassVar[bool] = True

    def init(self, key: Key, size: int) -> Params:
        """Return new parameters of the attention memory (embedding, attention, two dense layers) for features [size].

        Raises ConfigError where `heads` does not divide `width`.
        """
        if self.width % self.heads:
            raise ConfigError(f"network.memory: heads = {self.heads} does not divide width = {self.width}")
        embed, qkv, out, grow, shrink = jax.random.split(key, 5)
        return {
            "embed": init_dense(embed, size, self.width, 1.0),
            "norm": init_norm(self.width),
            "qkv": init_dense(qkv, self.width, 3 * self.width, 1.0),
            "distance": jnp.zeros((self.heads, self.steps), jnp.float32),
            "out": init_dense(out, self.width, self.width, 1.0),
            "norm2": init_norm(self.width),
            "grow": init_dense(grow, self.width, 2 * self.width, 2.0**0.5),
            "shrink": init_dense(shrink, 2 * self.width, self.width, 1.0),
        }

    def output_size(self, size: int) -> int:
        """Return the length of the attention memory's output, which is `width`."""
        return self.width

    def initial_carry(self, size: int) -> Recent:
        """Return the attention memory's empty cache of keys and values, for the last `steps` - 1 steps."""
        return empty_window(self.steps - 1, 2 * self.width)

    def project_in(self, params: Params, x: Array) -> dict[str, Array]:
        """Return what attention reads of one step: embedded features, query, and key and value joined.

        Their sizes are [width], [width] and [2 width].
        """
        x = dense(params["embed"], x)
        qkv = dense(params["qkv"], layer_norm(params["norm"], x))
        return {"x": x, "query": qkv[: self.width], "kv": qkv[self.width :]}

    def scan(self, params: Params, carry: PyTree, x: PyTree, first: Array) -> Memory:
        """Return the attention memory's new cache of keys and values, and for each of L steps what `project_out` reads.

        That is a dict with "x", the embedded features, and "attended", the attention output, [L, width] each. The
        argument `x` is what `project_in` returns, for a sequence of L steps of one stream (one agent in one
        environment). `carry` is the cache before it. `first` [L] is True where an episode begins; a step attends to no
        step of an earlier episode.
        """
        past = prepend_recent(carry, x["kv"].astype(jnp.float32), first)
        recent, length = past.recent(self.steps - 1), first.shape[0]
        # blocks of about `steps` queries: cost grows linearly with L, not with its square
        block = next(n for n in range(min(self.steps, length), 0, -1) if length % n == 0)

        def attend(start: Array) -> Array:
            query = jax.lax.dynamic_slice_in_dim(x["query"], start, block)
            window = jax.tree.map(lambda y: jax.lax.dynamic_slice_in_dim(y, start, block + self.steps - 1), past)
            return self._attend(params["distance"], query, window.steps.astype(query.dtype), window.episode)

        attended = jax.vmap(attend)(jnp.arange(0, length, block)) if block < length else attend(jnp.int32(0))[None]
        return Memory(recent, {"x": x["x"], "attended": attended.reshape(length, self.width)})

    def _attend(self, distance: Array, query: Array, kv: Array, episode: Array) -> Array:
        """Return the attention output [n, width] of n queries over keys and values [n + steps - 1, 2 width].

        Each query is a step's; it attends to the last `steps` steps, its own included, as far as they are of its
        episode. `distance` [heads, steps] are learned terms of the scores, one for each distance in time. `episode` [n
        + steps - 1] numbers the episodes of the keys' steps.
        """
        n, size = query.shape[0], self.width // self.heads
        key, value = (y.reshape(-1, self.heads, size) for y in jnp.split(kv, 2, axis=-1))
        scores = (
            jnp.einsum("qhd,khd->hqk", query.reshape(n, self.heads, size), key, precision=float32_precision()).astype(
                jnp.float32
            )
            * size**-0.5
        )
        distances = jnp.arange(n)[:, None] + self.steps - 1 - jnp.arange(n + self.steps - 1)[None]  # [n, keys]
        allowed = (distances >= 0) & (distances < self.steps) & (episode[None] == episode[self.steps - 1 :, None])
        # asarray: parameters of a loaded policy are NumPy arrays, which cannot be indexed by traced arrays
        scores += jnp.asarray(distance, jnp.float32)[:, jnp.clip(distances, 0, self.steps - 1)]
        weights = jax.nn.softmax(jnp.where(allowed[None], scores, -jnp.inf))
        return jnp.einsum("hqk,khd->qhd", weights.astype(value.dtype), value, precision=float32_precision()).reshape(
            n, self.width
        )

    def project_out(self, params: Params, y: PyTree) -> Array:
        """Return the attention block's output [width] of one step: after residual connections and dense layers."""
        x = y["x"] + dense(params["out"], y["attended"])
        wide = jax.nn.gelu(dense(params["grow"], layer_norm(params["norm2"], x)))
        return x + dense(params["shrink"], wide)
