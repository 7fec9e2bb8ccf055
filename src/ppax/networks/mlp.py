"""Multi-layer perceptron, one torso for actor and critic or one for each; it remembers nothing.

Orthogonal initialisation with gains sqrt 2 (hidden), 0.01 (policy), 1 (value), biases 0: Andrychowicz et al. 2021,
https://arxiv.org/abs/2006.05990
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from gymnasium import spaces
from jax import Array

from ppax.networks.heads import FAMILIES, Head, head_for
from ppax.types import ConfigError, Key, Memory, Outputs, Params, PyTree, Scalar, part, static

ACTIVATIONS = {"tanh": jnp.tanh, "relu": jax.nn.relu, "gelu": jax.nn.gelu, "silu": jax.nn.silu, "elu": jax.nn.elu}


class Features(NamedTuple):
    """What the torsos see in one observation; the same twice when they share one."""

    actor: Array
    critic: Array


def orthogonal(key: Key, size_in: int, size_out: int, gain: float) -> Array:
    """A uniformly random matrix whose shorter side's vectors are orthogonal, each of length `gain`.

    Gram-Schmidt on a normal sample. `jax.nn.initializers.orthogonal` does the same by LAPACK, whose lowering imports
    SciPy at the start of every process.
    """
    long, short = max(size_in, size_out), min(size_in, size_out)

    def straighten(j: Array, q: Array) -> Array:
        v = q[:, j]
        for _ in range(2):  # twice is enough: Giraud et al. 2005
            v = v - q @ jnp.where(jnp.arange(short) < j, q.T @ v, 0.0)
        return q.at[:, j].set(v / jnp.linalg.norm(v))

    q = gain * jax.lax.fori_loop(0, short, straighten, jax.random.normal(key, (long, short)))
    return q if size_in >= size_out else q.T


def init_dense(key: Key, size_in: int, size_out: int, gain: float) -> Params:
    """A linear layer with orthogonal weights and zero bias."""
    return {"kernel": orthogonal(key, size_in, size_out, gain), "bias": jnp.zeros(size_out)}


def dense(params: Params, x: Array) -> Array:
    """x W + b for one vector."""
    return x @ params["kernel"] + params["bias"]


@part
class MLP:
    """Feedforward actor and critic. Make one with `mlp(env)`."""

    obs_shape: tuple[int, ...] = static()
    head: Head = static()
    hidden: tuple[int, ...] = static("widths of the hidden layers", default=(64, 64), low=1)
    activation: str = static("after each hidden layer", default="tanh", choices=tuple(ACTIVATIONS))
    shared: bool = static("one torso for actor and critic instead of one each", default=False)
    log_std_init: float = static("log standard deviation at the start, for Box actions", default=0.0)
    distribution: str = static(
        "of Box actions: normal, clipped to the box; squashed into it by tanh; beta; squashed into a ball",
        default="normal",
        choices=FAMILIES,
    )
    state_std: bool = static("the standard deviation of Box actions depends on the observation", default=False)
    std_min: float | None = static("least standard deviation of Box actions", default=None, above=0.0)
    std_max: float | None = static("largest standard deviation of Box actions", default=None, above=0.0)
    ball_radius: float | None = static("of the ball; by default half the width of the box", default=None, above=0.0)

    def init(self, key: Key, num_values: int = 1) -> Params:
        """Fresh parameters, a nested dict."""
        actor_key, critic_key, policy_key, value_key = jax.random.split(key, 4)
        sizes = (math.prod(self.obs_shape), *self.hidden)
        params = {
            "actor": self._init_torso(sizes, actor_key),
            "policy": init_dense(policy_key, sizes[-1], self.head.size, 0.01),
            "value": init_dense(value_key, sizes[-1], num_values, 1.0),
        }
        if not self.shared:
            params["critic"] = self._init_torso(sizes, critic_key)
        if self.head.log_std_size:
            params["log_std"] = jnp.full(self.head.log_std_size, self.log_std_init, jnp.float32)
        return params

    def initial_carry(self) -> PyTree:
        """No memory."""
        return ()

    def encode(self, params: Params, obs: PyTree) -> Features:
        """Features of one observation for actor and critic."""
        x = jnp.ravel(obs).astype(params["policy"]["kernel"].dtype)
        actor = self._torso(params["actor"], x)
        return Features(actor, actor if self.shared else self._torso(params["critic"], x))

    def remember(self, params: Params, carry: PyTree, features: PyTree, first: Array) -> Memory:
        """The features as they are."""
        return Memory(carry, features)

    def decide(self, params: Params, features: Features, action_mask: PyTree | None) -> Outputs:
        """Distribution and value from one pair of features."""
        outputs, value = dense(params["policy"], features.actor), dense(params["value"], features.critic)
        return Outputs(self.head(outputs, params.get("log_std"), action_mask), value)

    def rescale_value(self, params: Params, scale: Scalar, shift: Scalar) -> Params:
        """Parameters whose value is `scale` times what it was, plus `shift`."""
        kernel, bias = params["value"]["kernel"], params["value"]["bias"]
        return params | {"value": {"kernel": kernel * scale, "bias": bias * scale + shift}}

    def _init_torso(self, sizes: tuple[int, ...], key: Key) -> Params:
        keys = jax.random.split(key, len(self.hidden)) if self.hidden else ()
        layers = zip(keys, sizes[:-1], sizes[1:], strict=True)
        return {str(i): init_dense(*layer, math.sqrt(2.0)) for i, layer in enumerate(layers)}

    def _torso(self, params: Params, x: Array) -> Array:
        for i in range(len(self.hidden)):
            x = ACTIVATIONS[self.activation](dense(params[str(i)], x))
        return x


def mlp(
    env: Any,
    hidden: Sequence[int] = (64, 64),
    activation: str = "tanh",
    shared: bool = False,
    log_std_init: float = 0.0,
    **box: Any,
) -> MLP:
    """An MLP for the spaces of `env` (anything with `observation_space` and `action_space`).

    `box` are the options of Box actions, as `heads.head_for` has them: distribution, state_std, std_min, std_max and
    ball_radius.
    """
    space = env.observation_space
    if not isinstance(space, spaces.Box):
        raise ConfigError(f"observation space {space}: the mlp network reads a Box")
    head = head_for(env.action_space, **box, log_std_init=log_std_init)
    return MLP(tuple(space.shape), head, tuple(hidden), activation, shared, log_std_init, **box)
