"""Linear recurrent unit: Orvieto et al. 2023, https://arxiv.org/abs/2303.06349

A diagonal linear recurrence over complex numbers inside the unit circle, in a block
with a gated output and a skip connection (the paper's figure 1).
"""

from __future__ import annotations

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.types import ConfigError, Key, Memory, Params, PyTree, part, static
from ppax.networks.layers import dense, init_dense
from ppax.networks.memories.recurrence import linear_recurrence
from ppax.networks.products import matmul


@part
class LRU:
    """Memory by a linear recurrent unit: complex states with a learned decay rate and phase each."""

    width: int = static("size of output and state: width / 2 complex units; must be even", default=64, low=2)
    r_min: float = static("initial eigenvalues: least modulus (share kept per step)", default=0.9, low=0.0, high=0.999)
    r_max: float = static(
        "initial eigenvalues: largest modulus (share kept per step)", default=0.999, low=0.0, high=0.9999
    )
    max_phase: float = static("initial eigenvalues: largest phase, in radians per step", default=math.pi / 10, low=0.0)

    steps_at_once: ClassVar[bool] = True
    own_products: ClassVar[bool] = True

    def init(self, key: Key, size: int) -> Params:
        """Return new parameters of an LRU for features [size], drawn as in the paper's appendix A.

        The absolute values of the eigenvalues are uniform in area between the radii r_min and r_max; input, output and
        skip weights are normal. Raises ConfigError where `width` is odd.
        """
        if self.width % 2:
            raise ConfigError(f"network.memory: width = {self.width} must be even; nearest: {self.width + 1}")
        radius_key, phase_key, embed_key, in_key, out_key, skip_key, gate_key = jax.random.split(key, 7)
        units = self.width // 2
        area = jax.random.uniform(radius_key, (units,), jnp.float32)
        low, high = min(self.r_min, self.r_max), max(self.r_min, self.r_max)
        squared = area * (high**2 - low**2) + low**2
        phase = self.max_phase * jax.random.uniform(phase_key, (units,), jnp.float32, minval=1e-4)
        shape, embed = (self.width, self.width), init_dense(embed_key, size, self.width, 1.0)
        return {
            "nu": jnp.log(-0.5 * jnp.log(jnp.maximum(squared, 1e-8))),  # lambda = exp(-exp(nu) + i exp(theta))
            "theta": jnp.log(jnp.maximum(phase, 1e-8)),
            "gamma": 0.5 * jnp.log(1.0 - squared),  # eq. 7, learned as a logarithm
            "in": jax.random.normal(in_key, shape, jnp.float32) * (2 * self.width) ** -0.5,
            "out": jax.random.normal(out_key, shape, jnp.float32) * units**-0.5,
            "skip": jax.random.normal(skip_key, (self.width,), jnp.float32),
            "gate": init_dense(gate_key, self.width, self.width, 1.0),
            **({"embed": embed} if size != self.width else {}),
        }

    def output_size(self, size: int) -> int:
        """Return the length of the LRU's output, which is `width`."""
        return self.width

    def initial_carry(self, size: int) -> Array:
        """Return the zero state [width] of an LRU at an episode's start: real parts, then imaginary parts."""
        return jnp.zeros(self.width, jnp.float32)

    def project_in(self, params: Params, x: Array) -> dict[str, Array]:
        """Return one step's features and the input of the LRU's recurrence, [width] each.

        Features whose size is not `width` are embedded by a dense layer before.
        """
        embedded = dense(params["embed"], x) if "embed" in params else x
        scale = jnp.exp(params["gamma"])
        return {"x": embedded, "input": matmul(embedded, params["in"]) * jnp.concatenate([scale, scale])}

    def scan(self, params: Params, carry: PyTree, x: PyTree, first: Array) -> Memory:
        """Return an LRU's last state [width] and, for each of L steps of one stream, its state and features.

        States and features are [L, width]. A stream is one agent in one environment; `first` [L] resets the state
        before a step where it is True. A state's real parts stand before its imaginary parts.
        """
        nu, theta = (params[name].astype(jnp.float32) for name in ("nu", "theta"))
        eigenvalues = jnp.exp(jax.lax.complex(-jnp.exp(nu), jnp.exp(theta)))
        inputs = _complex(x["input"].astype(jnp.float32))
        decay = jnp.broadcast_to(eigenvalues, inputs.shape)
        carry, h = linear_recurrence(decay, inputs, _complex(carry), first)
        return Memory(_real(carry), {"x": x["x"], "h": _real(h)})

    def project_out(self, params: Params, y: PyTree) -> Array:
        """Return the LRU block's output [width] of one step: the gated output plus the skip connection."""
        hidden = jax.nn.gelu(matmul(y["h"], params["out"]) + params["skip"] * y["x"])
        features: Array = y["x"] + hidden * jax.nn.sigmoid(dense(params["gate"], hidden))
        return features


def _complex(x: Array) -> Array:
    return jax.lax.complex(*jnp.split(x, 2, axis=-1))


def _real(x: Array) -> Array:
    return jnp.concatenate([x.real, x.imag], axis=-1)
