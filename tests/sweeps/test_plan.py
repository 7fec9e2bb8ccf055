"""The table [sweep]: members in order, draws, and what is refused."""

import math
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import config
from ppax.sweeps import Choice, Integers, LogUniform, Normal, Uniform, plan

BASE = {"env": "CartPole-v1", "num_envs": 4, "num_steps": 16}


def members(table, base=BASE):
    return plan.members_of(config.resolve(base), plan.read(table))


def test_a_grid_has_every_combination_and_the_seeds_of_a_setting_side_by_side():
    table = {"agent.learning_rate": [1e-4, 3e-4], "agent.gamma": [0.9, 0.95, 0.99], "seeds": [7, 3]}
    made = members(table)
    pairs = [(rate, gamma) for rate in (1e-4, 3e-4) for gamma in (0.9, 0.95, 0.99)]
    expected = [(*pair, seed) for pair in pairs for seed in (7, 3)]
    agents = [one.config["agent"] for one in made]
    found = [(a["learning_rate"], a["gamma"], one.config["seed"]) for a, one in zip(agents, made, strict=True)]
    assert found == expected
    assert [one.number for one in made] == list(range(12))
    assert [one.setting for one in made] == [i // 2 for i in range(12)]


def test_a_number_of_seeds_begins_with_that_of_the_run():
    assert [one.seed for one in members({"seeds": 3}, BASE | {"seed": 5})] == [5, 6, 7]


def test_tables_of_toml_may_be_nested_or_have_dotted_keys():
    dotted = plan.read({"agent.loss.clip_eps": [0.1, 0.2], "env_params.gravity": [9.0]})
    assert plan.read({"agent": {"loss": {"clip_eps": [0.1, 0.2]}}, "env_params": {"gravity": [9.0]}}) == dotted
    drawn = {"part": "uniform", "low": 0.0, "high": 1.0}
    assert plan.read({"agent": {"gamma": drawn}, "draws": 1}).values == {"agent.gamma": Uniform(0.0, 1.0)}


def test_a_plan_survives_its_table():
    table = {"agent.gamma": Normal(0.9, 0.01), "agent.loss.part": ["clipped", "spo"], "seeds": [1, 2], "draws": 3}
    first = plan.read(
        table | {"draw_seed": 9, "num_envs": Choice((4, 8)), "agent.extensions.kl_control.target_kl": [None, 0.1]}
    )
    text = config.to_toml({"sweep": first.to_table()})
    again = plan.read(plan.split_sweep(config.parse(text, Path("x.toml")))[1])
    assert again == first
    assert first.values["agent.extensions.kl_control.target_kl"] == ("none", 0.1)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (list(np.float64([1e-4, 1e-3])), (1e-4, 1e-3)),
        (np.array([1e-4, 1e-3]), (1e-4, 1e-3)),
        ([jnp.float32(0.5), np.float32(0.25)], (0.5, 0.25)),
        (range(4, 9, 4), (4, 8)),
        ([None, 0.5], ("none", 0.5)),
        ([[np.int64(8), 8], (16,)], ([8, 8], (16,))),
        (Choice((None, np.float64(0.5))), Choice(("none", 0.5))),
        (Uniform(np.float32(0.25), np.int64(1)), Uniform(0.25, 1)),
    ],
)
def test_values_become_those_of_a_run_file(given, expected):
    """Numbers of NumPy and JAX become Python's, None the text none: a resumed sweep reads the same plan."""
    draws = {} if isinstance(expected, tuple) else {"draws": np.int64(2)}
    found = plan.read({"agent.max_grad_norm": given} | draws).values["agent.max_grad_norm"]
    assert found == expected
    assert repr(found) == repr(expected)


def test_none_is_swept_as_in_a_run_file():
    drawn = Choice((None, 0.5))
    found = [one.config["agent"]["max_grad_norm"] for one in members({"agent.max_grad_norm": drawn, "draws": 8})]
    assert set(found) == {None, 0.5}


def test_a_part_is_swept_with_its_own_defaults():
    base = BASE | {"agent": {"loss": {"part": "clipped", "clip_eps": 0.3}}}
    losses = [one.config["agent"]["loss"] for one in members({"agent.loss.part": ["clipped", "spo"]}, base)]
    assert losses[0]["clip_eps"] == 0.3
    assert losses[1] == config.resolve(BASE | {"agent": {"loss": {"part": "spo"}}})["agent"]["loss"]


def draws_of(distribution, count):
    table = {"agent.ent_coef": distribution, "draws": count}
    return np.array([one.values["agent.ent_coef"] for one in members(table)])


def test_draws_follow_their_distributions():
    """Means and spreads of 400 draws, within five standard errors of the textbook values."""
    n = 400
    uniform = draws_of(Uniform(0.2, 0.8), n)
    assert abs(uniform.mean() - 0.5) < 5 * 0.6 / math.sqrt(12 * n)
    assert 0.2 <= uniform.min() < 0.21
    assert 0.79 < uniform.max() <= 0.8
    logs = np.log10(draws_of(LogUniform(1e-4, 1e-1), n))
    assert abs(logs.mean() + 2.5) < 5 * 3.0 / math.sqrt(12 * n)
    assert logs.min() >= -4.0
    assert logs.max() <= -1.0
    whole = draws_of(Integers(0, 3), n)
    np.testing.assert_array_less(np.abs(np.bincount(whole.astype(int), minlength=4) - n / 4), 5 * math.sqrt(n * 3 / 16))
    choice = draws_of(Choice((0.0, 1.0)), n)
    assert abs(choice.mean() - 0.5) < 5 * 0.5 / math.sqrt(n)
    normal = draws_of(Normal(5.0, 0.5), n)
    assert abs(normal.mean() - 5.0) < 5 * 0.5 / math.sqrt(n)
    assert abs(normal.std() - 0.5) < 0.1


def test_a_draw_depends_neither_on_other_options_nor_on_the_number_of_draws():
    one = {"agent.gamma": Uniform(0.5, 0.9)}
    few = members(one | {"draws": 2})
    many = members(one | {"agent.ent_coef": Uniform(0.5, 0.9), "num_envs": [4, 8], "draws": 5})
    gammas = [member.values["agent.gamma"] for member in many]
    assert gammas[:2] == [member.values["agent.gamma"] for member in few]
    assert gammas[5:] == gammas[:5]  # the same draws for every combination of the lists
    assert len(set(gammas)) == 5
    assert all(member.values["agent.ent_coef"] != member.values["agent.gamma"] for member in many)
    assert [m.values["agent.gamma"] for m in members(one | {"draws": 2, "draw_seed": 1})] != gammas[:2]


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"agent.learning_rat": [1.0]}, r"sweep, member 0 \(agent.learning_rat = 1\): unknown option .*learning_rate"),
        ({"agent.gamma": [0.9, 1.5]}, r"member 1 \(agent.gamma = 1.5\): agent.gamma = 1.5: must be at most 1"),
        ({"agent.gamma": 0.9}, r"sweep: agent.gamma = 0.9: must be a list of values, or a distribution"),
        ({"agent.gamma": []}, r"sweep: agent.gamma = \[\]: must be a list"),
        ({"agent.gamma": [0.9, 0.5, 0.9]}, r"agent.gamma = \[0.9, 0.5, 0.9\]: values must differ; sweep.seeds repeats"),
        ({"seed": [1, 2]}, r"sweep.seed: write sweep.seeds"),
        ({"seeds": 0}, r"sweep.seeds = 0: must be at least 1; nearest valid value: 1"),
        ({"seeds": [1.0]}, r"sweep.seeds = 1.0: must be of type int"),
        ({"seeds": [1, 1]}, r"sweep.seeds = \[1, 1\]: must be a number, or a list of different seeds"),
        ({"seeds": [[1, 2]]}, r"sweep.seeds = \[1, 2\]: must be of type int"),
        ({"seeds": [{}]}, r"sweep.seeds = \{\}: must be of type int"),
        (
            {"agent.learning_rate": {"part": "uniform", "low": 1, "high": 10**400}, "draws": 2},
            r"agent.learning_rate.high = 10+: must be a number of at most 3.4e\+38 in size",
        ),
        (
            {"agent.learning_rate": {"part": "integers", "low": -(10**300), "high": 10**300}, "draws": 2},
            r"agent.learning_rate.low = -10+: must be a whole number of at most 3.4e\+38",
        ),
        ({"seeds": [-1]}, r"sweep.seeds = -1: must be at least 0"),
        ({"agent.gamma": [0.9], "draw_seed": 5}, r"sweep.draw_seed = 5: nothing is drawn"),
        ({"draws": 3}, r"sweep.draws = 3: no option has a distribution"),
        ({"agent.gamma": Uniform(0.1, 0.2)}, r"sweep.draws is missing: the number of draws of agent.gamma"),
        ({"agent.gamma": {"part": "unifrm"}}, r"agent.gamma.part = 'unifrm': .* did you mean 'uniform'"),
        ({"agent.gamma": {"part": "uniform", "low": 1.0}}, r"uniform has low and high, and nothing else"),
        ({"agent.gamma": Uniform(2.0, 1.0)}, r"gamma.low = 2.0: must be at most agent.gamma.high = 1.0"),
        ({"agent.gamma": LogUniform(0.0, 1.0)}, r"gamma.low = 0.0: must be above 0"),
        ({"num_envs": Integers(1, 2.5)}, r"num_envs.high = 2.5: must be a whole number"),
        ({"agent.gamma": Normal(0.0, -1.0)}, r"std = -1.0: must be at least 0"),
        ({"num_envs": Choice(())}, r"num_envs.values = \(\): must be a list of at least one value"),
        (
            {"agent.gamma": [n / 200 for n in range(200)], "seeds": 100},
            r"200 settings of 100 seeds are 20,000 members: .* most 10,000",
        ),
    ],
)
def test_what_is_wrong_is_refused_by_name(table, text):
    with pytest.raises(ppax.ConfigError, match=text):
        members(table)


def test_train_refuses_the_table():
    with pytest.raises(ppax.ConfigError, match="ppax sweep"):
        config.resolve(BASE | {"sweep": {"seeds": 2}})


def test_a_value_takes_the_place_of_a_range():
    base = BASE | {"env_params": {"length": {"low": 0.4, "high": 0.6}}}
    made = members({"env_params.length": [0.5, {"low": 0.1, "high": 0.2}]}, base)
    assert [one.config["env_params"] for one in made] == [{"length": 0.5}, {"length": {"low": 0.1, "high": 0.2}}]


@pytest.mark.parametrize(
    ("given", "seeds"),
    [
        ("1000-1003", (1000, 1001, 1002, 1003)),
        ("7 - 7", (7,)),
        (["0-2", 9], (0, 1, 2, 9)),
        ("0-0", (0,)),
        (range(3), (0, 1, 2)),
        (np.arange(3), (0, 1, 2)),
        ([np.int64(4)], (4,)),
        (np.int64(4), 4),
    ],
)
def test_seeds_may_be_a_range_with_both_ends_or_of_python_and_numpy(given, seeds):
    assert plan.read({"seeds": given}).seeds == seeds


@pytest.mark.parametrize(
    ("given", "nearest"), [("10..19", "10-19"), ("1009-1000", "1000-1009"), ("ten", "0-9"), ("0-99999999", "0-9999")]
)
def test_other_texts_are_no_seeds(given, nearest):
    with pytest.raises(ppax.ConfigError, match=rf"sweep.seeds = '{given}': must be .*nearest: {nearest}$"):
        plan.read({"seeds": given})
    with pytest.raises(ppax.ConfigError, match="a list of different seeds"):
        plan.read({"seeds": ["0-3", 2]})


def test_a_search_does_not_compare_environments():
    with pytest.raises(ppax.ConfigError, match="a search compares returns, which different environments do not allow"):
        plan.read({"env": ["CartPole-v1", "Acrobot-v1"], "search": {"part": "halving"}})
