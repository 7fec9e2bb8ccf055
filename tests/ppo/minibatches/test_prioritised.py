"""Prioritised minibatches: probabilities, weights and draws by hand, by enumeration and by Monte Carlo."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppax import ConfigError
from ppax.core.types import Batch, Targets, Transition
from ppax.ppo.minibatches import Prioritised, Shuffle
from ppax.ppo.schedules import annealed

MASS = np.array([1.0, 2.0, 3.0, 4.0])  # sums of |A|: P = .1, .2, .3, .4 with alpha 1
DRAWS = 20_000


def batch(advantage, valid=None):
    advantage = jnp.asarray(advantage, jnp.float32)
    valid = jnp.ones(advantage.shape, bool) if valid is None else jnp.asarray(valid)
    return Batch(Transition(None, None, None, None, None, None, None, None, valid, ()), Targets(advantage, advantage))


SIMPLE = batch(np.stack([MASS, -MASS], axis=1) / 2.0)  # priorities ignore signs


def draw(part, data=SIMPLE, draws=DRAWS):
    """Return indices and weights [draws, num_minibatches, size] as NumPy arrays."""
    keys = jax.random.split(jax.random.key(0), draws)
    drawn = jax.jit(jax.vmap(part, (None, 0)))(data, keys)
    return np.asarray(drawn.index), np.asarray(drawn.weight)


def chances(part, data):
    return np.asarray(part.probabilities(data.targets.advantage, data.steps.valid))


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 3.0])
def test_probabilities_are_powers_of_sums_of_absolute_advantages(alpha):
    np.testing.assert_allclose(chances(Prioritised(alpha), SIMPLE), MASS**alpha / (MASS**alpha).sum(), rtol=1e-5)


def test_invalid_rows_do_not_change_probabilities():
    data = batch([[1, np.nan], [2, 7], [3, np.inf]], [[True, False], [True, False], [True, False]])
    np.testing.assert_allclose(chances(Prioritised(1.0), data), [1 / 6, 2 / 6, 3 / 6], rtol=1e-6)


def test_sequences_with_non_finite_advantages_are_never_drawn():
    data = batch([[1, 1], [np.nan, 0], [3, 3], [np.inf, 0]])
    np.testing.assert_allclose(chances(Prioritised(1.0), data), [0.25, 0, 0.75, 0])
    np.testing.assert_allclose(chances(Prioritised(0.0), data), [0.5, 0, 0.5, 0])


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_probabilities_do_not_depend_on_the_scale_of_advantages(scale):
    np.testing.assert_allclose(
        chances(Prioritised(3.0), batch(MASS[:, None] * scale)), MASS**3 / (MASS**3).sum(), rtol=1e-5
    )


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("advantage", [np.zeros((4, 2)), np.full((4, 2), np.nan)])
def test_draws_are_uniform_with_weight_1_if_all_priorities_are_zero(replacement, advantage):
    index, weight = draw(
        Prioritised(1.0, 0.7, num_minibatches=1, minibatch_size=2, replacement=replacement), batch(advantage)
    )
    # each of 4 in half of the draws; std of a count below sqrt(20000 * 2 / 4)
    counts = np.bincount(index.ravel(), minlength=4)
    assert (np.abs(counts - DRAWS / 2) < 5 * 100).all()
    np.testing.assert_allclose(weight, 1.0, rtol=1e-6)


def test_frequencies_with_replacement():
    index, _ = draw(Prioritised(1.0, replacement=True, num_minibatches=3, minibatch_size=2))
    assert index.shape == (DRAWS, 3, 2)
    for place in itertools.product(range(3), range(2)):  # every position of every minibatch
        share = np.bincount(index[:, *place], minlength=4) / DRAWS
        assert (np.abs(share - MASS / 10) < 5 * np.sqrt(0.25 / DRAWS)).all()
    # positions are independent: two hold the same sequence with probability sum of P^2 = .3, also in two minibatches
    for a, b in (((0, 0), (0, 1)), ((0, 0), (1, 0)), ((1, 1), (2, 0))):
        assert abs((index[:, *a] == index[:, *b]).mean() - 0.3) < 5 * np.sqrt(0.21 / DRAWS)


def test_frequencies_without_replacement_equal_sequential_draws():
    index, _ = draw(Prioritised(1.0, num_minibatches=2, minibatch_size=2))
    p = MASS / 10
    for minibatch in range(2):
        for i, j in itertools.permutations(range(4), 2):
            share = ((index[:, minibatch, 0] == i) & (index[:, minibatch, 1] == j)).mean()
            assert abs(share - p[i] * p[j] / (1 - p[i])) < 5 * np.sqrt(0.25 / DRAWS)
    assert (index[..., 0] != index[..., 1]).all()
    # minibatches are independent: their first sequences agree with probability sum of P^2 = .3
    assert abs((index[:, 0, 0] == index[:, 1, 0]).mean() - 0.3) < 5 * np.sqrt(0.21 / DRAWS)


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_weights_by_hand(replacement, beta):
    index, weight = draw(Prioritised(1.0, beta, num_minibatches=3, minibatch_size=2, replacement=replacement), draws=50)
    np.testing.assert_allclose(weight, (4 * MASS / 10)[index] ** -beta, rtol=1e-5)


@pytest.mark.parametrize("replacement", [True, False])
def test_weights_make_the_mean_unbiased(replacement):
    """Compare weighted means with the plain mean: `simple` weights with replacement, `inclusion` weights without."""
    weights = "simple" if replacement else "inclusion"
    part = Prioritised(1.0, 1.0, num_minibatches=1, minibatch_size=3, replacement=replacement, weights=weights)
    index, weight = draw(part)
    f = np.array([5.0, -1.0, 2.0, 0.5])
    for values in (f, np.ones(4)):
        estimates = (weight * values[index]).mean(axis=(1, 2))
        assert abs(estimates.mean() - values.mean()) < 5 * estimates.std() / np.sqrt(DRAWS)
    plain = f[index].mean(axis=(1, 2))  # without weights the mean is far off
    assert abs(plain.mean() - f.mean()) > 20 * plain.std() / np.sqrt(DRAWS)


def test_weights_may_apply_to_advantages_only():
    drawn = Prioritised(1.0, 0.4, num_minibatches=3, minibatch_size=2, weighted="advantage")(SIMPLE, jax.random.key(0))
    assert drawn.weight is None
    np.testing.assert_allclose(drawn.advantage_weight, (4 * MASS / 10)[np.asarray(drawn.index)] ** -0.4, rtol=1e-5)


def test_inclusion_weights_are_1_if_every_sequence_is_drawn():
    index, weight = draw(Prioritised(1.0, 1.0, minibatch_size=4, weights="inclusion"), draws=20)
    np.testing.assert_array_equal(np.sort(index, axis=-1), np.broadcast_to(np.arange(4), index.shape))
    np.testing.assert_allclose(weight, 1.0)


def test_sequences_with_zero_advantage_come_last_with_weight_0():
    index, weight = draw(Prioritised(1.0, 1.0, num_minibatches=1, minibatch_size=3), batch([[0], [5], [0], [5], [0]]))
    np.testing.assert_array_equal(np.sort(index[..., :2], axis=-1), np.broadcast_to([1, 3], (DRAWS, 1, 2)))
    np.testing.assert_allclose(weight[..., :2], (5 * 0.5) ** -1.0, rtol=1e-6)
    np.testing.assert_array_equal(weight[..., 2], 0.0)
    counts = np.bincount(index[..., 2].ravel(), minlength=5)  # each is equally likely
    assert (np.abs(counts[[0, 2, 4]] - DRAWS / 3) < 5 * np.sqrt(DRAWS * 2 / 9)).all()


def test_beta_is_annealed_linearly():
    betas = [float(annealed(Prioritised(0.8, 0.2), jnp.float32(x)).beta) for x in (0.0, 0.25, 0.5, 1.0, 2.0)]
    np.testing.assert_allclose(betas, [0.2, 0.4, 0.6, 1.0, 1.0], rtol=1e-6)
    part = Prioritised(0.8, 0.2, beta_end=0.2)
    assert float(annealed(part, jnp.float32(0.7)).beta) == pytest.approx(0.2)
    assert jax.tree.structure(annealed(part, jnp.float32(0.7))) == jax.tree.structure(part)


def test_sizes():
    assert Prioritised(num_minibatches=4).size(24) == 6 == Shuffle(4).size(24)
    assert Prioritised(num_minibatches=4, minibatch_size=5).size(7) == 5
    assert Prioritised(minibatch_size=9, replacement=True).size(7) == 9
    assert draw(Prioritised(num_minibatches=2), draws=3)[0].shape == (3, 2, 2)
    with pytest.raises(
        ConfigError, match=r"num_minibatches = 4 .* 91 sequences .* do: 1, 7, 13; or set minibatch_size"
    ):
        Prioritised(num_minibatches=4).size(91)
    with pytest.raises(ConfigError, match=r'"inclusion" is for draws without replacement.* weights = "simple"'):
        Prioritised(replacement=True, weights="inclusion").size(8)
    with pytest.raises(ConfigError, match=r"minibatch_size = 9: a rollout has 7 .* value: 7, or set replacement"):
        Prioritised(minibatch_size=9).size(7)


def test_alpha_and_beta_sweep():
    def weight(alpha, beta):
        return Prioritised(alpha, beta, num_minibatches=1, minibatch_size=4)(SIMPLE, jax.random.key(1))[:2]

    index, weight = jax.vmap(weight)(jnp.array([0.0, 1.0]), jnp.array([1.0, 0.5]))
    np.testing.assert_allclose(weight[0], 1.0, rtol=1e-6)
    np.testing.assert_allclose(weight[1, 0], (0.4 * MASS[np.asarray(index)[1, 0]]) ** -0.5, rtol=1e-5)
