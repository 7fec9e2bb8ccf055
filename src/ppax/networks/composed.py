"""Actor-critic network composed of encoders, dense layers, a memory and heads.

A torso encodes the entries of an observation one by one and concatenates them; dense layers follow, then the memory.
Actor and critic share one torso or have one each. Policy and value each end in one linear layer, optionally after
dense layers of their own (`head_hidden`). Encoder, memory and head are parts that can be replaced.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ppax.distributions import gsde
from ppax.networks.encoders import Auto, Reader, by_name, readers
from ppax.networks.head_for import FAMILIES, Head, head_for, same_actions, with_lasting_noise
from ppax.networks.layers import ACTIVATIONS, dense, init_dense, init_layers, layers
from ppax.networks.memories import MemoryPart, NoMemory
from ppax.networks.observations import entries, select
from ppax.parts import brief, slot
from ppax.types import ConfigError, Exploring, Key, Memory, Noise, Outputs, Params, PyTree, Scalar, part, static

AUTO, NONE = Auto(), NoMemory()


@part
class Composed:
    """Actor-critic network. Construct it with `network(env)`."""

    actor_readers: tuple[Reader, ...] = static()
    critic_readers: tuple[Reader, ...] = static()
    head: Head = dataclasses.field(metadata={"doc": ""})  # a subtree: its numbers can be swept and annealed
    # the user's choice of encoder, from which the readers were made
    encoder: Any = slot("encoder", "encoder of image entries of an observation", default=AUTO)
    memory: MemoryPart = slot("memory", "memory over time: none, a recurrent cell, attention or a window", default=NONE)
    hidden: tuple[int, ...] = static("widths of the hidden layers", default=(64, 64), low=1)
    head_hidden: tuple[int, ...] = static(
        "widths of hidden layers after the memory, separate for policy and value", default=(), low=1
    )
    activation: str = static("activation function of the hidden layers", default="tanh", choices=tuple(ACTIVATIONS))
    shared: bool = static("share one torso between actor and critic instead of one each", default=False)
    log_std_init: float = static("initial log standard deviation of Box actions", default=0.0)
    actor_obs: tuple[str, ...] = static("the actor's entries of a Dict observation; empty: all", default=())
    critic_obs: tuple[str, ...] = static("the critic's entries of a Dict observation; empty: all", default=())
    distribution: str = static(
        "distribution of Box actions: normal (clipped to the box), squashed (tanh), beta, or ball (tanh of the norm)",
        default="normal",
        choices=FAMILIES,
    )
    state_std: bool = static("state-dependent standard deviation of Box actions", default=False)
    std_min: float | None = static("lower bound of the standard deviation of Box actions", default=None, above=0.0)
    std_max: float | None = static("upper bound of the standard deviation of Box actions", default=None, above=0.0)
    ball_radius: float | None = static(
        "radius of distribution ball; by default half the width of the box", default=None, above=0.0
    )

    gsde_steps: int | None = static(
        "gSDE: noise of Box actions depends on the features by a matrix that is drawn every so many steps; none: "
        "independent noise in each step",
        default=None,
        low=1,
    )

    __repr__ = brief

    def init(self, key: Key, num_values: int = 1) -> Params:
        """Return initial parameters, a nested dict; the value head has `num_values` outputs."""
        actor_key, critic_key, policy_key, value_key = jax.random.split(key, 4)
        towers, keys = self._towers(), {"actor": actor_key, "critic": critic_key}
        sizes = {name: self.memory.output_size(self._size(tower)) for name, tower in towers.items()}
        params = {
            "policy": self._init_head(policy_key, sizes["actor"], self.head.size, 0.01),
            "value": self._init_head(value_key, sizes.get("critic", sizes["actor"]), num_values, 1.0),
        }
        params |= {name: self._init_tower(tower, keys[name]) for name, tower in towers.items()}
        if self.head.log_std_size:
            params["log_std"] = jnp.full(self._log_std_shape(), self.log_std_init, jnp.float32)
        return params

    def initial_carry(self) -> PyTree:
        """Return each torso's carry at the start of an episode; () without memory. With gSDE an Exploring."""
        carry = {name: self.memory.initial_carry(self._size(tower)) for name, tower in self._towers().items()}
        memory = carry if jax.tree.leaves(carry) else ()
        if self.gsde_steps is None:
            return memory
        matrix = jnp.zeros(self._log_std_shape(), jnp.float32)
        return Exploring(memory, Noise(matrix, jnp.int32(0), jnp.int32(self.gsde_steps)))

    def encode(self, params: Params, obs: PyTree) -> PyTree:
        """Return each torso's features of one observation, as input of the memory's scan."""
        dtype = params["policy"]["kernel"].dtype
        return {name: self._encode(params[name], tower, obs, dtype) for name, tower in self._towers().items()}

    def remember(self, params: Params, carry: PyTree, features: PyTree, first: Array) -> Memory:
        """Scan each torso's memory over one stream's sequence [L, ...]; `first` [L] resets it."""
        carries = carry if jax.tree.leaves(carry) else dict.fromkeys(features, ())
        out = {
            name: self.memory.scan(params[name].get("memory"), carries[name], x, first) for name, x in features.items()
        }
        last = {name: part.carry for name, part in out.items()}
        return Memory(last if jax.tree.leaves(last) else (), {name: part.features for name, part in out.items()})

    def decide(self, params: Params, features: PyTree, action_mask: PyTree | None) -> Outputs:
        """Return action distribution and value outputs from each torso's features of one step."""
        outputs = {name: self.memory.project_out(params[name].get("memory"), x) for name, x in features.items()}
        value = self._apply_head(params["value"], outputs.get("critic", outputs["actor"]))
        latent = layers(params["policy"], outputs["actor"], self.head_hidden, self.activation)
        policy, log_std = dense(params["policy"], latent), params.get("log_std")
        if self.gsde_steps is None:
            return Outputs(self.head(policy, log_std, action_mask), value)
        latent, log_std = latent.astype(jnp.float32), log_std.astype(jnp.float32)
        distribution = self.head(policy, gsde.log_std_of(latent, log_std), action_mask)
        return Outputs(distribution, value, gsde.noise_basis(latent, log_std))

    def rescale_value(self, params: Params, scale: Scalar, shift: Scalar) -> Params:
        """Return parameters with value output `scale` * value + `shift`, by rescaling the last layer (PopArt)."""
        kernel, bias = params["value"]["kernel"], params["value"]["bias"]
        return params | {"value": params["value"] | {"kernel": kernel * scale, "bias": bias * scale + shift}}

    def _towers(self) -> dict[str, tuple[Reader, ...]]:
        """Return each torso's readers (encoders with their entries), by its name in the parameters: actor, critic."""
        return {"actor": self.actor_readers} | ({} if self.shared else {"critic": self.critic_readers})

    def _size(self, tower: tuple[Reader, ...]) -> int:
        """Return the length of a torso's features before its memory."""
        return self.hidden[-1] if self.hidden else sum(reader.size() for reader in tower)

    def _log_std_shape(self) -> tuple[int, ...]:
        """Return the shape of the log standard deviations: with gSDE a row for each feature of the policy's layer."""
        size = self.memory.output_size(self._size(self.actor_readers))
        rows = () if self.gsde_steps is None else ((size, *self.head_hidden)[-1],)
        return *rows, self.head.log_std_size

    def _init_tower(self, tower: tuple[Reader, ...], key: Key) -> Params:
        layers_key, encoder_key, memory_key = key, jax.random.fold_in(key, 1), jax.random.fold_in(key, 2)
        params = init_layers(layers_key, sum(reader.size() for reader in tower), self.hidden)
        keys = jax.random.split(encoder_key, len(tower))
        encoders = {
            reader.name: reader.encoder.init(k, reader.example()) for reader, k in zip(tower, keys, strict=True)
        }
        optional = {
            "encoder": {name: inner for name, inner in encoders.items() if jax.tree.leaves(inner)},
            "memory": self.memory.init(memory_key, self._size(tower)),
        }
        return params | {name: inner for name, inner in optional.items() if inner}

    def _init_head(self, key: Key, size: int, outputs: int, gain: float) -> Params:
        """Return parameters of the `head_hidden` layers and the linear layer after them."""
        params = init_layers(jax.random.fold_in(key, 1), size, self.head_hidden)
        return params | init_dense(key, (size, *self.head_hidden)[-1], outputs, gain)

    def _apply_head(self, params: Params, x: Array) -> Array:
        return dense(params, layers(params, x, self.head_hidden, self.activation))

    def _encode(self, params: Params, tower: tuple[Reader, ...], obs: PyTree, dtype: Any) -> PyTree:
        encoders = params.get("encoder", {})
        vectors = [reader.read(encoders.get(reader.name), obs, dtype) for reader in tower]
        x = vectors[0] if len(vectors) == 1 else jnp.concatenate(vectors)
        return self.memory.project_in(params.get("memory"), layers(params, x, self.hidden, self.activation))


def require_made_for(network: Any, env: Any, field: str, name: str) -> None:
    """Raise ConfigError where a ppax network was made for spaces that differ from those of `env`."""
    if not isinstance(network, Composed):
        return
    if jax.tree_util.all_leaves([network.head]):
        kind = type(network.head).__name__
        raise ConfigError(f"{field}.head: a {kind} is no part: write its class with the decorator @part of ppax.types")
    available = tuple(entries(env.observation_space))
    used = [entry for reader in (*network.actor_readers, *network.critic_readers) for entry in reader.entries]
    other = next((entry for entry in used if entry not in available), None)
    if other is not None:
        reason = f"its input is {other}, and observations have {', '.join(map(str, available))}"
    elif not same_actions(network.head, head_for(env.action_space)):
        reason = f"its actions come from {network.head}, and the action space is {env.action_space}"
    else:
        return
    raise ConfigError(
        f"{field}: made for another environment than {name or 'this one'}: {reason}; "
        "make one for this environment: ppax.networks.mlp(env) or ppax.networks.network(env)"
    )


def network(
    env: Any,
    encoder: Any = AUTO,
    memory: MemoryPart = NONE,
    hidden: Sequence[int] = (64, 64),
    head_hidden: Sequence[int] = (),
    activation: str = "tanh",
    shared: bool = False,
    log_std_init: float = 0.0,
    actor_obs: Sequence[str] = (),
    critic_obs: Sequence[str] = (),
    gsde_steps: int | None = None,
    **box: Any,
) -> Composed:
    """Return a network for the spaces of `env` (anything with `observation_space` and `action_space`).

    `encoder`: a part of `networks.encoders`, one of your own (`networks.adapters`), or a dict of these by entry of a
    Dict observation. `memory`: a part of `networks.memories`. `box`: options of Box actions, as in `head_for.head_for`.
    Every other argument is an option of `Composed`. ConfigError where an argument does not fit the spaces.
    """
    available = tuple(entries(env.observation_space))
    actor_obs = tuple(actor_obs) or getattr(env, "actor_obs", ())  # where observations are for the critic only
    encoder = by_name(encoder, available) if isinstance(encoder, Mapping) else encoder
    actor, critic = select(available, tuple(actor_obs), "actor_obs"), select(available, tuple(critic_obs), "critic_obs")
    if shared and actor != critic:
        raise ConfigError(
            "network.shared = true: one torso needs the same inputs for actor and critic; nearest valid value: false"
        )
    return Composed(
        actor_readers=readers(encoder, actor),
        critic_readers=readers(encoder, critic),
        head=with_lasting_noise(head_for(env.action_space, **box, log_std_init=log_std_init), gsde_steps),
        encoder=encoder,
        memory=memory,
        hidden=tuple(hidden),
        head_hidden=tuple(head_hidden),
        activation=activation,
        shared=shared,
        log_std_init=log_std_init,
        actor_obs=tuple(actor_obs),
        critic_obs=tuple(critic_obs),
        gsde_steps=gsde_steps,
        **box,
    )


def mlp(
    env: Any,
    hidden: Sequence[int] = (64, 64),
    activation: str = "tanh",
    shared: bool = False,
    log_std_init: float = 0.0,
    **box: Any,
) -> Composed:
    """Return a feedforward network for the spaces of `env`; `box`: options of Box actions, as in `network`."""
    return network(env, hidden=hidden, activation=activation, shared=shared, log_std_init=log_std_init, **box)
