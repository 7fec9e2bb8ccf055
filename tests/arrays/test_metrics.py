"""Reductions of metrics: as declared, independent of the names of metrics, groups and agents."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppax.agents.metrics import of_groups, of_players
from ppax.arrays.metrics import add_up, averaged, merge, merged, nothing, pack, reduced, unpack
from ppax.arrays.sequences import masked_mean
from ppax.core.types import ConfigError, Episodes, LossOutput
from ppax.ppo.gradients import mean_gradient
from ppax.training.loop import episode_metrics

NAMES = ("gold_miners", "red_maximus", "the_max", "x_min")
SIZES = tuple((name, 1) for name in NAMES)


def episodes(count, returns, lengths):
    count, returns = jnp.array(count, jnp.int32), jnp.array(returns, jnp.float32)
    mean = returns / jnp.maximum(count, 1)
    return Episodes(count, returns, jnp.array(lengths, jnp.int32), 0.0 * mean, mean, mean)


def of_run(iterations, num_agents, sizes):
    """Return the metrics of a run from the episodes that finished in each iteration."""
    packed = [pack(episode_metrics(one, num_agents, sizes)) for one in iterations]
    totals = nothing(packed[0])
    for one in packed:
        totals = add_up(totals, one, jnp.bool_(True))
    return averaged(totals, len(packed))


def test_a_metric_over_episodes_needs_their_number():
    """Without it the sum would be divided by another metric."""
    wrong = pack(
        merged(reduced("mean", {"loss": jnp.float32(2.0)}), reduced("per_episode", {"stats/coins": jnp.ones(())}))
    )
    with pytest.raises(ConfigError, match=r"'stats/coins' is over episodes: .* a metric 'episodes/coins'"):
        averaged(add_up(nothing(wrong), wrong, jnp.bool_(True)), 1)


def test_group_episode_metrics_are_means_for_any_group_name():
    """Two environments of four agents, three iterations; sums by hand."""
    iterations = [
        episodes([1, 0, 2, 1, 1, 0, 0, 0], [6.0, 0, -4, 1, 2, 0, 0, 0], [3, 0, 8, 1, 5, 0, 0, 0]),
        episodes([0, 0, 1, 1, 0, 0, 1, 0], [0.0, 0, 7, 1, 0, 0, 9, 0], [0, 0, 4, 1, 0, 0, 4, 0]),
        episodes([1, 0, 0, 0, 1, 0, 0, 0], [-2.0, 0, 0, 0, 30, 0, 0, 0], [1, 0, 0, 0, 3, 0, 0, 0]),
    ]
    metrics = of_run(iterations, 4, SIZES)
    returns = {"gold_miners": 36 / 4, "red_maximus": np.nan, "the_max": 12 / 4, "x_min": 2 / 2}
    lengths = {"gold_miners": 12 / 4, "red_maximus": np.nan, "the_max": 16 / 4, "x_min": 2 / 2}
    counts = {"gold_miners": 4, "red_maximus": 0, "the_max": 4, "x_min": 2}
    for name in NAMES:
        np.testing.assert_allclose(metrics[f"episode_return/{name}"], returns[name], err_msg=name)
        np.testing.assert_allclose(metrics[f"episode_length/{name}"], lengths[name], err_msg=name)
        assert metrics[f"episodes/{name}"] == counts[name]
    assert metrics["episode_return"] == pytest.approx(50 / 10)
    assert metrics["episodes"] == 10


def test_group_metrics_are_reduced_as_declared():
    each = {
        name: {"loss": jnp.float32(place)} | reduced("max", {"ratio_max": jnp.float32(place)})
        for place, name in enumerate(NAMES)
    }
    table = of_groups(each)
    assert {name: float(table[name]) for name in ("loss", "ratio_max")} == {"loss": 1.5, "ratio_max": 3.0}
    twice = merge(pack(table), pack(table))
    for place, name in enumerate(NAMES):
        assert float(twice[f"loss/{name}"]) == 2.0 * place  # sums, divided by the number of iterations later
        assert float(twice[f"ratio_max/{name}"]) == place
    assert of_groups({"a": {"x": jnp.ones(())}, "b": reduced("max", {"x": jnp.ones(())})}).keys() == {"x/a", "x/b"}


def test_player_metrics_keep_their_reductions():
    table = of_players(reduced("min", {"worst": jnp.array([3.0, 1.0])}) | {"x_max": jnp.array([3.0, 1.0])}, 2)
    summary = merge(pack(table), pack(table))
    assert {name: float(x) for name, x in summary.items()} == {
        "worst": 1.0,
        "x_max": 4.0,
        "worst/agent_0": 3.0,
        "worst/agent_1": 1.0,
        "x_max/agent_0": 6.0,
        "x_max/agent_1": 2.0,
    }


@pytest.mark.parametrize("rows", [4, 2, 1])  # with four chunks, one has no valid row
def test_loss_metrics_are_reduced_over_chunks_as_declared(rows):
    """A mean named x_max stays a mean; a maximum needs no suffix."""
    data, valid = jnp.array([1.0, 2.0, 100.0, 4.0]), jnp.array([True, True, False, True])

    def loss(w, x, ok):
        ok = ok[:, 0]
        largest = reduced("max", {"tallest": jnp.max(x, where=ok, initial=-jnp.inf)})
        least = reduced("min", {"smallest": jnp.min(x, where=ok, initial=jnp.inf)})
        return LossOutput(masked_mean(w * x, ok), {"x_max": masked_mean(x, ok)} | largest | least)

    metrics = mean_gradient(loss, jnp.float32(3.0), data, valid[:, None], rows).metrics
    np.testing.assert_allclose([metrics[k] for k in ("x_max", "tallest", "smallest")], [7 / 3, 4, 1], rtol=1e-6)


def test_reductions_over_iterations_by_hand():
    def one(x):
        kinds = ("mean", "max", "min", "last", "sum")
        table = reduced("per_episode", {"wins/x_min": jnp.float32(x)})
        for kind in kinds:
            table |= reduced(kind, {f"as_{kind}": jnp.float32(x)})
        return pack(table | reduced("sum", {"episodes/x_min": jnp.float32(2.0)}))

    totals = nothing(one(0.0))
    for x in (5.0, -1.0, 2.0):
        totals = add_up(totals, one(x), jnp.bool_(True))
    metrics = averaged(totals, 3)
    expected = {"as_mean": 2.0, "as_max": 5.0, "as_min": -1.0, "as_last": 2.0, "as_sum": 6.0, "wins/x_min": 1.0}
    assert {name: float(metrics[name]) for name in expected} == expected


def test_merged_tables_keep_their_reductions():
    table = reduced("max", {"a": jnp.ones(2), "b": jnp.ones(2)})
    assert dict((table | {"a": jnp.zeros(2)}).reductions) == {"b": "max"}  # a replaced metric has its new reduction
    assert dict(({"a": jnp.zeros(2)} | table).reductions) == {"a": "max", "b": "max"}
    mapped = jax.vmap(lambda x: reduced("min", {"c": x}))(jnp.arange(3.0))
    assert mapped.reductions == (("c", "min"),)
    assert unpack(pack(table)).reductions == table.reductions
    with pytest.raises(ConfigError, match="reduction = 'median': must be one of mean, max"):
        reduced("median", {})
