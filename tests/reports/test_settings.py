"""Groups of runs that differ by their seed alone, and the options that set them apart."""

import pytest

from ppax import config
from ppax.config.defaults import completed
from ppax.core import untrusted
from ppax.core.options import flatten
from ppax.reports.settings import changed, identical, notes_on, setting_differences, settings_of, short_names
from ppax.run.records import of_history


def run(name="run", **tables):
    return of_history(name, [], {"env": "CartPole-v1", "seed": 0} | tables)


def test_runs_that_differ_by_seed_and_logging_alone_are_one_group():
    runs = [run(seed=0), run(seed=1, log={"console": False}), run(seed=2, eval={"episodes": 7}, timeout=3.0)]
    (group,) = settings_of(runs)
    assert group.records == runs
    assert group.label == "CartPole-v1"
    assert group.seeds == "3 seeds: 0, 1, 2"


def test_groups_are_named_by_what_sets_them_apart():
    slow, fast = {"learning_rate": 1e-4, "gamma": 0.9}, {"learning_rate": 1e-2, "gamma": 0.9}
    groups = settings_of([run(agent=slow), run(agent=fast), run(agent=slow, seed=4), run(env="Acrobot-v1", agent=slow)])
    assert [(group.label, len(group.records)) for group in groups] == [
        ("CartPole-v1, learning_rate = 0.01", 1),  # fewer seeds without a return
        ("CartPole-v1, learning_rate = 0.0001", 2),
        ("Acrobot-v1, learning_rate = 0.0001", 1),
    ]


def loss(part, **own):
    return run(agent={"loss": {"part": part} | own})


def labels_of(*runs):
    of = {id(group.records[0]): group.label for group in settings_of(runs)}
    return [of[id(one)] for one in runs]


def test_settings_of_unlike_parts_are_named_by_the_parts():
    """An option that one of the parts has is in the name where settings of that part differ in it."""
    assert labels_of(loss("clipped", clip_eps=0.2, dual_clip="none"), loss("spo", eps=0.2)) == [
        "loss = clipped",
        "loss = spo",
    ]
    assert labels_of(loss("clipped", clip_eps=0.2, a=1), loss("clipped", clip_eps=0.1, a=1), loss("spo", eps=0.2)) == [
        "loss = clipped, clip_eps = 0.2",
        "loss = clipped, clip_eps = 0.1",
        "loss = spo",
    ]
    both = loss("clipped", clip_eps=0.2), loss("dual", clip_eps=0.1)
    assert labels_of(*both) == ["loss = clipped, clip_eps = 0.2", "loss = dual, clip_eps = 0.1"]  # both parts have it
    inner = [run(agent={"network": {"part": "mine", "memory": {"part": "gru", "size": 4}}})]
    inner += [run(agent={"network": {"part": "other"}})]
    assert labels_of(*inner) == ["network = mine", "network = other"]
    assert labels_of(run(agent={"gamma": 0.9}), run()) == ["gamma = 0.9", "gamma = not set"]


def test_each_member_of_a_population_is_a_setting():
    """Its rows have the swept values as columns; equal last values were reached on different ways."""

    def member(name, seed, rate):
        rows = [{"iteration": 1, "env_steps": 8, "episode_return": float(seed), "agent.learning_rate": rate}]
        return of_history(name, rows, {"env": "CartPole-v1", "seed": seed, "agent": {"learning_rate": rate}})

    groups = settings_of([member("000", 0, 1e-3), member("001", 1, 1e-2), member("002", 2, 1e-3)])
    assert [(group.label, group.seeds) for group in groups] == [
        ("learning_rate = 0.001 (002)", "seed 2"),
        ("learning_rate = 0.01", "seed 1"),
        ("learning_rate = 0.001 (000)", "seed 0"),
    ]


def test_an_option_that_one_file_lacks_is_a_difference():
    found = setting_differences([run(agent={"gamma": 0.9}), run(agent={"gamma": 0.9, "num_epochs": 2})])
    assert found == {"agent.num_epochs": ["not set", 2]}


def test_names_are_as_long_as_it_takes():
    paths = ["agent.loss.part", "agent.loss.clip_eps", "groups.prey.agent.loss.clip_eps", "agent.network.memory.part"]
    names = short_names(paths)
    assert names["agent.network.memory.part"] == "memory"
    assert names["agent.loss.part"] == "loss"
    assert len(set(names.values())) == 4


def test_names_outside_of_an_agent_have_the_table():
    names = short_names(["log.every", "best.metric", "num_envs", "schedule.part", "agent.loss.clip_eps"])
    assert list(names.values()) == ["log.every", "best.metric", "num_envs", "schedule", "clip_eps"]


def test_changed_options_are_those_that_are_no_defaults():
    own = {"num_envs": 8, "agent": {"learning_rate": 0.5, "loss": {"part": "dpo"}}, "env_params": {"gravity": 3.0}}
    default = next(option for option in config.options({}) if option.path == "agent.learning_rate").default
    record = of_history("run", [], config.resolve(own))
    found = changed(record)
    assert found.of == "objects in Python (ppax.PPO, ppax.fit)"
    assert found.options == {
        "num_envs": (8, 64),
        "agent.learning_rate": (0.5, default),
        "agent.loss.part": ("dpo", "clipped"),
        "env_params.gravity": (3.0, None),
    }


@pytest.mark.parametrize(
    ("given", "of"),
    [
        ({"env": "CartPole-v1"}, "discrete actions, compiled"),
        ({"env": "MountainCarContinuous-v0", "preset": "none"}, "continuous control, compiled"),
        ({"env": "Pendulum-v1"}, "preset Pendulum-v1"),
        ({"env": "CartPole-v1", "num_envs": 16, "agent": {"gamma": 0.9}}, "discrete actions, compiled"),
    ],
)
def test_changes_are_those_from_the_settings_of_the_preset_or_the_kind(given, of):
    """The run file of `ppax train` has every option; only those that were given beside the environment are changed."""
    text = config.to_toml(config.resolve(completed(given).config))
    found = changed(of_history("run", [], untrusted.from_toml(text)))
    given = {path for path, _ in flatten(given)} - {"env", "preset"}
    assert found.of == of
    assert found.options.keys() - {"env", "preset"} == given


def test_changes_of_a_run_with_parts_of_the_users_own():
    found, _ = changed(of_history("run", [], {"num_envs": 3, "agent": {"loss": {"part": "my.module:Loss"}}}))
    assert found["num_envs"] == (3, 64)
    assert found["agent.loss.part"][0] == "my.module:Loss"


def test_a_name_has_the_options_that_tell_settings_apart():
    """Of four options that differ, three are in a name: not the first three, if the fourth alone tells two apart."""
    numbers = [(1, 1, 1, 0.1), (2, 2, 2, 0.1), (2, 2, 2, 0.2)]
    runs = [run(num_envs=a, num_steps=b, agent={"num_epochs": c, "gamma": d}) for a, b, c, d in numbers]
    assert labels_of(*runs) == [
        "num_envs = 1, num_steps = 1, gamma = 0.1, 1 more",
        "num_envs = 2, num_steps = 2, gamma = 0.1, 1 more",
        "num_envs = 2, num_steps = 2, gamma = 0.2, 1 more",
    ]


def test_a_name_is_longer_where_three_options_do_not_tell_settings_apart():
    """Each of four options alone tells one setting from the first."""
    numbers = [(1, 1, 1, 0.1), (2, 1, 1, 0.1), (1, 2, 1, 0.1), (1, 1, 2, 0.1), (1, 1, 1, 0.2)]
    runs = [run(num_envs=a, num_steps=b, agent={"num_epochs": c, "gamma": d}) for a, b, c, d in numbers]
    labels = labels_of(*runs)
    assert len(set(labels)) == 5
    assert not any("(run)" in label or "more" in label for label in labels)


def test_evaluations_of_other_lengths_or_actions_are_other_settings():
    runs = [run(eval={"max_steps": "none"}), run(eval={"max_steps": 50}), run(eval={"max_steps": 50}, seed=1)]
    assert [(group.label, len(group.records)) for group in settings_of(runs)] == [
        ("eval.max_steps = 50", 2),  # that of more runs first
        ("eval.max_steps = none", 1),
    ]
    parameters = settings_of([run(eval={"env_params": {"gravity": 9.8}}), run(eval={"env_params": {"gravity": 3.0}})])
    assert len(parameters) == 2


def test_a_setting_without_any_score_is_ranked_last_among_the_usual_kind():
    rows = [{"iteration": 1, "env_steps": 8, "episode_return": 5.0}]
    runs = [run("failed", agent={"gamma": 0.1}), of_history("well", rows, {"env": "CartPole-v1", "seed": 0})]
    assert [(one.label, one.kind) for one in settings_of(runs)] == [("gamma = not set", ""), ("gamma = 0.1", "")]


def test_no_two_settings_have_the_same_name():
    rows = [{"iteration": 1, "env_steps": 8, "agent.gamma": 0.5, "episode_return": 1.0}]
    twins = [of_history("000", rows, {"env": "x", "seed": seed, "agent": {"gamma": 0.5}}) for seed in range(2)]
    assert {one.label for one in settings_of(twins)} == {"x (000) #1", "x (000) #2"}


def test_settings_that_trained_identically_are_told():
    """Every row to the last digit, with time and speed apart; scores that are equal at a ceiling are not enough."""

    def one(gamma, seed, shift=0.0, seconds=1.0):
        rows = [
            {
                "iteration": i,
                "env_steps": 10 * i,
                "seconds": seconds * i,
                "memory_mb": 9 * seconds,
                "episode_return": 500.0,
                "entropy": i + shift,
            }
            for i in (1, 2, 3)
        ]
        return of_history("run", rows, {"env": "CartPole-v1", "seed": seed, "agent": {"gamma": gamma}})

    same = settings_of([one(gamma, seed, seconds=gamma) for gamma in (0.9, 0.99) for seed in (0, 1)])
    assert identical(same) == [
        "Settings gamma = 0.9 and gamma = 0.99 trained identically, to the last digit: agent.gamma had no effect."
    ]
    assert identical(same) == notes_on(same)
    assert identical(settings_of([one(0.9, 0), one(0.99, 0, 1e-12)])) == []
    assert identical(settings_of([one(0.9, 0), one(0.99, 1)])) == []  # another seed
