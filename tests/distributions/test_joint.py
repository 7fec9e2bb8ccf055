"""Joint and ragged actions: against enumeration and their components; masks against the smaller space."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from scipy import special, stats

from ppax.distributions import Categorical, Joint, Normal
from ppax.networks.heads import head_for
from support.worlds import SPACES

RNG = np.random.default_rng(0)


@jax.jit
def answers(d, other, action):
    return d.log_prob(action), d.entropy(), d.kl(other), d.kl(d), d.env_action(action)


@pytest.mark.parametrize("name", ["ragged", "grid", "bits"])
def test_all_actions_enumerated(name):
    """Enumerate all actions: probabilities sum to 1; entropy and kl are sums; env actions lie in the space."""
    space = SPACES[name]
    counts = [2] * 4 if name == "bits" else space.nvec.ravel()
    head = head_for(space)
    assert head.size == sum(counts)
    z, z2 = RNG.normal(0.0, 1.5, (2, head.size)).astype(np.float32)
    actions = np.array(list(itertools.product(*map(range, counts))), np.int32)
    batch = (np.broadcast_to(x, (len(actions), head.size)) for x in (z, z2))
    log_p, entropy, kl, none, sent = answers(*(head(x, None, None) for x in batch), actions)
    cuts = np.cumsum(counts)[:-1]
    each, each2 = ([special.log_softmax(x) for x in np.split(np.float64(v), cuts)] for v in (z, z2))
    exact, exact2 = (np.array([sum(p[i] for p, i in zip(e, a, strict=True)) for a in actions]) for e in (each, each2))
    np.testing.assert_allclose(log_p, exact, atol=1e-5)
    np.testing.assert_allclose(np.exp(exact).sum(), 1.0)
    np.testing.assert_allclose(entropy[0], stats.entropy(np.exp(exact)), rtol=1e-5)
    np.testing.assert_allclose(kl[0], stats.entropy(np.exp(exact), np.exp(exact2)), rtol=1e-5)
    assert none[0] == 0.0
    dtype = np.int8 if name == "bits" else np.int64
    assert len({x.tobytes() for x in np.asarray(sent)}) == len(actions)
    assert all(space.contains(x.astype(dtype)) for x in np.asarray(sent))
    assert head(z, None, None).mode().tolist() == [int(p.argmax()) for p in each]


def test_env_action_of_a_space_with_start():
    d = head_for(SPACES["ragged"])(jnp.zeros(9), None, None)
    assert d.env_action(jnp.array([2, 0, 3])).tolist() == [2, 5, 2]  # starts are 0, 5, -1


def test_masked_ragged_space_equals_the_smaller_space():
    """Compare [3, 2, 4] with masked actions and a MultiDiscrete of the allowed ones."""
    mask = np.array([1, 0, 1, 0, 1, 1, 1, 0, 1], bool)
    z, z2 = RNG.normal(0.0, 1.5, (2, 9)).astype(np.float32)
    big, big2 = (head_for(SPACES["ragged"])(jnp.asarray(x), None, jnp.asarray(mask)) for x in (z, z2))
    small, small2 = (head_for(spaces.MultiDiscrete([2, 1, 3]))(jnp.asarray(x[mask]), None, None) for x in (z, z2))
    where = [[0, 2], [1], [0, 1, 3]]
    for own in itertools.product(range(2), range(1), range(3)):
        action = np.array([w[i] for w, i in zip(where, own, strict=True)], np.int32)
        got, expected = answers(big, big2, action)[:3], answers(small, small2, np.array(own, np.int32))[:3]
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    seen = np.asarray(jax.jit(jax.vmap(big.sample))(jax.random.split(jax.random.key(0), 1_000_000)))
    for component, allowed in enumerate(where):
        counts = np.bincount(seen[:, component], minlength=4)
        assert counts[allowed].sum() == 1_000_000
        p = np.asarray(jnp.exp(small.component.log_probs[component]), np.float64)[: len(allowed)]
        assert (np.abs(counts[allowed] / 1e6 - p) < 5 * np.sqrt(p * (1 - p) / 1e6) + 1e-12).all()
    assert answers(big, big2, np.array([1, 1, 0], np.int32))[0] < -1e30


@pytest.mark.parametrize("allowed", [[0, 3, 5], [2, 4, 8], []])
def test_gradients_are_zero_with_at_most_one_allowed_action(allowed):
    mask = jnp.asarray(np.isin(np.arange(9), allowed))
    z = jnp.asarray(RNG.normal(0.0, 1.5, 9), jnp.float32)
    head = head_for(SPACES["ragged"])

    def f(z):
        d = head(z, None, mask)
        return d.log_prob(d.mode()) + d.entropy() + d.kl(head(2.0 * z, None, mask))

    value, gradient = jax.jit(jax.value_and_grad(f))(z)
    assert value == 0.0
    np.testing.assert_array_equal(gradient, 0.0)


def test_joint_sums_components_and_samples_independently():
    space, n = SPACES["nested"], 100_000
    head = head_for(space)
    assert (head.size, head.log_std_size) == (2 * 2 + 5 + 2 + 1, 1)
    z, z2 = (np.broadcast_to(x, (n, head.size)) for x in RNG.normal(0.0, 1.0, (2, head.size)).astype(np.float32))
    free = np.full((n, 1), 0.2, np.float32)
    d, other = (head(x, free, None) for x in (z, z2))
    actions = jax.jit(d.sample)(jax.random.key(0))
    log_p, entropy, kl, none, sent = answers(d, other, actions)
    c = d.components
    assert list(c) == ["bits", "many", "pair"]
    assert isinstance(c["pair"], Joint)
    pair = c["pair"].components
    assert isinstance(pair[0], Categorical)
    assert isinstance(pair[1], Normal)
    leaves = [(c["bits"], actions["bits"]), (c["many"], actions["many"])]
    leaves += [(pair[0], actions["pair"][0]), (pair[1], actions["pair"][1])]
    others = [other.components["bits"], other.components["many"], *other.components["pair"].components]
    np.testing.assert_allclose(log_p, sum(x.log_prob(a) for x, a in leaves), rtol=1e-5)
    np.testing.assert_allclose(entropy, sum(x.entropy() for x, _ in leaves), rtol=1e-5)
    np.testing.assert_allclose(kl, sum(x.kl(o) for (x, _), o in zip(leaves, others, strict=True)), rtol=1e-5)
    np.testing.assert_array_equal(none, 0.0)
    # all outputs of the head are used: the first of z belong to "bits", as names are sorted
    np.testing.assert_array_equal(pair[1].mean, z[:, -1:])
    np.testing.assert_array_equal(pair[1].log_std, free)
    for i in range(0, n, 20_000):
        assert space.contains(jax.tree.map(lambda x, i=i: np.asarray(x[i]), sent))
    # no two components are correlated: 5 standard errors
    columns = np.stack([*np.asarray(actions["bits"]).T, *np.asarray(actions["many"]).T, actions["pair"][0]], axis=1)
    columns = np.concatenate([columns, np.asarray(actions["pair"][1])], axis=1)
    correlation = np.corrcoef(columns.T) - np.eye(columns.shape[1])
    assert np.abs(correlation).max() < 5 / np.sqrt(n)


def test_equal_components_are_sampled_with_different_keys():
    d = Joint(tuple(Normal(jnp.zeros((1000, 1)), jnp.zeros((1000, 1))) for _ in range(2)))
    one, other = (np.asarray(x)[:, 0] for x in d.sample(jax.random.key(0)))
    assert abs(np.corrcoef(one, other)[0, 1]) < 5 / np.sqrt(1000)


def test_components_have_their_own_masks_and_one_may_be_missing():
    head = head_for(SPACES["nested"])
    z, free = jnp.asarray(RNG.normal(0.0, 1.0, head.size), jnp.float32), jnp.zeros(1)
    bits, many = jnp.array([True, False, True, True]), jnp.array([False, True, True, False, True])
    d = head(z, free, {"bits": bits, "many": many, "pair": (jnp.array([False, True]), None)})
    seen = jax.jit(jax.vmap(d.sample))(jax.random.split(jax.random.key(1), 10_000))
    assert np.unique(seen["bits"][:, 0]).tolist() == [0]
    assert np.unique(seen["bits"][:, 1]).tolist() == [0, 1]
    assert np.unique(seen["many"][:, 0]).tolist() == [1]
    assert np.unique(seen["many"][:, 1]).tolist() == [0, 2]
    assert np.unique(seen["pair"][0]).tolist() == [1]
    half = head(z, free, {"many": many})
    np.testing.assert_array_equal(
        half.components["bits"].component.logits, head(z, free, None).components["bits"].component.logits
    )
    np.testing.assert_array_equal(half.components["many"].component.logits, d.components["many"].component.logits)
