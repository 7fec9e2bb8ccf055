"""Convolutional encoders against float64 loops, and the automatic choice of encoder."""

import contextlib
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax.core.types import ConfigError
from ppax.networks import encoders, network
from support.worlds import QUICK


def correlate(x, kernel, bias, stride=1, pad=0):
    """Cross-correlation of [height, width, channels], by loops."""
    x = np.pad(x, ((pad, pad), (pad, pad), (0, 0)))
    size = kernel.shape[0]
    rows, columns = ((n - size) // stride + 1 for n in x.shape[:2])
    out = np.zeros((rows, columns, kernel.shape[-1]))
    for i in range(rows):
        for j in range(columns):
            patch = x[i * stride : i * stride + size, j * stride : j * stride + size]
            out[i, j] = [np.sum(patch * kernel[..., c]) for c in range(kernel.shape[-1])] + bias
    return out


def relu(x):
    return np.maximum(x, 0)


def pool(x):
    """Max pooling with window 3 x 3 and stride 2, for even numbers of rows and columns."""
    padded = np.pad(x, ((0, 1), (0, 1), (0, 0)), constant_values=-np.inf)
    rows, columns = (n // 2 for n in x.shape[:2])
    return np.array(
        [[padded[2 * i : 2 * i + 3, 2 * j : 2 * j + 3].max((0, 1)) for j in range(columns)] for i in range(rows)]
    )


def nature(p, x):
    for i, stride in enumerate((4, 2, 1)):
        x = relu(correlate(x, **p[str(i)], stride=stride))
    return x.ravel()


def small(p, x):
    return relu(correlate(x, **p["0"])).ravel()


def impala(p, x):
    for stage in (p["0"], p["1"]):
        x = pool(correlate(x, **stage["0"], pad=1))
        for one, other in (("1", "2"), ("3", "4")):
            x = x + correlate(relu(correlate(relu(x), **stage[one], pad=1)), **stage[other], pad=1)
    return relu(x).ravel()


@pytest.mark.parametrize("layout", ["hwc", "chw"])
@pytest.mark.parametrize(
    ("encoder", "oracle", "shape"),
    [
        (encoders.NatureCNN(channels=(3, 4, 2)), nature, (40, 44, 2)),
        (encoders.SmallCNN(channels=(3,)), small, (5, 6, 2)),
        (encoders.ImpalaCNN(channels=(2, 3)), impala, (8, 12, 2)),
    ],
    ids=["nature", "small", "impala"],
)
def test_encoders_equal_float64_loops(encoder, oracle, shape, layout):
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape).astype(np.float32)
    seen = jnp.asarray(x if layout == "hwc" else np.moveaxis(x, -1, 0))
    encoder = type(encoder)(channels=encoder.channels, layout=layout)
    params = jax.jit(encoder.init, compiler_options=QUICK)(jax.random.key(0), seen)
    params = jax.tree.map(lambda p: p + 0.1 * rng.normal(size=p.shape).astype(np.float32), params)
    exact = oracle(jax.tree.map(lambda p: np.asarray(p, np.float64), params), x.astype(np.float64))
    got = jax.jit(encoder, compiler_options=QUICK)(params, seen)
    np.testing.assert_allclose(got, exact, atol=3e-5, rtol=1e-4)


def test_filters_are_orthogonal():
    params = jax.jit(encoders.SmallCNN().init, compiler_options=QUICK)(jax.random.key(0), jnp.zeros((10, 10, 4)))
    matrix = np.asarray(params["0"]["kernel"], np.float64).reshape(-1, 16)
    np.testing.assert_allclose(matrix.T @ matrix, 2 * np.eye(16), atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "dtype", "encoder"),
    [
        ((84, 84, 3), np.uint8, encoders.NatureCNN()),
        ((4, 84, 84), np.uint8, encoders.NatureCNN(layout="chw")),
        ((10, 10, 4), bool, encoders.SmallCNN()),
        ((35, 99, 3), np.float32, encoders.SmallCNN()),
        ((84, 84), np.uint8, encoders.Flat()),
        ((7,), np.float32, encoders.Flat()),
    ],
)
def test_automatic_choice_of_encoder(shape, dtype, encoder):
    class World:
        observation_space = spaces.Box(0, 255 if dtype is np.uint8 else 1, shape, np.int8 if dtype is bool else dtype)
        action_space = spaces.Discrete(2)

    flattened = pytest.warns(UserWarning, match="without three axes it is read as a vector")
    with flattened if shape == (84, 84) else contextlib.nullcontext():
        (reader,) = network(World).actor_readers
    assert reader.encoder == encoder
    assert reader.size() == {(84, 84, 3): 7 * 7 * 64, (4, 84, 84): 7 * 7 * 64, (10, 10, 4): 8 * 8 * 16}.get(
        shape, reader.size()
    )
    if isinstance(encoder, encoders.Flat):
        assert reader.size() == math.prod(shape)


def test_pixels_are_scaled_once():
    class World:
        observation_space = spaces.Box(0, 255, (5, 5, 1), np.uint8)
        action_space = spaces.Discrete(2)

    (reader,) = network(World).actor_readers
    bytes_ = np.random.default_rng(0).integers(0, 256, (5, 5, 1)).astype(np.uint8)
    np.testing.assert_allclose(reader.entries[0].read(jnp.asarray(bytes_), jnp.float32), bytes_ / 255, rtol=1e-6)
    normalised = jnp.asarray(bytes_, jnp.float32) / 100 - 1  # float32 after normalisation
    np.testing.assert_array_equal(reader.entries[0].read(normalised, jnp.float32), normalised)


def camera(shape, dtype=np.uint8):
    return VectorSpaces(spaces.Box(0, 255, shape, dtype))


class VectorSpaces:
    """Spaces of an environment, which is all that a network reads of it."""

    action_space = spaces.Discrete(2)

    def __init__(self, observation_space):
        self.observation_space = observation_space


@pytest.mark.parametrize(
    ("shape", "advice"),
    [((16, 12), r"\[16, 12, 1\]"), ((4, 16, 12, 3), r"\[16, 12, 12\].*axis=-1")],
)
def test_an_image_that_is_read_as_a_vector_is_named(shape, advice):
    with pytest.warns(UserWarning, match=rf"without a convolution.*{advice}"):
        network = ppax.networks.network(camera(shape))
    assert isinstance(network.actor_readers[0].encoder, encoders.Flat)
    with pytest.raises(ConfigError, match=advice):
        ppax.networks.network(camera(shape), encoder=encoders.NatureCNN())
    ppax.networks.network(camera(shape), encoder=encoders.Flat())  # asked for: no warning


@pytest.mark.parametrize("space", [((4, 4), np.uint8), ((16,), np.uint8), ((16, 16), np.float32)])
def test_other_arrays_are_read_as_vectors_without_a_word(space):
    ppax.networks.network(camera(*space))


@ppax.part
class Sums:
    """Encoder of a user: a sum of all numbers that it reads, times a parameter."""

    def init(self, key, example):
        return {"w": jnp.ones(1)}

    def __call__(self, params, x):
        return params["w"] * sum(leaf.sum() for leaf in jax.tree.leaves(x))


def test_two_encoders_with_parameters_of_one_name_are_refused():
    class Several:
        action_space = spaces.Discrete(2)

        def __init__(self, name):
            self.observation_space = spaces.Dict({key: spaces.Box(-1.0, 1.0, (2,)) for key in (name, "a", "b")})

    params = network(Several("pose"), encoder=Sums(), encoders={"pose": Sums()}).init(jax.random.key(0))
    assert set(params["actor"]["encoder"]) == {"pose", "obs"}
    with pytest.raises(ConfigError, match=r"network\.encoders\.obs: .* must be an entry of another name"):
        network(Several("obs"), encoder=Sums(), encoders={"obs": Sums()})
