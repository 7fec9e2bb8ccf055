"""Actor-critic network composed of encoders, dense layers, a memory and heads.

Actor and critic have a torso each (tower.py), or share one. Policy and value each end in one linear layer, optionally
after dense layers of their own (`head_hidden`). Encoder, memory and head are parts that can be replaced.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.parts import brief, slot, slot_table
from ppax.core.types import ConfigError, Key, Memory, Outputs, Params, PyTree, Scalar, part, static
from ppax.distributions import gsde as equations
from ppax.networks.encoders import Auto, Flat, Reader, named_encoders, readers
from ppax.networks.head_for import FAMILIES, BoxOptions, Head, head_for, same_actions
from ppax.networks.layers import ACTIVATIONS, HIDDEN_GAIN, dense, rescaled_dense
from ppax.networks.memories import AT_ONCE, OWN, MemoryPart, NoMemory, Stack
from ppax.networks.observations import Entry, entries, observation_space_of, select
from ppax.networks.tower import Encoders, Torso, Tower, check_towers, widths

AUTO, NONE = Auto(), NoMemory()


@part
class Composed:
    """Actor-critic network. Construct it with `network(env)`."""

    actor_readers: tuple[Reader, ...] = static()
    critic_readers: tuple[Reader, ...] = static()
    head: Head = dataclasses.field(metadata={"doc": ""})  # a subtree: its numbers can be swept and annealed
    # the user's choice of encoders, from which the readers were made
    encoder: Any = slot("encoder", "encoder of image entries of an observation", default=AUTO)
    encoders: Encoders = slot_table("encoder", "encoders of single entries of a Dict observation, by entry")
    memory: MemoryPart = slot("memory", "memory over time: none, a recurrent cell, attention or a window", default=NONE)
    actor: Tower = dataclasses.field(default=Tower(), metadata={"doc": "options of the actor alone"})
    critic: Tower = dataclasses.field(default=Tower(), metadata={"doc": "options of the critic alone"})
    hidden: tuple[int, ...] = static("widths of the hidden layers", default=(64, 64), low=1)
    head_hidden: tuple[int, ...] = static(
        "widths of hidden layers after the memory, separate for policy and value", default=(), low=1
    )
    activation: str = static("activation function of the hidden layers", default="tanh", choices=tuple(ACTIVATIONS))
    layer_norm: bool = static("layer norm after each hidden layer, before its activation", default=False)
    hidden_gain: float = static("gain of the hidden layers' orthogonal weights", default=HIDDEN_GAIN, above=0.0)
    policy_gain: float = static("gain of the policy's last layer", default=0.01, above=0.0)
    value_gain: float = static("gain of the value's last layer", default=1.0, above=0.0)
    remat: bool = static("recompute the memory's scan in the backward pass: less memory, more time", default=False)
    shared: bool = static("share one torso between actor and critic instead of one each", default=False)
    log_std_init: float = static("initial log standard deviation of Box actions", default=0.0)
    actor_obs: tuple[str, ...] = static("the actor's entries of a Dict observation; empty: all", default=())
    critic_obs: tuple[str, ...] = static("the critic's entries of a Dict observation; empty: all", default=())
    distribution: str = static(
        "distribution of Box actions: normal (clipped to the box), squashed (tanh), beta, or ball (tanh of the norm); "
        "or the import path of a function action space -> head",
        default="normal",
        choices=FAMILIES,
        paths=True,
    )
    state_std: bool = static("state-dependent standard deviation of Box actions", default=False)
    std_min: float | None = static("lower bound of the standard deviation of Box actions", default=None, above=0.0)
    std_max: float | None = static("upper bound of the standard deviation of Box actions", default=None, above=0.0)
    ball_radius: float | None = static(
        "radius of distribution ball; by default half the width of the box", default=None, above=0.0
    )
    gsde: bool = static(
        "gSDE: the standard deviation of Box actions is a linear function of the features; the extension held_noise "
        "holds the noise for several steps",
        default=False,
    )

    __repr__ = brief

    def init(self, key: Key, num_values: int = 1) -> Params:
        """Return initial parameters, a nested dict; the value head has `num_values` outputs."""
        actor_key, critic_key, policy_key, value_key = jax.random.split(key, 4)
        torsos, keys = self.torsos(), {"actor": actor_key, "critic": critic_key}
        params = {
            "policy": torsos["actor"].init_head(policy_key, self.head.size, self.policy_gain),
            "value": torsos.get("critic", torsos["actor"]).init_head(value_key, num_values, self.value_gain),
        }
        params |= {name: torso.init(keys[name]) for name, torso in torsos.items()}
        if self.head.log_std_size:
            params["log_std"] = jnp.full(self.noise_shape(), self.log_std_init, jnp.float32)
        return params

    def initial_carry(self) -> PyTree:
        """Return each torso's carry at the start of an episode; () without memory."""
        carry = {name: torso.initial_carry() for name, torso in self.torsos().items()}
        return carry if jax.tree.leaves(carry) else ()

    def encode(self, params: Params, obs: PyTree) -> PyTree:
        """Return each torso's features of one observation, as input of the memory's scan."""
        dtype = params["policy"]["kernel"].dtype
        return {name: torso.encode(params[name], obs, dtype) for name, torso in self.torsos().items()}

    def remember(self, params: Params, carry: PyTree, features: PyTree, first: Array) -> Memory:
        """Scan each torso's memory over one stream's sequence [L, ...]; `first` [L] resets it."""
        carries = carry if jax.tree.leaves(carry) else dict.fromkeys(features, ())
        torsos = self.torsos()
        out = {name: torsos[name].remember(params[name], carries[name], x, first) for name, x in features.items()}
        last = {name: part.carry for name, part in out.items()}
        return Memory(last if jax.tree.leaves(last) else (), {name: part.features for name, part in out.items()})

    def decide(self, params: Params, features: PyTree, action_mask: PyTree | None) -> Outputs:
        """Return action distribution and value outputs from each torso's features of one step."""
        torsos = self.torsos()
        outputs = {name: torsos[name].project_out(params[name], x) for name, x in features.items()}
        value = torsos.get("critic", torsos["actor"]).head(params["value"], outputs.get("critic", outputs["actor"]))
        latent = torsos["actor"].latent(params["policy"], outputs["actor"])
        policy, log_std = dense(params["policy"], latent), params.get("log_std")
        if not self.gsde:
            return Outputs(self.head(policy, log_std, action_mask), value)
        latent, log_std = latent.astype(jnp.float32), log_std.astype(jnp.float32)
        distribution = self.head(policy, equations.log_std_of(latent, log_std), action_mask)
        return Outputs(distribution, value, equations.noise_basis(latent, log_std))

    def rescale_value(self, params: Params, scale: Scalar, shift: Scalar) -> Params:
        """Return parameters with value output `scale` * value + `shift`, by rescaling the last layer (PopArt)."""
        return params | {"value": rescaled_dense(params["value"], scale, shift)}

    @property
    def cells(self) -> tuple[MemoryPart, ...]:
        """Memories of actor and critic; of a Stack, the memory of its layers."""
        memories = (tower.option("memory", self) for tower in (self.actor, self.critic))
        return tuple(one.cell if isinstance(one, Stack) else one for one in memories)

    @property
    def own_products(self) -> bool:
        """Whether networks/products.py computes all matrix products: `Flat` encoders, and only memories of ppax."""
        encoders = [reader.encoder for reader in (*self.actor_readers, *self.critic_readers)]
        return all(isinstance(one, Flat) for one in encoders) and all(isinstance(one, OWN) for one in self.cells)

    @property
    def steps_at_once(self) -> bool:
        """Whether there are memories, and all compute the products of all steps of a sequence at once."""
        memories = [cell for cell in self.cells if cell != NONE]
        return bool(memories) and all(isinstance(cell, AT_ONCE) for cell in memories)

    def noise_shape(self) -> tuple[int, ...]:
        """Return the shape of the log standard deviations: with gSDE [F, d], a row for each feature of the policy."""
        rows = (self.torsos()["actor"].latent_size(),) if self.gsde else ()
        return *rows, self.head.log_std_size

    def torsos(self) -> dict[str, Torso]:
        """Return each torso by its name in the parameters: actor, critic."""
        actor = {"actor": self.actor.torso(self, self.actor_readers)}
        return actor if self.shared else actor | {"critic": self.critic.torso(self, self.critic_readers)}


def require_made_for(network: Any, env: Any, field: str, name: str) -> None:
    """Raise ConfigError where a ppax network was made for spaces that differ from those of `env`."""
    if not isinstance(network, Composed):
        return
    if jax.tree_util.all_leaves([network.head]):
        kind = type(network.head).__name__
        raise ConfigError(f"{field}.head: a {kind} is no part: write its class with the decorator @ppax.part")
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
    encoders: Mapping[str, Any] | Encoders = (),
    **options: Any,
) -> Composed:
    """Return a network for the spaces of `env` (anything with `observation_space` and `action_space`).

    `encoder`: a part of `networks.encoders`, or an encoder of your own (`networks.adapters`); `encoders`: a dict of
    these by entry of a Dict observation. `memory`: a part of `networks.memories`. `options`: any other option of
    `Composed`, such as `critic=Tower(hidden=(256, 256))`, and those of Box actions, as in `head_for.head_for`:
    distribution, state_std, std_min, std_max and ball_radius. ConfigError where an argument does not fit the spaces.
    """
    available = tuple(entries(observation_space_of(env)))
    # environments with observations for the critic only have `actor_obs`
    actor_obs = tuple(actor_obs) or getattr(env, "actor_obs", ())
    named = {"actor": tuple(actor_obs), "critic": tuple(critic_obs)}
    seen = {name: select(available, chosen, f"{name}_obs") for name, chosen in named.items()}
    box = {name: options[name] for name in BoxOptions._fields if name in options}
    made = Composed(
        actor_readers=(),
        critic_readers=(),
        head=head_for(env.action_space, **box, log_std_init=log_std_init),
        encoder=encoder,
        encoders=named_encoders(encoders, available, "network.encoders"),
        memory=memory,
        hidden=widths(hidden, "network.hidden"),
        head_hidden=widths(head_hidden, "network.head_hidden"),
        activation=activation,
        shared=shared,
        log_std_init=log_std_init,
        actor_obs=named["actor"],
        critic_obs=named["critic"],
        **options,
    )
    check_towers(made, seen)
    return _with_readers(made, seen)


def _with_readers(network: Composed, seen: Mapping[str, tuple[Entry, ...]]) -> Composed:
    """Return the network with the readers of the entries that each torso sees; ConfigError where one does not fit."""
    made: dict[str, Any] = {}
    for name, visible in seen.items():
        tower = getattr(network, name)
        named = named_encoders(tower.encoders, visible, f"network.{name}.encoders")
        made[name] = tower = dataclasses.replace(tower, encoders=named)
        made[f"{name}_readers"] = readers(tower.option("encoder", network), tower.option("encoders", network), visible)
    return dataclasses.replace(network, **made)


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
