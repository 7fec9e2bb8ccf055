"""Modules of Flax and Equinox for observations of any shape, named by import path in configurations of tests."""

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import linen, nnx


def summary(x):
    """Mean and largest entry of an observation, [2]."""
    leaves = [leaf.ravel() for leaf in jax.tree.leaves(x)]
    flat = jnp.concatenate(leaves)
    return jnp.concatenate([flat.mean(keepdims=True), flat.max(keepdims=True)])


class NNXTorso(nnx.Module):
    def __init__(self, width: int = 6, *, rngs: nnx.Rngs):
        self.layer = nnx.Linear(2, width, rngs=rngs)

    def __call__(self, x):
        return nnx.tanh(self.layer(summary(x)))


class LinenTorso(linen.Module):
    width: int = 6

    @linen.compact
    def __call__(self, x):
        return linen.tanh(linen.Dense(self.width, name="layer")(summary(x)))


class EquinoxTorso(eqx.Module):
    layer: eqx.nn.Linear

    def __init__(self, width: int = 6, *, key):
        self.layer = eqx.nn.Linear(2, width, key=key)

    def __call__(self, x):
        return jnp.tanh(self.layer(summary(x)))


def linen_function(width):
    return LinenTorso(width)


def linen_memory(memory):
    """Its argument is called like a part of ppax's networks."""
    return LinenTorso(memory)


def nnx_function(source, width=6):
    """Its parameter for randomness has a name of its own."""
    return NNXTorso(width, rngs=source)


nnx_layer = nnx.Linear  # of another package
linen_instance = LinenTorso(5)
nnx_instance = NNXTorso(5, rngs=nnx.Rngs(3))
equinox_instance = EquinoxTorso(5, key=jax.random.key(3))


class NNXActorCritic(nnx.Module):
    """Logits and value of CartPole."""

    def __init__(self, actions: int = 2, *, rngs: nnx.Rngs):
        self.torso = nnx.Linear(4, 8, rngs=rngs)
        self.policy, self.value = nnx.Linear(8, actions, rngs=rngs), nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, x):
        x = nnx.tanh(self.torso(x))
        return self.policy(x), self.value(x)[0]


class LinenActorCritic(linen.Module):
    """Means, log standard deviations of its own, and value, of continuous actions."""

    actions: int = 1
    widths: tuple[int, ...] = (8,)

    @linen.compact
    def __call__(self, x):
        for width in self.widths:
            x = linen.gelu(linen.LayerNorm()(linen.Dense(width)(x)))
        log_std = self.param("log_std", linen.initializers.constant(-0.5), (self.actions,))
        return linen.Dense(self.actions)(x), log_std, linen.Dense(1)(x)


class EquinoxActorCritic(eqx.Module):
    """Logits and value of CartPole."""

    torso: eqx.nn.MLP
    value: eqx.nn.Linear

    def __init__(self, key):
        torso, value = jax.random.split(key)
        self.torso = eqx.nn.MLP(4, 2, width_size=8, depth=1, key=torso)
        self.value = eqx.nn.Linear(4, 1, key=value)

    def __call__(self, x):
        return self.torso(x), self.value(x)


# ---------------------------------------------------------------- refused


class LinenDropout(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dropout(0.1, deterministic=False)(linen.Dense(4)(x))


class LinenBatchNorm(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.BatchNorm(use_running_average=True)(linen.Dense(4)(x))


def nnx_dropout(rngs):
    return nnx.Sequential(nnx.Linear(4, 3, rngs=rngs), nnx.Dropout(0.1, rngs=rngs))


def nnx_batch_norm(rngs):
    return nnx.Sequential(nnx.Linear(4, 3, rngs=rngs), nnx.BatchNorm(3, rngs=rngs))


def equinox_dropout(key):
    return eqx.nn.Sequential([eqx.nn.Linear(4, 3, key=key), eqx.nn.Dropout(0.1)])


def equinox_batch_norm(key):
    return eqx.nn.Sequential([eqx.nn.Linear(4, 3, key=key), eqx.nn.BatchNorm(3, axis_name="batch", mode="ema")])


class Output(linen.Module):
    """Zeros of the given shapes: one array, or a tuple of several."""

    shapes: tuple = ((3,),)

    @linen.compact
    def __call__(self, x):
        arrays = tuple(jnp.zeros(shape) for shape in self.shapes)
        return arrays if len(arrays) > 1 else arrays[0]
