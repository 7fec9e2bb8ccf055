"""Which encoder reads which entry of an observation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from ppax.networks.encoders.flat import Flat
from ppax.networks.encoders.impala_cnn import ImpalaCNN
from ppax.networks.encoders.nature_cnn import NatureCNN
from ppax.networks.encoders.small_cnn import SmallCNN
from ppax.networks.observations import Entry
from ppax.types import ConfigError, Key, Params, PyTree, part, static


class Encoder(Protocol):
    """From one entry of an observation, or from all of it, to a vector."""

    def init(self, key: Key, example: PyTree) -> Params:
        """Parameters for what has the shape of `example`."""

    def __call__(self, params: Params, x: PyTree) -> Array:
        """One entry to a vector."""


@part
class Auto:
    """Images by `small_cnn` from 3 to 35 pixels and by `nature_cnn` from there on; all else flat."""


@part
class ByName:
    """An encoder for each entry that is named, the others as Auto has it."""

    named: tuple[tuple[str, Any], ...] = static()


class Reader(NamedTuple):
    """What an encoder reads: one entry, or, with an encoder of the user's own, all of an observation."""

    entries: tuple[Entry, ...]
    encoder: Any

    @property
    def name(self) -> str:
        """What its parameters are called."""
        return self.entries[0].name if len(self.entries) == 1 else "obs"

    def example(self) -> PyTree:
        """Zeros where the encoder gets numbers: an array, or a dict of them where an observation has several."""
        return self._join([jnp.zeros(entry.shape, jnp.float32) for entry in self.entries])

    def read(self, params: Params, obs: PyTree, dtype: Any) -> Array:
        """The vector of one observation; encoders with layers get it in the weights' precision `dtype`."""
        dtype = jnp.float32 if isinstance(self.encoder, Flat) else dtype  # dense layers round by themselves
        vector: Array = self.encoder(params, self._join([entry.read(obs, dtype) for entry in self.entries]))
        return vector

    def size(self) -> int:
        """Length of that vector."""
        example = jax.eval_shape(self.example)
        shape = jax.eval_shape(lambda x: self.encoder(self.encoder.init(jax.random.key(0), x), x), example)
        if len(shape.shape) != 1:
            raise ConfigError(f"network.encoder: {self.encoder} gives {list(shape.shape)} for a step: must be a vector")
        return int(shape.size)

    def _join(self, arrays: list[Array]) -> PyTree:
        if len(arrays) == 1:
            return arrays[0]
        return {entry.name: x for entry, x in zip(self.entries, arrays, strict=True)}


CONVOLUTIONS = (NatureCNN, ImpalaCNN, SmallCNN)


def readers(encoder: Any, found: tuple[Entry, ...]) -> tuple[Reader, ...]:
    """What reads the entries `found` of an observation. ConfigError where `encoder` does not fit them."""
    if isinstance(encoder, ByName):
        named = dict(encoder.named)
        return tuple(_fitting(named[e.name], e) if e.name in named else _automatic(e) for e in found)
    if isinstance(encoder, Auto):
        return tuple(_automatic(entry) for entry in found)
    if isinstance(encoder, Flat):
        return tuple(Reader((entry,), encoder) for entry in found)
    if not isinstance(encoder, CONVOLUTIONS):
        return (Reader(found, encoder),)
    if not any(entry.image for entry in found):
        shapes = ", ".join(f"{entry.name} {list(entry.shape)}" for entry in found)
        raise ConfigError(f"network.encoder: a convolution reads images, of three axes; there are {shapes}: use flat")
    return tuple(_fitting(encoder, entry) if entry.image else Reader((entry,), Flat()) for entry in found)


def by_name(named: Mapping[str, Any], found: tuple[Entry, ...]) -> ByName:
    """The encoders `named` for entries of an observation; ConfigError where one of these is not there."""
    there = [entry.name for entry in found]
    unknown = [name for name in named if name not in there]
    if unknown:
        raise ConfigError(f"network.encoder: no entry {unknown[0]!r} in the observation; there are {', '.join(there)}")
    return ByName(tuple(named.items()))


def _automatic(entry: Entry) -> Reader:
    if not entry.image:
        return Reader((entry,), Flat())
    if min(entry.shape[:2]) >= 36:
        return _fitting(NatureCNN(), entry)
    if min(entry.shape[1:]) >= 36:  # of four stacked frames, [4, 84, 84], the channels come first
        return _fitting(NatureCNN(layout="chw"), entry)
    small = Reader((entry,), SmallCNN())
    return small if small.size() else Reader((entry,), Flat())  # [2, 3, 128] is no image


def _fitting(encoder: Any, entry: Entry) -> Reader:
    """`encoder` for the entry, if it leaves anything of it."""
    reader = Reader((entry,), encoder)
    if not reader.size():
        raise ConfigError(
            f"network.encoder: {encoder} leaves nothing of {entry.name} {list(entry.shape)}: "
            'use small_cnn or flat, or layout = "chw" where the channels come first'
        )
    return reader
