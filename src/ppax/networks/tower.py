"""Towers of an actor-critic network: options of the actor or the critic alone, and the torso that they describe.

A torso encodes the entries of an observation one by one and concatenates them; dense layers follow, then the memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.parts import slot, slot_table
from ppax.core.types import ConfigError, Key, Memory, Params, PyTree, part, static
from ppax.networks.encoders import Auto, Reader
from ppax.networks.head_for import require_features_for_noise
from ppax.networks.layers import ACTIVATIONS, dense, init_dense, init_layers, layers
from ppax.networks.memories import MemoryPart, rematerialised

SAME = "same"  # spelling in run files of what a tower leaves to the network
Encoders = tuple[tuple[str, Any], ...]  # by entry of a Dict observation


@part
class Same:
    """The network's own choice."""


@part
class Tower:
    """Options of the actor or the critic alone. Options left out (`same`) are those of the network."""

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
    layer_norm: bool | None = static("layer norm after each hidden layer", default=None, none=SAME)

    def option(self, name: str, network: Any) -> Any:
        """Return the option `name`: its own, or that of `network` where it is left out."""
        own = getattr(self, name)
        left_out = own is None or isinstance(own, Same) or (name == "encoders" and not own)
        return getattr(network, name) if left_out else own

    def torso(self, network: Any, readers: tuple[Reader, ...]) -> Torso:
        """Return the torso of `network` that these options describe."""
        names = ("memory", "hidden", "head_hidden", "activation", "layer_norm")
        chosen = {name: self.option(name, network) for name in names}
        return Torso(readers, **chosen, gain=network.hidden_gain, remat=network.remat)


class Torso(NamedTuple):
    """Layers of one tower: encoders with their entries, dense layers, memory, and the dense layers of its heads."""

    readers: tuple[Reader, ...]
    memory: MemoryPart
    hidden: tuple[int, ...]
    head_hidden: tuple[int, ...]
    activation: str
    layer_norm: bool
    gain: float  # of the hidden layers' initial weights
    remat: bool

    def size(self) -> int:
        """Return the length of its features before the memory."""
        return self.hidden[-1] if self.hidden else sum(reader.size() for reader in self.readers)

    def init(self, key: Key) -> Params:
        """Return parameters of encoders, dense layers and memory; of what has none there is no entry."""
        layers_key, encoder_key, memory_key = key, jax.random.fold_in(key, 1), jax.random.fold_in(key, 2)
        size_in = sum(reader.size() for reader in self.readers)
        params = init_layers(layers_key, size_in, self.hidden, self.gain, self.layer_norm)
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
        """Return the carry at the start of an episode; () without memory."""
        return self.memory.initial_carry(self.size())

    def encode(self, params: Params, obs: PyTree, dtype: Any) -> PyTree:
        """Return the features of one observation, as input of the memory's scan."""
        encoders = params.get("encoder", {})
        vectors = [reader.read(encoders.get(reader.name), obs, dtype) for reader in self.readers]
        x = vectors[0] if len(vectors) == 1 else jnp.concatenate(vectors)
        # the first layer reads observations, standardised or not: rounded, two that differ by less than 2^-8 are equal
        x = layers(params, x, self.hidden, self.activation, exact=True)
        return self.memory.project_in(params.get("memory"), x)

    def remember(self, params: Params, carry: PyTree, features: PyTree, first: Array) -> Memory:
        """Scan the memory over one stream's sequence [L, ...]; `first` [L] resets it."""
        memory = rematerialised(self.memory) if self.remat else self.memory
        return memory.scan(params.get("memory"), carry, features, first)

    def project_out(self, params: Params, features: PyTree) -> Array:
        """Return one vector from the output of the memory's scan for one step."""
        return self.memory.project_out(params.get("memory"), features)

    def init_head(self, key: Key, outputs: int, gain: float) -> Params:
        """Return parameters of the `head_hidden` layers and the linear layer after them."""
        size = self.memory.output_size(self.size())
        params = init_layers(jax.random.fold_in(key, 1), size, self.head_hidden, self.gain, self.layer_norm)
        return params | init_dense(key, (size, *self.head_hidden)[-1], outputs, gain)

    def head(self, params: Params, x: Array) -> Array:
        """Return the outputs of a head for one vector of `project_out`."""
        return dense(params, self.latent(params, x))

    def latent(self, params: Params, x: Array) -> Array:
        """Return the features of a head's last layer for one vector of `project_out`."""
        return layers(params, x, self.head_hidden, self.activation)

    def latent_size(self) -> int:
        """Return the number of features of a head's last layer."""
        return (self.memory.output_size(self.size()), *self.head_hidden)[-1]


def check_options(options: Any, path: str) -> None:
    """Raise ConfigError for a memory or encoder of `options`, a network or a Tower, that is no part, and for widths."""
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
    """Return the widths of layers as a tuple; ConfigError for a number."""
    if isinstance(given, Iterable) and not isinstance(given, str):
        return tuple(given)
    name = path.rpartition(".")[2]
    raise ConfigError(f"{path} = {given!r}: must be a list, a width for each layer; write {name}=({given},)")


def check_towers(network: Any, seen: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise ConfigError for options that contradict each other; `seen` are the entries that each torso reads."""
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
