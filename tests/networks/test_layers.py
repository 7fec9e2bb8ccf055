"""Dense layers: activations of jax.nn by name, layer norm, gains."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import config
from ppax.networks import Tower, network
from ppax.networks.layers import ACTIVATIONS


class World:
    """Spaces of an environment, without steps."""

    observation_space, action_space = spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Discrete(4)


def elementwise(function):
    """Whether a function of jax.nn maps an array number by number, with finite values and derivatives."""
    x = jnp.linspace(-3.0, 3.0, 8)
    try:
        whole, each = function(x), jnp.stack([function(one) for one in x])
        return bool(np.allclose(whole, each, atol=1e-6) and np.isfinite(jax.vmap(jax.grad(function))(x)).all())
    except Exception:
        return False


def test_activations_are_the_elementwise_functions_of_jax_nn():
    found = {name for name in dir(jax.nn) if not name.startswith("_") and elementwise(getattr(jax.nn, name))}
    assert found == set(ACTIVATIONS)
    for name in found:
        np.testing.assert_allclose(
            ACTIVATIONS[name](jnp.array([-2.0, 0.5])), getattr(jax.nn, name)(jnp.array([-2.0, 0.5]))
        )


def test_an_unknown_activation_is_refused_with_the_nearest():
    with pytest.raises(ppax.ConfigError, match=r"agent\.network\.activation = 'mishh': .*nearest: mish"):
        config.resolve({"agent": {"network": {"activation": "mishh"}}})
    with pytest.raises(ppax.ConfigError, match=r"agent\.network\.critic\.activation = 'softmax': .*nearest: soft"):
        config.resolve({"agent": {"network": {"critic": {"activation": "softmax"}}}})


def test_residual_connections_by_hand():
    """Where inputs and outputs are as many: the second and third of four layers, and the one of the heads."""
    net = network(World, hidden=(5, 5, 5, 4), head_hidden=(4,), residual=True)
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32), net.init(jax.random.key(0)))
    double = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    x = np.array([0.5, -1.0, 0.25])
    for i, same in enumerate((False, True, True, False)):
        y = np.tanh(x @ double["actor"][str(i)]["kernel"] + double["actor"][str(i)]["bias"])
        x = x + y if same else y
    x = x + np.tanh(x @ double["policy"]["0"]["kernel"] + double["policy"]["0"]["bias"])
    logits = x @ double["policy"]["kernel"] + double["policy"]["bias"]
    given = net.decide(params, net.encode(params, jnp.array([0.5, -1.0, 0.25])), None).distribution.logits
    np.testing.assert_allclose(jax.nn.log_softmax(given), jax.nn.log_softmax(logits), rtol=1e-4)


def test_residual_connections_without_an_effect_are_refused():
    message = r"residual = true: no hidden layer of the critic .* 3 inputs are \[8\]; write one twice"
    with pytest.raises(ppax.ConfigError, match=message):
        network(World, hidden=(8, 8), residual=True, critic=Tower(hidden=(8,)))
    assert not network(World, hidden=(8, 8), residual=True, critic=Tower(hidden=(8,), residual=False)).critic.residual
    assert network(World, hidden=(8,), head_hidden=(8,), residual=True).residual


def test_layer_norm_by_hand():
    """Each hidden layer, also those of `head_hidden`: x W + b, standardised, scaled and shifted, then relu."""
    net = network(World, hidden=(5,), head_hidden=(4,), layer_norm=True, activation="relu")
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32), net.init(jax.random.key(0)))
    obs = np.array([0.5, -1.0, 0.25])
    double = jax.tree.map(lambda x: np.asarray(x, np.float64), params)

    def layer(p, x):
        y = x @ p["kernel"] + p["bias"]
        return np.maximum((y - y.mean()) / np.sqrt(y.var() + 1e-6) * p["norm"]["scale"] + p["norm"]["bias"], 0.0)

    out = net.decide(params, net.encode(params, jnp.asarray(obs, jnp.float32)), None)
    features = {name: layer(double[name]["0"], obs) for name in ("actor", "critic")}
    for found, head, tower in ((out.distribution.logits, "policy", "actor"), (out.value, "value", "critic")):
        last = layer(double[head]["0"], features[tower])
        np.testing.assert_allclose(found, last @ double[head]["kernel"] + double[head]["bias"], rtol=2e-5, atol=2e-5)


SIMBA = {"layers": "simba", "hidden": (5, 5), "head_hidden": (4,)}


def test_simba_by_hand():
    """A linear layer, blocks x + W2 relu(W1 LN(x)) of which W1 has four times the width, layer norm at the end."""
    net = network(World, **SIMBA)
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32), net.init(jax.random.key(0)))
    assert params["actor"]["1"]["grow"]["kernel"].shape == (5, 20)
    double = jax.tree.map(lambda x: np.asarray(x, np.float64), params)

    def linear(p, x):
        return x @ p["kernel"] + p["bias"]

    def norm(p, x):
        return (x - x.mean()) / np.sqrt(x.var() + 1e-6) * p["scale"] + p["bias"]

    def layers(p, x, blocks):
        x = linear(p["0"], x)
        for i in range(1, blocks + 1):
            block = p[str(i)]
            x = x + linear(block["shrink"], np.maximum(linear(block["grow"], norm(block["norm"], x)), 0.0))
        return norm(p["norm"], x)

    obs = np.array([0.5, -1.0, 0.25])
    out = net.decide(params, net.encode(params, jnp.asarray(obs, jnp.float32)), None)
    for found, head, tower in ((out.distribution.logits, "policy", "actor"), (out.value, "value", "critic")):
        expected = linear(double[head], layers(double[head], layers(double[tower], obs, 2), 1))
        np.testing.assert_allclose(found - found.mean(), expected - expected.mean(), rtol=1e-4, atol=1e-4)


def test_first_weights_of_simba():
    """The linear layer is orthogonal; weights of blocks have standard deviation gain / sqrt(inputs)."""
    params = network(World, layers="simba", hidden=(64,), hidden_gain=0.5).init(jax.random.key(0))["actor"]
    np.testing.assert_allclose(params["0"]["kernel"] @ params["0"]["kernel"].T, np.eye(3), atol=1e-5)
    for name, inputs in (("grow", 64), ("shrink", 256)):
        assert float(params["1"][name]["kernel"].std()) == pytest.approx(0.5 / math.sqrt(inputs), rel=0.03)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"hidden": (8, 4)}, r"hidden = \[8, 4\] has a residual block for each number.*nearest valid value: \[8, 8\]"),
        ({"layer_norm": True}, "its blocks have layer norm .*nearest valid value: layer_norm = false"),
        ({"hidden": (5, 5), "residual": True}, "nearest valid value: residual = false"),
        ({"activation": "mish"}, 'its blocks have relu, activation = "mish" is for dense layers; leave it out'),
        ({"hidden": ()}, r"there are no hidden layers; nearest valid value: hidden = \[64\]"),
        ({"layers": "simbaa"}, "layers = 'simbaa': must be one of dense, simba; nearest: simba"),
    ],
)
def test_options_that_contradict_simba_are_refused(options, text):
    with pytest.raises(ppax.ConfigError, match=text):
        config.build(
            {
                "agent": {
                    "network": {"layers": "simba"}
                    | {k: list(v) if isinstance(v, tuple) else v for k, v in options.items()}
                }
            }
        )


def test_one_torso_may_be_of_another_kind():
    net = network(World, hidden=(8,), critic=Tower(layers="simba"))
    params = net.init(jax.random.key(0))
    assert ("norm" in params["actor"], "norm" in params["critic"]) == (False, True)


def test_gains_scale_the_orthogonal_weights_of_their_layers():
    net = network(World, hidden=(5, 5), head_hidden=(4,), hidden_gain=0.5, policy_gain=0.25, value_gain=2.0)
    params, plain = (one.init(jax.random.key(3)) for one in (net, network(World, hidden=(5, 5), head_hidden=(4,))))
    gains = {("policy", "kernel"): 0.25 / 0.01, ("value", "kernel"): 2.0}
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        names = tuple(key.key for key in path)
        before = plain
        for name in names:
            before = before[name]
        scale = gains.get(names, 0.5 / math.sqrt(2.0))
        np.testing.assert_allclose(leaf, scale * before, rtol=1e-5, atol=1e-7)
        if names[-1] == "kernel":
            size = {25.0: 0.25, 2.0: 2.0}.get(scale, 0.5)
            np.testing.assert_allclose(np.linalg.norm(leaf, 2), size, rtol=1e-4)
