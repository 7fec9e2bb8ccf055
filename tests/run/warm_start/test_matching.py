"""Two learners compared array by array: what is taken, what is left, and what belongs together."""

import numpy as np
import pytest

from ppax.core.types import ExtensionState, LearnerState
from ppax.ppo.normalization import NoStats, init_stats
from ppax.run import warm_start
from ppax.run.warm_start import BESIDE, ONLY_HERE, ONLY_THERE, OTHER, SAME, compare_learners, table_of


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def learner(**fields):
    empty = {"params": {}, "opt_state": (), "obs_stats": None, "reward_stats": None}
    return LearnerState(**empty | fields)


WEIGHTS = {"policy": {"kernel": zeros(4, 2), "bias": zeros(2)}}
THERE = {"params.policy.kernel": zeros(4, 2), "params.policy.bias": zeros(2)}


def verdicts(here, there, keep=("params",), group=""):
    return {row.path: row.verdict for row in compare_learners({group: here}, there, keep)}


def test_weights_are_compared_one_by_one():
    own = learner(params=WEIGHTS | {"value": {"bias": zeros(1)}})
    there = THERE | {"params.policy.kernel": zeros(5, 2), "params.torso.bias": zeros(3)}
    assert verdicts(own, there) == {
        "params.policy.kernel": OTHER,
        "params.policy.bias": SAME,
        "params.value.bias": ONLY_HERE,
        "params.torso.bias": ONLY_THERE,
    }
    assert verdicts(own, there | {"params.policy.bias": zeros(2, dtype=np.int32)})["params.policy.bias"] == OTHER


def test_fields_that_are_not_kept_have_no_rows():
    own = learner(params=WEIGHTS, opt_state={"count": zeros()}, reward_stats=init_stats(()))
    there = THERE | {"reward_stats.count": zeros(9), "critic.mean": zeros()}
    assert set(verdicts(own, there)) == set(THERE)
    assert set(verdicts(own, there, ("critic",))) == {"critic.mean"}


def of_stats(name, size):
    shapes = {"mean.high": (size,), "mean.low": (size,), "var.high": (size,), "var.low": (size,)}
    arrays = {f"{name}.{part}": zeros(*shape) for part, shape in shapes.items()}
    return arrays | {f"{name}.count": zeros(2, dtype=np.uint32)}


def test_statistics_of_an_observation_are_taken_as_a_whole():
    own = learner(obs_stats={"a": init_stats((3,)), "b": init_stats((4,)), "c": NoStats()})
    found = verdicts(own, of_stats("obs_stats.a", 3) | of_stats("obs_stats.b", 5), ("obs_stats",))
    assert {found[name] for name in of_stats("obs_stats.a", 3)} == {SAME}
    assert found["obs_stats.b.mean.high"] == OTHER
    assert found["obs_stats.b.count"] == BESIDE  # the samples of another mean
    lacking = of_stats("obs_stats.a", 3)
    del lacking["obs_stats.a.var.low"]
    found = verdicts(own, lacking, ("obs_stats",))
    assert found["obs_stats.a.var.low"] == ONLY_HERE
    assert found["obs_stats.a.mean.high"] == BESIDE


def test_the_state_of_a_critic_with_another_field_is_left():
    own = learner(critic={"mean": zeros(), "var": zeros()})
    there = {"critic.mean": zeros(), "critic.var": zeros()}
    assert set(verdicts(own, there, ("critic",)).values()) == {SAME}
    found = verdicts(own, there | {"critic.weight": zeros()}, ("critic",))
    assert found == {"critic.mean": BESIDE, "critic.var": BESIDE, "critic.weight": ONLY_THERE}


def test_an_optimisers_state_is_taken_with_all_of_its_weights_only():
    own = learner(params=WEIGHTS, opt_state=({"mu": zeros(10)}, ()))
    keep = ("params", "opt_state")
    assert verdicts(own, THERE | {"opt_state.0.mu": zeros(10)}, keep)["opt_state.0.mu"] == SAME
    # as many weights in other shapes: the moments, one vector, would go to others
    swapped = {"params.policy.kernel": zeros(2, 4), "params.policy.bias": zeros(2), "opt_state.0.mu": zeros(10)}
    assert verdicts(own, swapped, keep)["opt_state.0.mu"] == BESIDE
    assert verdicts(own, THERE | {"opt_state.0.mu": zeros(10)}, ("opt_state",))["opt_state.0.mu"] == BESIDE


OWN = {"rnd": ExtensionState({"mean": zeros(3), "count": zeros()}), "model": ExtensionState((), {"bias": zeros(2)})}
THEIRS = THERE | {"extensions.rnd.state.mean": zeros(3), "extensions.rnd.state.count": zeros()}
THEIRS |= {"extensions.model.params.bias": zeros(2), "opt_state.mu": zeros(12)}
KEEP = ("params", "opt_state", "extensions")


def with_extensions(**changes):
    return learner(params=WEIGHTS, opt_state={"mu": zeros(12)}, extensions=OWN | changes)


def test_extensions_are_taken_or_left_each_as_a_whole():
    assert set(verdicts(with_extensions(), THEIRS, KEEP).values()) == {SAME}
    found = verdicts(with_extensions(), THEIRS | {"extensions.rnd.state.mean": zeros(4)}, KEEP)
    assert {path: verdict for path, verdict in found.items() if verdict != SAME} == {
        "extensions.rnd.state.mean": OTHER,
        "extensions.rnd.state.count": BESIDE,
    }  # the optimiser trains no weights of it
    found = verdicts(with_extensions(), THEIRS | {"extensions.rnd.state.more": zeros()}, KEEP)
    assert found["extensions.rnd.state.more"] == ONLY_THERE
    assert found["extensions.rnd.state.mean"] == found["extensions.rnd.state.count"] == BESIDE


def test_an_extension_that_one_run_lacks_is_left():
    without = {path: x for path, x in THEIRS.items() if ".rnd." not in path}
    found = verdicts(with_extensions(), without | {"extensions.rnd_2.state": zeros()}, KEEP)
    assert {path: verdict for path, verdict in found.items() if verdict != SAME} == {
        "extensions.rnd.state.mean": ONLY_HERE,
        "extensions.rnd.state.count": ONLY_HERE,
        "extensions.rnd_2.state": ONLY_THERE,
    }


@pytest.mark.parametrize("there", [{"bias": zeros(3)}, {"bias": zeros(2), "kernel": zeros(1)}, {}])
def test_moments_are_left_where_the_weights_of_an_extension_differ(there):
    others = {path: x for path, x in THEIRS.items() if ".model." not in path}
    found = verdicts(
        with_extensions(), others | {f"extensions.model.params.{name}": x for name, x in there.items()}, KEEP
    )
    assert found["opt_state.mu"] == BESIDE
    assert found["extensions.model.params.bias"] != SAME
    assert found["extensions.rnd.state.mean"] == SAME


def test_extensions_are_left_where_the_networks_weights_differ():
    """Moments in them, such as those of PPG, are of these weights."""
    found = verdicts(with_extensions(), THEIRS | {"params.policy.bias": zeros(3)}, KEEP)
    assert {found[path] for path in found if path.startswith(("extensions", "opt_state"))} == {BESIDE}


@pytest.mark.parametrize("name", ["params", "obs_stats", "extensions", "opt_state"])
def test_an_extension_may_have_the_name_of_a_field(name):
    own = learner(params=WEIGHTS, extensions={name: OWN["rnd"]})
    there = THERE | {f"extensions.{name}.state.mean": zeros(3), f"extensions.{name}.state.count": zeros(2)}
    found = verdicts(own, there, ("params", "extensions"))
    assert (found[f"extensions.{name}.state.mean"], found[f"extensions.{name}.state.count"]) == (BESIDE, OTHER)


def test_groups_are_compared_by_name():
    groups = {name: learner(params=WEIGHTS) for name in ("prey", "hunter")}
    there = {f"prey.{name}": x for name, x in THERE.items()} | {f"bird.{name}": x for name, x in THERE.items()}
    found = {row.path: row.verdict for row in compare_learners(groups, there, ("params",))}
    assert {found[f"prey.{name}"] for name in THERE} == {SAME}
    assert {found[f"hunter.{name}"] for name in THERE} == {ONLY_HERE}
    assert {found[f"bird.{name}"] for name in THERE} == {ONLY_THERE}
    assert set(verdicts(learner(params=WEIGHTS), there).values()) == {ONLY_HERE, ONLY_THERE}


def test_a_group_may_have_the_name_of_a_field():
    there = {f"params.{name}": x for name, x in THERE.items()}
    assert set(verdicts(learner(params=WEIGHTS), there, group="params").values()) == {SAME}


def test_the_table_names_paths_and_shapes_those_that_differ_first():
    rows = compare_learners({"": learner(params=WEIGHTS)}, THERE | {"params.policy.bias": zeros(3)}, ("params",))
    lines = [line.split("  ") for line in table_of(rows).splitlines()]
    assert [[x.strip() for x in line if x] for line in lines] == [
        ["array", "here", "there"],
        ["params.policy.bias", "float32[2]", "float32[3]", "differs"],
        ["params.policy.kernel", "float32[4, 2]", "float32[4, 2]", "same"],
    ]


@pytest.mark.parametrize(("count", "last"), [(warm_start.ROWS, "same"), (warm_start.ROWS + 2, "and 2 more")])
def test_a_long_table_is_cut(count, last):
    rows = compare_learners(
        {"": learner(params=[zeros(1)] * count)}, {f"params.{i}": zeros(1) for i in range(count)}, "params"
    )
    rows = [row._replace(verdict=SAME) for row in rows] or [warm_start.ArrayRow("x", "-", "-", SAME)] * count
    assert table_of(rows).endswith(last)
    assert len(table_of(rows).splitlines()) <= warm_start.ROWS + 2
