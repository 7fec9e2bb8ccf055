"""Encoder selection: the encoder of each entry of an observation."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.types import ConfigError, Key, Params, PyTree, part
from ppax.networks.encoders.flat import Flat
from ppax.networks.encoders.impala_cnn import ImpalaCNN
from ppax.networks.encoders.nature_cnn import NatureCNN
from ppax.networks.encoders.small_cnn import SmallCNN
from ppax.networks.observations import Entry


class Encoder(Protocol):
    """Encoder protocol: from one entry of an observation, or all entries, to a vector."""

    def init(self, key: Key, example: PyTree) -> Params:
        """Return parameters for inputs with the shape of `example`."""

    def __call__(self, params: Params, x: PyTree) -> Array:
        """Return the vector [n] of one input."""


@part
class Auto:
    """Automatic choice: `small_cnn` for images of 3 to 35 pixels, `nature_cnn` for larger ones, `flat` otherwise."""


class Reader(NamedTuple):
    """Encoder with its input entries: one entry, or with a user's own encoder all of them."""

    entries: tuple[Entry, ...]
    encoder: Any

    @property
    def name(self) -> str:
        """Name of its parameters: that of its entry, or "obs"."""
        return self.entries[0].name if len(self.entries) == 1 else "obs"

    def example(self) -> PyTree:
        """Return zeros in the shape of the encoder's input: an array, or a dict of arrays for several entries."""
        return self._join([jnp.zeros(entry.shape, jnp.float32) for entry in self.entries])

    def read(self, params: Params, obs: PyTree, dtype: Any) -> Array:
        """Return the vector of one observation; inputs of encoders with layers are cast to the weights' `dtype`."""
        vector: Array = self.encoder(params, self._join([entry.read(obs, dtype) for entry in self.entries]))
        return vector

    def size(self) -> int:
        """Return the length of that vector; ConfigError where the encoder's output is not a vector."""
        example = jax.eval_shape(self.example)
        shape = jax.eval_shape(lambda x: self.encoder(self.encoder.init(jax.random.key(0), x), x), example)
        if len(shape.shape) != 1:
            raise ConfigError(
                f"network.encoder: {self.encoder} returns shape {list(shape.shape)} for a step: must be a vector"
            )
        return int(shape.size)

    def _join(self, arrays: list[Array]) -> PyTree:
        if len(arrays) == 1:
            return arrays[0]
        return {entry.name: x for entry, x in zip(self.entries, arrays, strict=True)}


SMALLEST = 8  # pixels on a side of an image, for advice
CONVOLUTIONS = (NatureCNN, ImpalaCNN, SmallCNN)


def readers(encoder: Any, encoders: tuple[tuple[str, Any], ...], available: tuple[Entry, ...]) -> tuple[Reader, ...]:
    """Return the readers of the `available` entries of an observation: those named in `encoders`, and all others.

    ConfigError where an encoder does not fit.
    """
    named = dict(encoders)
    others = tuple(entry for entry in available if entry.name not in named)
    found = list(_readers(encoder, others)) if others else []
    for entry in available:
        found += _readers(named[entry.name], (entry,)) if entry.name in named else ()
    return tuple(sorted(found, key=lambda reader: available.index(reader.entries[0])))


def _readers(encoder: Any, available: tuple[Entry, ...]) -> tuple[Reader, ...]:
    if isinstance(encoder, Auto):
        return tuple(_automatic(entry) for entry in available)
    if isinstance(encoder, Flat):
        return tuple(Reader((entry,), encoder) for entry in available)
    if not isinstance(encoder, CONVOLUTIONS):
        return (Reader(available, encoder),)
    if not any(entry.image for entry in available):
        shapes = ", ".join(f"{entry.name} {list(entry.shape)}" for entry in available)
        advice = next((advice for entry in available if (advice := _with_three_axes(entry))), "use flat")
        raise ConfigError(
            f"network.encoder: a convolution needs an image, an entry with three axes; there are {shapes}: {advice}"
        )
    return tuple(_fitting(encoder, entry) if entry.image else Reader((entry,), Flat()) for entry in available)


def named_encoders(
    encoders: Mapping[str, Any] | tuple[tuple[str, Any], ...], available: tuple[Entry, ...], field: str
) -> tuple[tuple[str, Any], ...]:
    """Return encoders by entry as sorted pairs; ConfigError, with the nearest, for a name that is no entry."""
    names = [entry.name for entry in available]
    for name in dict(encoders):
        if name not in names:
            nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]
            raise ConfigError(
                f"{field}: no entry {name!r} in the observation; there are {', '.join(names)}; nearest: {nearest}"
            )
    return tuple(sorted(dict(encoders).items()))


def _automatic(entry: Entry) -> Reader:
    """Return the automatic choice of encoder for an entry."""
    if not entry.image:
        if entry.pixels and (advice := _with_three_axes(entry)):
            warnings.warn(
                f"{entry.name} {list(entry.shape)} has pixels, and without three axes it is read as a vector, without "
                f'a convolution: {advice}; encoder = "flat" reads it as it is',
                stacklevel=2,
            )
        return Reader((entry,), Flat())
    if min(entry.shape[:2]) >= 36:
        return _fitting(NatureCNN(), entry)
    if min(entry.shape[1:]) >= 36:  # channels first, as in four stacked frames [4, 84, 84]
        return _fitting(NatureCNN(layout="chw"), entry)
    small = Reader((entry,), SmallCNN())
    return small if small.size() else Reader((entry,), Flat())  # too small for a convolution, such as [2, 3, 128]


def _with_three_axes(entry: Entry) -> str:
    """Return how an array of two or four axes becomes an image with three; "" where it is none."""
    shape = entry.shape
    if entry.categories or len(shape) not in (2, 4) or min(sorted(shape)[-2:]) < SMALLEST:
        return ""
    if len(shape) == 2:
        return (
            f"give it an axis of channels, [{shape[0]}, {shape[1]}, 1], as gymnasium.wrappers.ReshapeObservation does"
        )
    frames, height, width, channels = shape
    return (
        f"make the axis of frames one of channels, [{height}, {width}, {frames * channels}], as "
        "np.concatenate(frames, axis=-1) does"
    )


def _fitting(encoder: Any, entry: Entry) -> Reader:
    """Return `encoder` with its entry; ConfigError where the entry is too small for it."""
    reader = Reader((entry,), encoder)
    if not reader.size():
        raise ConfigError(
            f"network.encoder: {encoder} has an empty output for {entry.name} {list(entry.shape)}: "
            'use small_cnn or flat, or layout = "chw" where the channels come first'
        )
    return reader
