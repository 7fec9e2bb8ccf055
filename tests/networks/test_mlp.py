"""MLP: orthogonal weights, gains, and the arithmetic of its layers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax.networks import mlp
from ppax.networks.layers import orthogonal


class World:
    """Spaces of an environment, without steps."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space


BOX = spaces.Box(-1.0, 1.0, (3,), np.float32)
DISCRETE = World(BOX, spaces.Discrete(4))
CONTINUOUS = World(BOX, spaces.Box(-2.0, 2.0, (2,), np.float32))


@pytest.mark.parametrize("shape", [(64, 64), (4, 64), (64, 1), (3, 3), (17, 5)])
def test_orthogonal_weights_have_orthogonal_vectors_of_the_gains_length(shape):
    w = np.asarray(orthogonal(jax.random.key(0), *shape, 1.5), np.float64)
    gram = w.T @ w if shape[0] >= shape[1] else w @ w.T
    np.testing.assert_allclose(gram, 1.5**2 * np.eye(min(shape)), atol=1e-5)


def test_orthogonal_weights_are_uniform():
    """Check in two dimensions: the first vector's angle is uniform; reflections are as likely as rotations."""
    w = np.asarray(jax.vmap(lambda key: orthogonal(key, 2, 2, 1.0))(jax.random.split(jax.random.key(0), 4000)))
    angle = np.arctan2(w[:, 1, 0], w[:, 0, 0])
    counts = np.histogram(angle, bins=8, range=(-np.pi, np.pi))[0]
    assert np.abs(counts - 500).max() < 5 * np.sqrt(500)
    assert abs((np.linalg.det(w) > 0).mean() - 0.5) < 5 * 0.5 / np.sqrt(4000)


def test_gains_of_the_layers():
    params = mlp(DISCRETE).init(jax.random.key(0))
    sizes = {"actor": 2**0.5, "critic": 2**0.5}
    for torso, gain in sizes.items():
        for layer in params[torso].values():
            np.testing.assert_allclose(np.linalg.norm(layer["kernel"], 2), gain, rtol=1e-4)
            assert not layer["bias"].any()
    np.testing.assert_allclose(np.linalg.norm(params["policy"]["kernel"], 2), 0.01, rtol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(params["value"]["kernel"], 2), 1.0, rtol=1e-4)


@pytest.mark.parametrize("shared", [False, True])
def test_shared_torso_has_one_set_of_parameters(shared):
    network = mlp(DISCRETE, shared=shared)
    params = network.init(jax.random.key(0))
    assert ("critic" in params) is not shared
    features = network.encode(params, jnp.array([0.1, -0.2, 0.3]))
    assert len(features) == (1 if shared else 2)


def test_forward_pass_of_one_observation_by_hand():
    network = mlp(CONTINUOUS, hidden=(5,), activation="relu", log_std_init=-0.5)
    params = network.init(jax.random.key(0))
    obs = np.array([0.5, -1.0, 0.25], np.float32)
    out = network.decide(params, network.encode(params, obs), None)
    layers = {name: params[name]["0"] for name in ("actor", "critic")}
    hidden = {name: np.maximum(obs @ layer["kernel"] + layer["bias"], 0) for name, layer in layers.items()}
    np.testing.assert_allclose(out.distribution.mean, hidden["actor"] @ params["policy"]["kernel"], rtol=1e-5)
    np.testing.assert_allclose(out.value, (hidden["critic"] @ params["value"]["kernel"]), rtol=1e-5)
    np.testing.assert_allclose(out.distribution.log_std, [-0.5, -0.5])


def test_without_hidden_layers_the_network_is_linear():
    network = mlp(DISCRETE, hidden=())
    params = network.init(jax.random.key(0))
    out = network.decide(params, network.encode(params, jnp.ones(3)), None)
    assert out.distribution.logits.shape == (4,)


def test_unsupported_spaces_are_refused():
    with pytest.raises(ppax.ConfigError, match="observation space Text"):
        mlp(World(spaces.Text(3), spaces.Discrete(2)))
    with pytest.raises(ppax.ConfigError, match=r"action space Text"):
        mlp(World(BOX, spaces.Text(3)))
