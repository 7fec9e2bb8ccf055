"""Actor-critic network composed of encoders, dense layers, a memory and heads."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.parts import brief, slot, slot_table
from ppax.core.types import ConfigError, Key, Memory, Outputs, Params, PyTree, Scalar, part, static
from ppax.devices.platforms import float32_products
from ppax.distributions import normal as equations
from ppax.networks.encoders import Auto, EntryReader, Flat, named_encoders, readers
from ppax.networks.heads import BOX_DEFAULTS, BoxOptions, Head, head_for, require_features_for_noise, same_actions
from ppax.networks.layers import (
    ACTIVATIONS,
    HIDDEN_GAIN,
    dense,
    init_dense,
    init_layers,
    init_simba,
    layers,
    rescaled_dense,
    simba,
)
from ppax.networks.memories import MemoryPart, NoMemory, Stack, Window, rematerialised
from ppax.networks.modules import ModuleNetwork
from ppax.networks.observations import Entry, entries, observation_space_of, select

DENSE, SIMBA = LAYERS = ("dense", "simba")  # kinds of hidden layers
SAME = "same"  # spelling in run files of what a tower leaves to the network
Encoders = tuple[tuple[str, Any], ...]  # by entry of a Dict observation


@part
class Same:
    """Value of a Tower's option that stands for the network's value of the same option; "same" in run files."""


@part
class Tower:
    """Options of the actor alone, or of the critic alone. Options left out ("same") are those of the network."""

    encoder: Any = slot("encoder", "encoder of image entries of an observation", default=Same(), first={SAME: Same})
    encoders: Encoders = slot_table("encoder", "encoders of single entries of a Dict observation, by entry")
    memory: Any = slot("memory", "memory over time", default=Same(), first={SAME: Same})
    hidden: tuple[int, ...] | None = static("widths of the hidden layers", default=None, low=1, none=SAME)
    head_hidden: tuple[int, ...] | None = static(
        "widths of hidden layers after the memory", default=None, low=1, none=SAME
    )
    activation: str | None = static(
        "activation function of the hidden layers", default=None, choices=tuple(ACTIVATIONS), none=SAME
    )
    layers: str | None = static("kind of the hidden layers", default=None, choices=LAYERS, none=SAME)
    layer_norm: bool | None = static("layer norm after each hidden layer", default=None, none=SAME)
    residual: bool | None = static("residual connections around hidden layers", default=None, none=SAME)

    def option(self, name: str, network: Any) -> Any:
        """Return the value of the option `name` for actor or critic: this Tower's, or if left out that of `network`."""
        own = getattr(self, name)
        left_out = own is None or isinstance(own, Same) or (name == "encoders" and not own)
        return getattr(network, name) if left_out else own

    def torso(self, network: Any, readers: tuple[EntryReader, ...]) -> Torso:
        """Return the actor's or critic's layers, made of its options; options left out are those of `network`.

        `readers` are the encoders, each with the entries of the observation that it reads.
        """
        names = ("memory", "hidden", "head_hidden", "activation", "layers", "layer_norm", "residual")
        chosen = {name: self.option(name, network) for name in names}
        chosen["memory"] = with_columns(chosen["memory"], readers, chosen["hidden"])
        return Torso(readers, **chosen, gain=network.hidden_gain, remat=network.remat)


class Torso(NamedTuple):
    """Layers of the actor or the critic: encoders with their entries, dense layers, memory, dense layers of the heads.

    It encodes the entries of an observation one by one and concatenates them; dense layers follow, then the memory.
    """

    readers: tuple[EntryReader, ...]
    memory: MemoryPart
    hidden: tuple[int, ...]
    head_hidden: tuple[int, ...]
    activation: str
    layers: str  # dense or simba
    layer_norm: bool
    residual: bool
    gain: float  # of the hidden layers' initial weights
    remat: bool

    def size(self) -> int:
        """Return the number of features that the actor's or critic's memory gets: the last dense layer's width.

        Without dense layers, it is the sum of the sizes of all encoders' vectors.
        """
        return self.hidden[-1] if self.hidden else sum(reader.size() for reader in self.readers)

    def init(self, key: Key) -> Params:
        """Return new parameters of the actor's or critic's encoders, dense layers and memory.

        Encoders and memories without parameters have no entry.
        """
        layers_key, encoder_key, memory_key = key, jax.random.fold_in(key, 1), jax.random.fold_in(key, 2)
        size_in = sum(reader.size() for reader in self.readers)
        params = self._init_layers(layers_key, size_in, self.hidden)
        keys = jax.random.split(encoder_key, len(self.readers))
        encoders = {
            reader.name: reader.encoder.init(k, reader.example()) for reader, k in zip(self.readers, keys, strict=True)
        }
        optional = {
            "encoder": {name: inner for name, inner in encoders.items() if jax.tree.leaves(inner)},
            "memory": self.memory.init(memory_key, self.size()),
        }
        return params | {name: inner for name, inner in optional.items() if inner}

    def initial_carry(self) -> PyTree:
        """Return the recurrent state of this torso's memory at an episode's start; () without memory."""
        return self.memory.initial_carry(self.size())

    def encode(self, params: Params, obs: PyTree, dtype: Any) -> PyTree:
        """Return the input of the memory's scan for one observation, after encoders and dense layers.

        Encoders get the observation's arrays in `dtype`.
        """
        encoders = params.get("encoder", {})
        vectors = [reader.read(encoders.get(reader.name), obs, dtype) for reader in self.readers]
        x = vectors[0] if len(vectors) == 1 else jnp.concatenate(vectors)
        # the first layer reads observations, standardised or not: rounded, two that differ by less than 2^-8 are equal
        x = self._layers(params, x, self.hidden, exact=True)
        return self.memory.project_in(params.get("memory"), x)

    def remember(self, params: Params, carry: PyTree, features: PyTree, first: Array) -> Memory:
        """Return the next recurrent state of the actor's or critic's memory, and its outputs, over a sequence [L, ...].

        The sequence is of one stream (one agent in one environment). `carry` is the recurrent state before it; `first`
        [L] resets the state before a step where it is True.
        """
        memory = rematerialised(self.memory) if self.remat else self.memory
        return memory.scan(params.get("memory"), carry, features, first)

    def project_out(self, params: Params, features: PyTree) -> Array:
        """Return the vector [n] that heads read for one step, from the output of the actor's or critic's memory."""
        return self.memory.project_out(params.get("memory"), features)

    def init_head(self, key: Key, outputs: int, gain: float) -> Params:
        """Return new parameters of a policy or value head: its `head_hidden` layers and a linear layer to `outputs`."""
        size = self.memory.output_size(self.size())
        params = self._init_layers(jax.random.fold_in(key, 1), size, self.head_hidden)
        return params | init_dense(key, (size, *self.head_hidden)[-1], outputs, gain)

    def head(self, params: Params, x: Array) -> Array:
        """Return the outputs [n] of a head (policy or value) for one vector that `project_out` returns."""
        return dense(params, self.latent(params, x))

    def latent(self, params: Params, x: Array) -> Array:
        """Return the input [n] of the last, linear layer of a policy or value head.

        `x` is a vector that `project_out` returns.
        """
        return self._layers(params, x, self.head_hidden)

    def _init_layers(self, key: Key, size_in: int, widths: tuple[int, ...]) -> Params:
        """Return new parameters of hidden layers of these widths; {} without any."""
        if self.layers == SIMBA and widths:
            return init_simba(key, size_in, widths, self.gain)
        return init_layers(key, size_in, widths, self.gain, self.layer_norm)

    def _layers(self, params: Params, x: Array, widths: tuple[int, ...], exact: bool = False) -> Array:
        """Return the output of hidden layers of these widths for one vector.

        With `exact`, the first layer computes in float32, even where the others round to bfloat16.
        """
        if self.layers == SIMBA and widths:
            return simba(params, x, widths, exact)
        return layers(params, x, widths, self.activation, exact, self.residual)

    def require_simba(self, name: str) -> None:
        """Raise ConfigError where SimBa's layers are combined with options that contradict them.

        SimBa's blocks have one width, layer norm, residual connections and relu. `name` is "actor" or "critic".
        """
        if self.layers != SIMBA:
            return
        given = f'network.layers = "simba" ({name})'
        if not (self.hidden or self.head_hidden):
            raise ConfigError(f"{given}: there are no hidden layers; nearest valid value: hidden = [64]")
        for field, chain in (("hidden", self.hidden), ("head_hidden", self.head_hidden)):
            if len(set(chain)) > 1:
                nearest = [chain[0]] * len(chain)
                raise ConfigError(
                    f"{given}: {field} = {list(chain)} has a residual block for each number, and all blocks one width; "
                    f"nearest valid value: {nearest}"
                )
        if self.layer_norm or self.residual:
            own = "layer_norm" if self.layer_norm else "residual"
            raise ConfigError(
                f"{given}: its blocks have layer norm and residual connections; nearest valid value: {own} = false"
            )
        if self.activation not in ("tanh", "relu"):  # tanh is the default
            raise ConfigError(
                f'{given}: its blocks have relu, activation = "{self.activation}" is for dense layers; leave it out'
            )

    def require_residual(self, name: str) -> None:
        """Raise ConfigError where residual connections are on, and no hidden layer has as many outputs as inputs.

        `name` is "actor" or "critic".
        """
        read = sum(reader.size() for reader in self.readers)
        chains = (read, *self.hidden), (self.memory.output_size(self.size()), *self.head_hidden)
        if self.residual and not any(a == b for sizes in chains for a, b in pairwise(sizes)):
            raise ConfigError(
                f"network.residual = true: no hidden layer of the {name} has as many outputs as inputs: the widths "
                f"after {read} inputs are {list(self.hidden)}; write one twice, as hidden = [64, 64], or false"
            )

    def latent_size(self) -> int:
        """Return the number of inputs of the last, linear layer of a head (policy or value)."""
        return (self.memory.output_size(self.size()), *self.head_hidden)[-1]


def with_columns(memory: MemoryPart, readers: tuple[EntryReader, ...], hidden: tuple[int, ...]) -> MemoryPart:
    """Return `memory`; a `Window` of some entries of the observation gets the indices of the entries' features.

    A window with the option `entries` has several steps of these entries only. Its field `columns` is set to the
    indices of their features among all features of the encoders `readers`, one encoder after the other. Raises
    ConfigError where no encoder reads an entry of the window, or where layers before the window mix the entries: hidden
    layers of the widths `hidden`, or those of a `Stack`.
    """
    cell = memory.cell if isinstance(memory, Stack) else memory
    if not isinstance(cell, Window) or not cell.entries:
        return memory
    given = f"network.memory.entries = {list(cell.entries)}"
    if cell is not memory:
        raise ConfigError(f'{given}: the layers of a stack mix the entries; write part = "window" without a stack')
    if hidden:
        raise ConfigError(
            f"{given}: the hidden layers before the memory mix the entries; write network.hidden = [], and the layers "
            f"after it: network.memory.hidden = {list(hidden)}"
        )
    places: dict[str, range] = {}
    size = 0
    for reader in readers:
        places[reader.name] = range(size, size := size + reader.size())
    for name in cell.entries:
        if name not in places:
            nearest = difflib.get_close_matches(name, places, n=1, cutoff=0.0)[0]
            raise ConfigError(
                f"{given}: no entry {name!r} among those that the encoders read; there are {', '.join(places)}; "
                f"nearest: {nearest}"
            )
    return dataclasses.replace(cell, columns=tuple(i for name in cell.entries for i in places[name]))


AUTO, NONE = Auto(), NoMemory()


@part
class Composed(BoxOptions):
    """Actor-critic network of encoders, dense layers, a memory and heads. Construct it with `network(env)`."""

    actor_readers: tuple[EntryReader, ...] = static()
    critic_readers: tuple[EntryReader, ...] = static()
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
    layers: str = static(
        "kind of the hidden layers: dense, or simba: a linear layer, a residual block with layer norm and relu for "
        "each width of hidden, and layer norm at the end",
        default=DENSE,
        choices=LAYERS,
    )
    layer_norm: bool = static("layer norm after each hidden layer, before its activation", default=False)
    residual: bool = static(
        "residual connections: each hidden layer with as many outputs as inputs adds its input to its output",
        default=False,
    )
    hidden_gain: float = static("gain of the hidden layers' orthogonal weights", default=HIDDEN_GAIN, above=0.0)
    policy_gain: float = static("gain of the policy's last layer", default=0.01, above=0.0)
    value_gain: float = static("gain of the value's last layer", default=1.0, above=0.0)
    remat: bool = static("recompute the memory's scan in the backward pass: less memory, more time", default=False)
    shared: bool = static("share one torso between actor and critic instead of one each", default=False)
    actor_obs: tuple[str, ...] = static("the actor's entries of a Dict observation; empty: all", default=())
    critic_obs: tuple[str, ...] = static("the critic's entries of a Dict observation; empty: all", default=())
    gsde: bool = static(
        "gSDE: the standard deviation of Box actions is a linear function of the features; the extension held_noise "
        "holds the noise for several steps",
        default=False,
    )

    __repr__ = brief

    def init(self, key: Key, num_values: int = 1) -> Params:
        """Return new parameters of the network, a nested dict; the value head has `num_values` outputs."""
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
        """Return the memories' recurrent states at an episode's start, by "actor" and "critic"; () without memory."""
        carry = {name: torso.initial_carry() for name, torso in self.torsos().items()}
        return carry if jax.tree.leaves(carry) else ()

    def encode(self, params: Params, obs: PyTree) -> PyTree:
        """Return the input of the memories for one observation, a dict by "actor" and "critic".

        If actor and critic share their layers, there is "actor" alone.
        """
        dtype = params["policy"]["kernel"].dtype
        return {name: torso.encode(params[name], obs, dtype) for name, torso in self.torsos().items()}

    def remember(self, params: Params, carry: PyTree, features: PyTree, first: Array) -> Memory:
        """Return the memories' recurrent states after a sequence and their outputs at each step.

        Both are by "actor" and "critic". The sequence [L, ...] is of one stream (one agent in one environment). `carry`
        has the recurrent states before it; `first` [L] resets them before a step where it is True.
        """
        carries = carry if jax.tree.leaves(carry) else dict.fromkeys(features, ())
        torsos = self.torsos()
        out = {name: torsos[name].remember(params[name], carries[name], x, first) for name, x in features.items()}
        last = {name: part.carry for name, part in out.items()}
        return Memory(last if jax.tree.leaves(last) else (), {name: part.features for name, part in out.items()})

    def decide(self, params: Params, features: PyTree, action_mask: PyTree | None) -> Outputs:
        """Return action distribution and value outputs for one step.

        `features` are the memories' outputs of this step, by "actor" and "critic".
        """
        torsos = self.torsos()
        outputs = {name: torsos[name].project_out(params[name], x) for name, x in features.items()}
        value = torsos.get("critic", torsos["actor"]).head(params["value"], outputs.get("critic", outputs["actor"]))
        latent = torsos["actor"].latent(params["policy"], outputs["actor"])
        policy, log_std = dense(params["policy"], latent), params.get("log_std")
        if not self.gsde:
            return Outputs(self.head(policy, log_std, action_mask), value)
        latent, log_std = latent.astype(jnp.float32), log_std.astype(jnp.float32)
        with float32_products():
            own_log_std = equations.log_std_of(latent, log_std)
        distribution = self.head(policy, own_log_std, action_mask)
        return Outputs(distribution, value, equations.noise_basis(latent, log_std))

    def rescale_value(self, params: Params, scale: Scalar, shift: Scalar) -> Params:
        """Return the parameters with the value head's last layer changed: new outputs = scale * old outputs + shift.

        A critic whose value targets change their scale, such as PopArt, keeps its values V in this way.
        """
        return params | {"value": rescaled_dense(params["value"], scale, shift)}

    @property
    def cells(self) -> tuple[MemoryPart, ...]:
        """Memories of actor and critic, in this order; two equal ones if actor and critic share their memory.

        The part `none` counts as a memory. In place of a `Stack` there is the memory of which its layers consist.
        """
        memories = (tower.option("memory", self) for tower in (self.actor, self.critic))
        return tuple(one.cell if isinstance(one, Stack) else one for one in memories)

    @property
    def own_products(self) -> bool:
        """True if networks/products.py computes all matrix products of this network.

        That is so if all encoders are `Flat` and all memories say so (`MemoryPart`), as those of ppax do. All products
        can then be rounded to bfloat16.
        """
        encoders = [reader.encoder for reader in (*self.actor_readers, *self.critic_readers)]
        flat = all(isinstance(one, Flat) for one in encoders)
        return flat and all(getattr(cell, "own_products", False) for cell in self.cells)

    @property
    def steps_at_once(self) -> bool:
        """True if the network has memories, and each computes matrix products for all steps of a sequence at once.

        LRU, MinGRU, Attention and Window do; GRU and LSTM have a product in every step of a loop. The default number of
        rows whose gradient is computed at once depends on this (`Program.rows`).
        """
        memories = [cell for cell in self.cells if cell != NONE]
        return bool(memories) and all(getattr(cell, "steps_at_once", False) for cell in memories)

    def noise_shape(self) -> tuple[int, ...]:
        """Return the shape of the parameter with the log standard deviations of Box actions: [d]; with gSDE [F, d].

        d is the number of continuous actions whose log standard deviation is a free parameter (0: none), and F is the
        number of inputs of the policy's last layer.
        """
        rows = (self.torsos()["actor"].latent_size(),) if self.gsde else ()
        return *rows, self.head.log_std_size

    def torsos(self) -> dict[str, Torso]:
        """Return the layers of actor and critic, by "actor" and "critic"; if they share them, by "actor" alone."""
        actor = {"actor": self.actor.torso(self, self.actor_readers)}
        return actor if self.shared else actor | {"critic": self.critic.torso(self, self.critic_readers)}


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

    `encoder` is a part of `networks.encoders`, or an encoder of your own (`networks.adapters`); `encoders` is a dict of
    encoders for single entries of a Dict observation. `memory` is a part of `networks.memories`. `options` are any
    other options of `Composed`, such as `critic=Tower(hidden=(256, 256))`, and those of Box actions, as in
    `heads.head_for`: distribution, state_std, std_min, std_max and ball_radius. Raises ConfigError where an argument
    does not fit the spaces.
    """
    available = tuple(entries(observation_space_of(env)))
    # environments with observations for the critic only have `actor_obs`
    actor_obs = tuple(actor_obs) or getattr(env, "actor_obs", ())
    named = {"actor": tuple(actor_obs), "critic": tuple(critic_obs)}
    seen = {name: select(available, chosen, f"{name}_obs") for name, chosen in named.items()}
    box = {name: options[name] for name in BOX_DEFAULTS if name in options}
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
    made = _with_readers(made, seen)
    for name, torso in made.torsos().items():  # raises ConfigError where a window does not fit the entries
        torso.require_simba(name)
        torso.require_residual(name)
    return made


def mlp(
    env: Any,
    hidden: Sequence[int] = (64, 64),
    activation: str = "tanh",
    shared: bool = False,
    log_std_init: float = 0.0,
    **box: Any,
) -> Composed:
    """Return a feedforward network for the spaces of `env`; `box` are options of Box actions, as in `network`."""
    return network(env, hidden=hidden, activation=activation, shared=shared, log_std_init=log_std_init, **box)


def _with_readers(network: Composed, seen: Mapping[str, tuple[Entry, ...]]) -> Composed:
    """Return the network with its encoders, each paired with the entries of the observation that it reads.

    `seen` has the entries that actor and critic read, by "actor" and "critic". Raises ConfigError where an encoder does
    not fit.
    """
    made: dict[str, Any] = {}
    for name, visible in seen.items():
        tower = getattr(network, name)
        named = named_encoders(tower.encoders, visible, f"network.{name}.encoders")
        made[name] = tower = dataclasses.replace(tower, encoders=named)
        made[f"{name}_readers"] = readers(tower.option("encoder", network), tower.option("encoders", network), visible)
    return dataclasses.replace(network, **made)


def check_towers(network: Any, seen: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise ConfigError for options of a network that contradict each other.

    `seen` has the entries of the observation that actor and critic read, by "actor" and "critic".
    """
    for name in seen:
        if not isinstance(getattr(network, name), Tower):
            raise ConfigError(
                f"network.{name} = {getattr(network, name)!r}: write ppax.networks.Tower(hidden=(64, 64))"
            )
    if isinstance(network.encoder, Mapping):
        raise ConfigError(f"network.encoder = {network.encoder!r}: write encoders={{...}} for encoders by entry")
    check_options(network, "network")
    for name in seen:
        check_options(getattr(network, name), f"network.{name}")
    if network.shared and seen["actor"] != seen["critic"]:
        raise ConfigError(
            "network.shared = true: one torso needs the same inputs for actor and critic; nearest valid value: false"
        )
    own = next((name for name in seen if network.shared and getattr(network, name) != Tower()), None)
    if own is not None:
        raise ConfigError(
            f"network.shared = true: actor and critic are one torso, and network.{own} = {getattr(network, own)!r} is "
            f"for two; leave out network.{own}, or write shared = false"
        )
    require_features_for_noise(network.head, network.gsde)
    if network.remat and not jax.tree.leaves(network.initial_carry()):
        raise ConfigError("network.remat = true: there is no memory to recompute; nearest valid value: false")


def check_options(options: Any, path: str) -> None:
    """Raise ConfigError unless memory and encoder are parts (instances), and the widths of layers are lists.

    `options` is a network or a Tower (the options of actor or critic alone), and `path` names it in the error.
    """
    for name, method, example in (("memory", "scan", "memories.GRU()"), ("encoder", "init", "encoders.NatureCNN()")):
        value = getattr(options, name)
        named = isinstance(value, type) or not callable(getattr(value, method, None))
        if named and not isinstance(value, Same | Auto):
            raise ConfigError(f"{path}.{name} = {value!r}: must be a part; write {name}=ppax.networks.{example}")
    for name in ("hidden", "head_hidden"):
        value = getattr(options, name)
        if value is not None:
            widths(value, f"{path}.{name}")


def widths(given: Any, path: str) -> tuple[int, ...]:
    """Return the widths of layers as a tuple; raise ConfigError, naming the option `path`, where `given` is no list."""
    if isinstance(given, Iterable) and not isinstance(given, str):
        return tuple(given)
    name = path.rpartition(".")[2]
    raise ConfigError(f"{path} = {given!r}: must be a list, a width for each layer; write {name}=({given},)")


def require_made_for(network: Any, env: Any, field: str, name: str) -> None:
    """Raise ConfigError where a network of ppax was made for spaces that differ from those of `env`.

    `field` names the network and `name` the environment in the error. A user's own network is not checked.
    """
    if not isinstance(network, Composed | ModuleNetwork):
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
