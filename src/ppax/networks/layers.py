"""Dense layers with orthogonal initialisation, and layer normalisation.

Default gains are sqrt 2 (hidden layers), 0.01 (policy) and 1 (value), biases 0: Andrychowicz et al. 2021,
https://arxiv.org/abs/2006.05990
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.types import Key, Params, Scalar
from ppax.devices.layout import rounding
from ppax.networks.products import matmul

HIDDEN_GAIN = math.sqrt(2.0)
# Elementwise functions of jax.nn, by their names there; tests/networks/test_layers.py finds the same ones
NAMES = (
    *("tanh", "relu", "gelu", "silu", "elu", "celu", "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh"),
    *("identity", "leaky_relu", "log_sigmoid", "mish", "relu6", "selu", "sigmoid", "soft_sign", "softplus"),
    *("sparse_plus", "sparse_sigmoid", "squareplus", "swish"),
)
ACTIVATIONS = {name: getattr(jax.nn, name) for name in NAMES} | {"tanh": jnp.tanh}


def orthogonal(key: Key, size_in: int, size_out: int, gain: float) -> Array:
    """Return a random orthogonal matrix [size_in, size_out], scaled by `gain`.

    The vectors along the longer side are orthogonal, of length `gain`. Computed by Gram-Schmidt from a normal sample:
    `jax.nn.initializers.orthogonal` uses LAPACK, whose lowering imports SciPy at the start of every process.
    """
    long, short = max(size_in, size_out), min(size_in, size_out)

    def orthogonalise(j: Array, q: Array) -> Array:
        v = q[:, j]
        for _ in range(2):  # two passes suffice for float32 accuracy: Giraud et al. 2005
            v = v - q @ jnp.where(jnp.arange(short) < j, q.T @ v, 0.0)
        return q.at[:, j].set(v / jnp.linalg.norm(v))

    q = gain * jax.lax.fori_loop(0, short, orthogonalise, jax.random.normal(key, (long, short), jnp.float32))
    return q if size_in >= size_out else q.T


def init_dense(key: Key, size_in: int, size_out: int, gain: float) -> Params:
    """Return new parameters of a linear layer: orthogonal weights with this gain, and zero bias."""
    return {"kernel": orthogonal(key, size_in, size_out, gain), "bias": jnp.zeros(size_out, jnp.float32)}


def dense(params: Params, x: Array) -> Array:
    """Return x W + b for a vector x [size_in], from the parameters of a linear layer."""
    return matmul(x, params["kernel"]) + params["bias"]


def rescaled_dense(params: Params, scale: Scalar, shift: Scalar) -> Params:
    """Return a linear layer's parameters, changed: its outputs become `scale` * (old outputs) + `shift`.

    A critic whose value targets change their scale, such as PopArt, keeps its values V in this way.
    """
    return params | {"kernel": params["kernel"] * scale, "bias": params["bias"] * scale + shift}


def init_layers(
    key: Key, size_in: int, widths: tuple[int, ...], gain: float = HIDDEN_GAIN, layer_norm: bool = False
) -> Params:
    """Return new parameters of consecutive dense layers of these widths, by name "0", "1", ...

    With `layer_norm`, each layer also has the parameters of a layer normalisation, under "norm".
    """
    sizes, keys = (size_in, *widths), jax.random.split(key, len(widths)) if widths else ()
    params = {str(i): init_dense(k, sizes[i], sizes[i + 1], gain) for i, k in enumerate(keys)}
    norms = {name: {"norm": init_norm(layer["bias"].shape[0])} if layer_norm else {} for name, layer in params.items()}
    return {name: layer | norms[name] for name, layer in params.items()}


def layers(
    params: Params, x: Array, widths: tuple[int, ...], activation: str, exact: bool = False, residual: bool = False
) -> Array:
    """Return the output [last width] of consecutive dense layers for one vector.

    After each layer follow its layer normalisation, if it has one, and the activation. With `residual`, a layer with as
    many outputs as inputs adds its input (He et al. 2016, https://arxiv.org/abs/1512.03385). With `exact`, the first
    layer computes in full precision, even where the others round the factors of their products to bfloat16.
    """
    for i in range(len(widths)):
        layer = params[str(i)]
        with rounding(rounding.value and not (exact and i == 0)):
            y = dense(layer, x)
        y = ACTIVATIONS[activation](layer_norm(layer["norm"], y) if "norm" in layer else y)
        x = x + y if residual and x.shape == y.shape else y
    return x


SIMBA_EXPANSION = 4  # width inside a block of SimBa, in widths of the stream


def init_simba(key: Key, size_in: int, widths: tuple[int, ...], gain: float = HIDDEN_GAIN) -> Params:
    """Return new parameters of SimBa's layers: linear layer "0", a residual block for each width, layer norm "norm".

    Blocks are named "1", "2", ...; their weights are normal with standard deviation `gain` / sqrt(inputs), which is He
    initialisation for the default gain. The linear layer is orthogonal with gain 1. All widths are equal.
    """
    size, first, *keys = widths[0], *jax.random.split(key, len(widths) + 1)

    def init_linear(key: Key, size_in: int, size_out: int) -> Params:
        kernel = jax.random.normal(key, (size_in, size_out), jnp.float32) * (gain / math.sqrt(size_in))
        return {"kernel": kernel, "bias": jnp.zeros(size_out, jnp.float32)}

    def init_block(key: Key) -> Params:
        grow_key, shrink_key = jax.random.split(key)
        inner = SIMBA_EXPANSION * size
        grow, shrink = init_linear(grow_key, size, inner), init_linear(shrink_key, inner, size)
        return {"norm": init_norm(size), "grow": grow, "shrink": shrink}

    blocks = {str(i): init_block(k) for i, k in enumerate(keys, 1)}
    return {"0": init_dense(first, size_in, size, 1.0), **blocks, "norm": init_norm(size)}


def simba(params: Params, x: Array, widths: tuple[int, ...], exact: bool = False) -> Array:
    """Return the output of SimBa's layers for one vector. Lee et al. 2024, https://arxiv.org/abs/2410.09754, section 4.

    A linear layer; then blocks x + W2 relu(W1 layer_norm(x)), where W1 has 4 * width outputs; then a layer
    normalisation. With `exact`, the linear layer computes in full precision, even where the others round the factors
    of their products to bfloat16.
    """
    with rounding(rounding.value and not exact):
        x = dense(params["0"], x)
    for i in range(1, len(widths) + 1):
        block = params[str(i)]
        inner = jax.nn.relu(dense(block["grow"], layer_norm(block["norm"], x)))
        x = x + dense(block["shrink"], inner)
    return layer_norm(params["norm"], x)


def init_norm(size: int) -> Params:
    """Return new parameters of a layer normalisation of vectors [size]: scale 1, bias 0."""
    return {"scale": jnp.ones(size, jnp.float32), "bias": jnp.zeros(size, jnp.float32)}


def layer_norm(params: Params, x: Array) -> Array:
    """Return one vector [size] normalised to mean 0 and variance 1, then scaled and shifted by the parameters.

    Ba et al. 2016, https://arxiv.org/abs/1607.06450
    """
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean()
    return (centred * jax.lax.rsqrt((centred**2).mean() + 1e-6)).astype(x.dtype) * params["scale"] + params["bias"]
