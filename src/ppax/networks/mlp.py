"""Multi-layer perceptron, one torso for actor and critic or one for each; it remembers nothing.

Orthogonal initialisation with gains sqrt 2 (hidden), 0.01 (policy), 1 (value), biases 0: Andrychowicz et al. 2021,
https://arxiv.org/abs/2006.05990
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from gymnasium import spaces
from jax import Array

from ppax.networks.heads import Head, head_for
from ppax.types import ConfigError, Key, Memory, Outputs, Params, PyTree, part, static

ACTIVATIONS = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "elu": jax.nn.elu,
}


def dense(size_in: int, size_out: int, gain: float, rngs: nnx.Rngs) -> nnx.Linear:
    """A linear layer with orthogonal weights and zero bias."""
    return nnx.Linear(size_in, size_out, kernel_init=nnx.initializers.orthogonal(gain), rngs=rngs)


class Modules(nnx.Module):
    """The layers, in Flax; never called outside a traced function."""

    def __init__(self, network: MLP, rngs: nnx.Rngs):
        activation = ACTIVATIONS[network.activation]

        def torso() -> nnx.Sequential:
            layers: list[Any] = []
            size = math.prod(network.obs_shape)
            for width in network.hidden:
                layers += [dense(size, width, math.sqrt(2.0), rngs), activation]
                size = width
            return nnx.Sequential(*layers)

        features = network.hidden[-1] if network.hidden else math.prod(network.obs_shape)
        self.actor = torso()
        self.critic = None if network.shared else torso()
        self.policy = dense(features, network.head.size, 0.01, rngs)
        self.value = dense(features, 1, 1.0, rngs)
        size = network.head.log_std_size
        self.log_std = nnx.Param(jnp.full(size, network.log_std_init)) if size else None

    def encode(self, obs: Array) -> tuple[Array, Array]:
        """Features for the policy and for the value."""
        x = jnp.ravel(obs).astype(jnp.float32)
        actor = self.actor(x)
        return actor, actor if self.critic is None else self.critic(x)

    def decide(self, features: tuple[Array, Array], head: Head, action_mask: Array | None) -> Outputs:
        """Distribution and value."""
        actor, critic = features
        log_std = None if self.log_std is None else self.log_std[...]
        return Outputs(head(self.policy(actor), log_std, action_mask), self.value(critic)[0])


@functools.lru_cache(maxsize=64)
def graphdef(network: MLP) -> Any:
    """The network's structure without its numbers; built once, without arrays."""
    return nnx.graphdef(nnx.eval_shape(lambda: Modules(network, nnx.Rngs(0))))


@part
class MLP:
    """Feedforward actor and critic. Make one with `mlp(env)`."""

    obs_shape: tuple[int, ...] = static()
    head: Head = static()
    hidden: tuple[int, ...] = static("widths of the hidden layers", default=(64, 64), low=1)
    activation: str = static("after each hidden layer", default="tanh", choices=tuple(ACTIVATIONS))
    shared: bool = static("one torso for actor and critic instead of one each", default=False)
    log_std_init: float = static("log standard deviation at the start, for Box actions", default=0.0)

    def init(self, key: Key) -> Params:
        """Fresh parameters, a nested dict."""
        return nnx.to_pure_dict(nnx.state(Modules(self, nnx.Rngs(key)), nnx.Param))

    def initial_carry(self) -> PyTree:
        """No memory."""
        return ()

    def encode(self, params: Params, obs: PyTree) -> PyTree:
        """Features of one observation for actor and critic."""
        return nnx.merge(graphdef(self), nnx.State(params)).encode(obs)

    def remember(self, params: Params, carry: PyTree, features: PyTree, first: Array) -> Memory:
        """The features as they are."""
        return Memory(carry, features)

    def decide(self, params: Params, features: PyTree, action_mask: PyTree | None) -> Outputs:
        """Distribution and value from one pair of features."""
        return nnx.merge(graphdef(self), nnx.State(params)).decide(features, self.head, action_mask)


def mlp(
    env: Any,
    hidden: Sequence[int] = (64, 64),
    activation: str = "tanh",
    shared: bool = False,
    log_std_init: float = 0.0,
) -> MLP:
    """An MLP for the spaces of `env` (anything with `observation_space` and `action_space`)."""
    space = env.observation_space
    if not isinstance(space, spaces.Box):
        raise ConfigError(f"observation space {space}: the mlp network reads a Box")
    return MLP(tuple(space.shape), head_for(env.action_space), tuple(hidden), activation, shared, log_std_init)
