"""Encoders from one entry of an observation to a vector, the choice of each entry's encoder, and convolutions."""

from __future__ import annotations

import difflib
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.types import ConfigError, Key, Params, PyTree, part, static
from ppax.devices.platforms import float32_precision, rules
from ppax.networks.layers import orthogonal
from ppax.networks.observations import Entry
from ppax.networks.products import matmul

__all__ = ["Auto", "Encoder", "EntryReader", "Flat", "ImpalaCNN", "NatureCNN", "SmallCNN", "named_encoders", "readers"]

LAYOUTS = ("hwc", "chw")
SIZES, STRIDES = (8, 4, 3), (4, 2, 1)  # of NatureCNN's filters
SMALLEST = 8  # pixels on a side of an image, for advice
LARGE = 36  # pixels on the shorter side of images that have NatureCNN by default


class Encoder(Protocol):
    """Protocol of encoders, which map one entry of an observation, or a dict of all entries, to a vector."""

    def init(self, key: Key, example: PyTree) -> Params:
        """Return new parameters of the encoder for inputs with the shape of `example`."""

    def __call__(self, params: Params, x: PyTree) -> Array:
        """Return the encoder's vector [n] for one input, without batch axis."""


@part
class Auto:
    """Automatic choice of each entry's encoder: a convolution for images, else `flat`.

    Images of at least 36 x 36 pixels have `nature_cnn`, smaller ones of at least 3 x 3 pixels `small_cnn`.
    """


@part
class Flat:
    """Encoder that flattens an array to a vector, without parameters."""

    def init(self, key: Key, example: PyTree) -> Params:
        """Return {}: flattening has no parameters."""
        return {}

    def __call__(self, params: Params, x: Array) -> Array:
        """Return the array `x` [...] as a vector [size]."""
        return jnp.ravel(x)


@part
class NatureCNN:
    """Encoder of DQN: three convolutions with relu, for images of at least 36 x 36 pixels.

    Mnih et al. 2015, https://doi.org/10.1038/nature14236. Filters and strides: 8 x 8 with 4, 4 x 4 with 2, 3 x 3 with
    1. The paper's network adds one dense layer: `hidden = [512]`, `activation = "relu"`.
    """

    channels: tuple[int, ...] = static("channels of the three convolutions", default=(32, 64, 64), low=1)
    layout: str = static("axis order of images: channels last or first", default="hwc", choices=LAYOUTS)

    def init(self, key: Key, example: PyTree) -> Params:
        """Return new parameters, filters and biases, of DQN's three convolutions, for images shaped as `example`."""
        return init_convs(key, SIZES, (channels_last(example, self.layout).shape[-1], *self.channels))

    def __call__(self, params: Params, x: Array) -> Array:
        """Return the features [n] of one image: the output of DQN's three convolutions, as a vector.

        The image is [H, W, C] if `layout` is "hwc", and [C, H, W] if it is "chw".
        """
        x = channels_last(x, self.layout)
        for i, stride in enumerate(STRIDES):
            x = jax.nn.relu(conv(params[str(i)], x, stride))
        return jnp.ravel(x)


@part
class ImpalaCNN:
    """Encoder of IMPALA: a residual network with a stage for each of `channels`, then relu.

    Espeholt et al. 2018, https://arxiv.org/abs/1802.01561, figure 3, right. A stage is a 3 x 3 convolution, max pooling
    that halves the image, and two residual blocks of 3 x 3 convolutions. The paper's network adds one dense layer:
    `hidden = [256]`, `activation = "relu"`.
    """

    channels: tuple[int, ...] = static("channels of each stage", default=(16, 32, 32), low=1)
    layout: str = static("axis order of images: channels last or first", default="hwc", choices=LAYOUTS)

    def init(self, key: Key, example: PyTree) -> Params:
        """Return new filters of IMPALA's encoder for images like `example`: five convolutions for each stage."""
        channels = (channels_last(example, self.layout).shape[-1], *self.channels)
        keys = jax.random.split(key, len(self.channels))
        stages = zip(keys, channels[:-1], channels[1:], strict=True)
        return {str(i): init_convs(k, (3,) * 5, (size, *(out,) * 5)) for i, (k, size, out) in enumerate(stages)}

    def __call__(self, params: Params, x: Array) -> Array:
        """Return the features [n] of one image: the output of IMPALA's residual network, as a vector.

        The image is [H, W, C] if `layout` is "hwc", and [C, H, W] if it is "chw".
        """
        x = channels_last(x, self.layout)
        for i in range(len(self.channels)):
            stage = params[str(i)]
            x = max_pool(conv(stage["0"], x, padding="SAME"))
            for one, other in (("1", "2"), ("3", "4")):
                inner = conv(stage[one], jax.nn.relu(x), padding="SAME")
                x = x + conv(stage[other], jax.nn.relu(inner), padding="SAME")
        return jnp.ravel(jax.nn.relu(x))


@part
class SmallCNN:
    """Encoder of 3 x 3 convolutions with relu, one for each of `channels`, for images of about 10 x 10 pixels.

    It is the encoder of MinAtar's networks: Young and Tian 2019, https://arxiv.org/abs/1903.03176. The paper's network
    adds one dense layer: `hidden = [128]`, `activation = "relu"`.
    """

    channels: tuple[int, ...] = static("channels of each convolution", default=(16,), low=1)
    layout: str = static("axis order of images: channels last or first", default="hwc", choices=LAYOUTS)

    def init(self, key: Key, example: PyTree) -> Params:
        """Return new filters of the 3 x 3 convolutions, for images of the shape of `example`."""
        channels = (channels_last(example, self.layout).shape[-1], *self.channels)
        return init_convs(key, (3,) * len(self.channels), channels)

    def __call__(self, params: Params, x: Array) -> Array:
        """Return the features [n] of one image: the output of the 3 x 3 convolutions, as a vector.

        The image is [H, W, C] if `layout` is "hwc", and [C, H, W] if it is "chw".
        """
        x = channels_last(x, self.layout)
        for i in range(len(self.channels)):
            x = jax.nn.relu(conv(params[str(i)], x))
        return jnp.ravel(x)


CONVOLUTIONS = (NatureCNN, ImpalaCNN, SmallCNN)


class EntryReader(NamedTuple):
    """Encoder with the entries (arrays) of an observation that it reads: one, or several for a user's own encoder."""

    entries: tuple[Entry, ...]
    encoder: Any

    @property
    def name(self) -> str:
        """Name of the encoder's parameters: that of the entry which it reads, or "obs" if it reads several."""
        return self.entries[0].name if len(self.entries) == 1 else "obs"

    def example(self) -> PyTree:
        """Return zeros in the shape of the encoder's input: an array, or a dict of arrays for several entries."""
        return self._join([jnp.zeros(entry.shape, jnp.float32) for entry in self.entries])

    def read(self, params: Params, obs: PyTree, dtype: Any) -> Array:
        """Return the encoder's vector [n] for one observation; arrays that it reads are cast to `dtype`."""
        vector: Array = self.encoder(params, self._join([entry.read(obs, dtype) for entry in self.entries]))
        return vector

    def size(self) -> int:
        """Return the length of the encoder's output vector; raise ConfigError where its output is not a vector."""
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


def readers(
    encoder: Any, encoders: tuple[tuple[str, Any], ...], available: tuple[Entry, ...]
) -> tuple[EntryReader, ...]:
    """Return each encoder paired with the `available` observation entries that it reads, in the order of the entries.

    `encoders` are pairs (name of an entry, encoder). `encoder` reads the entries that are not named there: a user's own
    encoder reads all of them together, an encoder of ppax each one alone. Raises ConfigError where an encoder does not
    fit, and where its parameters would have the name of those of the encoder of several entries.
    """
    named = dict(encoders)
    others = tuple(entry for entry in available if entry.name not in named)
    found = list(_readers(encoder, others)) if others else []
    for entry in available:
        found += _readers(named[entry.name], (entry,)) if entry.name in named else ()
    joint = next((reader for reader in found if len(reader.entries) > 1), None)
    if joint is not None and any(reader.name == joint.name for reader in found if reader is not joint):
        raise ConfigError(
            "network.encoders.obs: parameters of the encoder that reads several entries have the name 'obs' already; "
            "must be an entry of another name: rename it in the environment, or let that encoder read it, too"
        )
    return tuple(sorted(found, key=lambda reader: available.index(reader.entries[0])))


def _readers(encoder: Any, available: tuple[Entry, ...]) -> tuple[EntryReader, ...]:
    if isinstance(encoder, Auto):
        return tuple(_automatic(entry) for entry in available)
    if isinstance(encoder, Flat):
        return tuple(EntryReader((entry,), encoder) for entry in available)
    if not isinstance(encoder, CONVOLUTIONS):
        reader = EntryReader(available, encoder)
        reader.size()  # a user's encoder that cannot read this observation is refused here, before anything is trained
        return (reader,)
    if not any(entry.image for entry in available):
        shapes = ", ".join(f"{entry.name} {list(entry.shape)}" for entry in available)
        advice = next((advice for entry in available if (advice := _with_three_axes(entry))), "use flat")
        raise ConfigError(
            f"network.encoder: a convolution needs an image, an entry with three axes; there are {shapes}: {advice}"
        )
    return tuple(_fitting(encoder, entry) if entry.image else EntryReader((entry,), Flat()) for entry in available)


def named_encoders(
    encoders: Mapping[str, Any] | tuple[tuple[str, Any], ...], available: tuple[Entry, ...], field: str
) -> tuple[tuple[str, Any], ...]:
    """Return the encoders of single entries as sorted pairs (name of the entry, encoder).

    Raises ConfigError for a name that is none of the `available` entries; the message names the option `field` and the
    nearest entry.
    """
    names = [entry.name for entry in available]
    for name in dict(encoders):
        if name not in names:
            nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]
            raise ConfigError(
                f"{field}: no entry {name!r} in the observation; there are {', '.join(names)}; nearest: {nearest}"
            )
    return tuple(sorted(dict(encoders).items()))


def is_large(shape: Sequence[int]) -> bool:
    """Return True for the shape of an image, channels last or first, with at least LARGE pixels on both sides."""
    return min(shape[:2]) >= LARGE or min(shape[1:]) >= LARGE


def _automatic(entry: Entry) -> EntryReader:
    """Return an observation's entry with the encoder chosen for it: convolutions for an image that is not too small.

    Other entries have the encoder `Flat`. Bytes (uint8 from 0 to 255) with two or four axes cause a warning if they
    look like images, which have three axes (`_with_three_axes`).
    """
    if not entry.image:
        if entry.pixels and (advice := _with_three_axes(entry)):
            warnings.warn(
                f"{entry.name} {list(entry.shape)} has pixels, and without three axes it is read as a vector, without "
                f'a convolution: {advice}; encoder = "flat" reads it as it is',
                stacklevel=2,
            )
        return EntryReader((entry,), Flat())
    if is_large(entry.shape):
        last = min(entry.shape[:2]) >= LARGE  # else channels first, as in four stacked frames [4, 84, 84]
        return _fitting(NatureCNN(layout="hwc" if last else "chw"), entry)
    small = EntryReader((entry,), SmallCNN())
    return small if small.size() else EntryReader((entry,), Flat())  # too small for a convolution, such as [2, 3, 128]


def _with_three_axes(entry: Entry) -> str:
    """Return advice for the user on how to turn an array of two or four axes into an image, which has three axes.

    The text is "" for an array of another number of axes, of categories, or with fewer than two axes of SMALLEST or
    more elements, which does not look like images.
    """
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


def _fitting(encoder: Any, entry: Entry) -> EntryReader:
    """Return `encoder` paired with the entry that it reads; raise ConfigError where the entry is too small for it."""
    reader = EntryReader((entry,), encoder)
    if not reader.size():
        raise ConfigError(
            f"network.encoder: {encoder} has an empty output for {entry.name} {list(entry.shape)}: "
            'use small_cnn or flat, or layout = "chw" where the channels come first'
        )
    return reader


def init_conv(key: Key, size: int, channels_in: int, channels_out: int) -> Params:
    """Return new parameters of a convolution: `size` x `size` filters and zero bias.

    The filters are orthogonal as a matrix from patch to channels, with gain sqrt 2.
    """
    matrix = orthogonal(key, size * size * channels_in, channels_out, math.sqrt(2.0))
    return {
        "kernel": matrix.reshape(size, size, channels_in, channels_out),
        "bias": jnp.zeros(channels_out, jnp.float32),
    }


def conv(params: Params, x: Array, stride: int = 1, padding: str = "VALID") -> Array:
    """Return the convolution of one image [height, width, channels] with the filters, plus bias, as float32.

    The products are in the precision of the filters. On a CPU it uses matrix products, because XLA's CPU convolutions
    are 10 to 40 times slower inside a loop (https://github.com/jax-ml/jax/issues/12868); on accelerators it uses XLA's
    convolution.
    """
    convolve = convolve_by_library if rules().library_convolutions else convolve_by_products
    return convolve(x, params["kernel"], stride, padding) + params["bias"][None, None]


def convolve_by_library(x: Array, kernel: Array, stride: int, padding: str) -> Array:
    """Return the convolution [H', W', D] of an image [H, W, C] with filters [h, w, C, D], by XLA's convolution."""
    axes = ("NHWC", "HWIO", "NHWC")
    y: Array = jax.lax.conv_general_dilated(
        x[None].astype(kernel.dtype),
        kernel,
        (stride, stride),
        padding,
        dimension_numbers=axes,
        precision=None if kernel.dtype == jnp.bfloat16 else float32_precision(),
    )
    return y[0].astype(jnp.float32)


def convolve_by_products(x: Array, kernel: Array, stride: int, padding: str) -> Array:
    """Return the convolution [H', W', D] of an image [H, W, C] with filters [h, w, C, D], by one matrix product.

    The product is of patches and filters (im2col). First, blocks of stride x stride pixels become channels (space to
    depth). The remaining convolution has stride 1; its patches are plain slices, whose gradient is padding: both are
    cheap, unlike slices with a stride.
    """
    rows, columns = x.shape[:2]
    high, wide, _, filters = kernel.shape
    (top, bottom), (left, right) = (_margins(*sizes, stride, padding) for sizes in ((rows, high), (columns, wide)))
    down, across = (rows + top + bottom - high) // stride + 1, (columns + left + right - wide) // stride + 1
    if min(down, across) <= 0:
        return jnp.zeros((max(down, 0), max(across, 0), filters), jnp.float32)
    n, m = -(-high // stride), -(-wide // stride)  # blocks covered by a filter
    ends = (
        (down + n - 1) * stride - rows - top,
        (across + m - 1) * stride - columns - left,
    )  # padding at the end; negative: crop unused pixels
    x = jax.lax.pad(x, jnp.zeros((), x.dtype), ((top, ends[0], 0), (left, ends[1], 0), (0, 0, 0)))
    kernel = jnp.pad(kernel, ((0, n * stride - high), (0, m * stride - wide), (0, 0), (0, 0)))
    if stride > 1:
        x, kernel = _blocks(x, stride), _blocks(kernel, stride)
    slices = [x[i : i + down, j : j + across] for i in range(n) for j in range(m)]
    patches = jnp.concatenate(slices, axis=-1).reshape(down * across, -1)
    return matmul(patches, kernel.reshape(-1, filters)).reshape(down, across, filters)


def _margins(size: int, window: int, stride: int, padding: str) -> tuple[int, int]:
    """Return the numbers of padding pixels before and after an axis of `size` pixels, for a window of `window` pixels.

    The window moves by `stride` pixels; `padding` is "SAME" or "VALID", as in XLA's convolutions.
    """
    ((before, after),) = jax.lax.padtype_to_pads((size,), (window,), (stride,), padding)
    return before, after


def _blocks(x: Array, size: int) -> Array:
    """Return `x` [H, W, C, ...] as [H / size, W / size, size * size * C, ...], blocks as channels (space to depth)."""
    rows, columns, channels, *rest = x.shape
    x = x.reshape(rows // size, size, columns // size, size, channels, *rest)
    return jnp.moveaxis(x, 2, 1).reshape(rows // size, columns // size, size * size * channels, *rest)


def max_pool(x: Array) -> Array:
    """Return an image [H, W, C] max-pooled with window 3 x 3, stride 2 and padding "SAME".

    On a CPU, slices are compared instead of XLA's pooling, with the same gradient: among equal numbers, the first
    receives it.
    """
    if rules().library_convolutions:
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (3, 3, 1), (2, 2, 1), "SAME")
    return _largest_of_three(_largest_of_three(x, 1), 0)


def _largest_of_three(x: Array, axis: int) -> Array:
    """Return `x` [H, W, C] max-pooled along `axis` with window 3, stride 2 and padding "SAME"."""
    size = x.shape[axis]
    before, _ = _margins(size, 3, 2, "SAME")
    out = -(-size // 2)
    margins = [(0, 0, 0)] * x.ndim
    margins[axis] = before, 2 * (out + 1) - size - before, 0
    x = jax.lax.pad(x, jnp.asarray(-jnp.inf, x.dtype), margins)
    pairs = x.reshape(*x.shape[:axis], out + 1, 2, *x.shape[axis + 1 :])  # a slice with a stride has a slow gradient
    even, odd = (jax.lax.index_in_dim(pairs, i, axis + 1, keepdims=False) for i in range(2))
    first, second, third = (jax.lax.slice_in_dim(y, i, out + i, axis=axis) for y, i in ((even, 0), (odd, 0), (even, 1)))
    return _larger(_larger(first, second), third)


def _larger(a: Array, b: Array) -> Array:
    """Return the elementwise maximum; its gradient goes to `a` where both are equal. NaN where one of them is NaN."""
    return jnp.where((a >= b) | (a != a), a, b)


def channels_last(x: Array, layout: str) -> Array:
    """Return an image of this layout, "hwc" or "chw", as [height, width, channels]."""
    return x if layout == "hwc" else jnp.moveaxis(x, 0, -1)


def init_convs(key: Key, sizes: tuple[int, ...], channels: tuple[int, ...]) -> Params:
    """Return new parameters of consecutive convolutions, by name "0", "1", ...

    `sizes` are the sides of their filters. `channels[0]` is the number of the image's channels, and `channels[i + 1]`
    that of the outputs of convolution i.
    """
    keys = jax.random.split(key, len(sizes))
    return {str(i): init_conv(keys[i], size, channels[i], channels[i + 1]) for i, size in enumerate(sizes)}
