"""Comparison of runs: table and data."""

from ppax.reports.comparison import long_table, of_records
from ppax.run.records import of_history

ROWS = [{"iteration": i, "env_steps": 1000 * i, "seconds": 2.0 * i, "episode_return": 5.5 * i} for i in (1, 2)]
ONE = of_history("one", ROWS, {"env": "CartPole-v1", "agent": {"learning_rate": 0.001, "gamma": 0.9}})
OTHER = of_history("two", ROWS[:1], {"env": "CartPole-v1", "agent": {"learning_rate": 0.1, "gamma": 0.9}}, "a signal")
OTHER = OTHER._replace(evaluation={"mean_return": 7.0, "std_return": 1.0, "episodes": 32})

TABLE = """\
final evaluation:
IQM of the final return [95 %]  setting              runs
                             7  learning_rate = 0.1     1

training episodes:
IQM of the final return [95 %]  setting                runs
                            11  learning_rate = 0.001     1

evaluation  episode return  std of episodes  episodes  steps   time  steps/s  learning_rate  run  end
         7             5.5                1        32  1,000  2.0 s      500            0.1  two  a signal
         –              11                –         –  2,000  4.0 s      500          0.001  one  total_steps are done

Scores of different kinds cannot be compared and are ranked apart: final evaluation; training episodes."""  # noqa: RUF001


def test_the_table():
    """An evaluation of 7 and training episodes of 11 are ranked apart: actions and episodes are not the same."""
    assert str(of_records([OTHER, ONE])) == TABLE


def test_the_data():
    unknown = {"evaluation_return": None, "evaluation_std": None, "evaluation_episodes": None, "eval_return": None}
    unknown |= {"reward_mean": None}  # episodes have ended
    numbers = {"episode_return": 11.0, "env_steps": 2000.0, "seconds": 4.0, "steps_per_second": 500.0}
    first = {"run": "one", "config": {"agent.learning_rate": 0.001}, "stopped": "total_steps are done"}
    found = of_records([ONE, OTHER]).to_dict()["runs"]  # the final evaluation first
    assert found[1] == first | unknown | numbers
    assert found[0]["evaluation_return"] == 7.0
    assert found[0]["config"] == {"agent.learning_rate": 0.1}


def test_text_of_a_run_cannot_steer_the_terminal():
    hostile = of_history("\x1b[2Jname\n", ROWS, {"env": "\x1b]0;title\x07" + "x" * 500}, "\x9b31m")
    text = str(of_records([hostile, ONE]))
    assert all(sign.isprintable() for sign in text.replace("\n", ""))
    assert max(map(len, text.splitlines())) < 160


def test_a_speed_that_is_unknown_is_a_dash():
    unknown = of_history("three", [], {"env": "CartPole-v1"})
    head, *rows = str(of_records([ONE, unknown])).splitlines()
    end = head.index("steps/s") + len("steps/s")
    assert [row[:end].split()[-1] for row in rows] == ["500", "–"]  # noqa: RUF001


def test_settings_of_several_seeds_are_ranked_by_their_interquartile_mean():
    """Mean and IQM disagree: 1,000, 1, 2, 3 and 0 have the mean 201 and the IQM 2; five times 50 has both 50."""
    lucky = [one(f"lucky{seed}", seed, 0.1, x) for seed, x in enumerate([1000.0, 1.0, 2.0, 3.0, 0.0])]
    steady = [one(f"steady{seed}", seed, 0.2, 50.0) for seed in range(5)]
    found = of_records([*lucky, *steady])
    assert [(setting.label, setting.standing.iqm) for setting in found.settings] == [
        ("learning_rate = 0.2", 50.0),
        ("learning_rate = 0.1", 2.0),
    ]
    assert found.runs == [f"steady{seed}" for seed in range(5)] + ["lucky0", "lucky3", "lucky2", "lucky1", "lucky4"]
    first, differences, second = str(found).split("\n\n")
    assert [line.split()[-1] for line in first.splitlines()] == ["runs", "5", "5"]
    assert "50 [50, 50]" in first
    assert differences.splitlines()[1].split()[:4] == ["+48", "[-617.7,", "49.67]", "0.8"]
    assert second.splitlines()[1].split()[0] == "50"
    assert found.notes == []  # five seeds are enough for no warning


def test_many_options_are_counted():
    many = [one(f"run{i}", 0, 0.1, 1.0)._replace(tables={f"o{n}": i for n in range(12)} | {"env": "x"}) for i in (0, 1)]
    assert "4 more options differ: --json, or Comparison.options, has them" in str(of_records(many))


def one(name, seed, rate, score):
    rows = [{"iteration": 1, "env_steps": 10, "seconds": 1.0, "episode_return": score}]
    return of_history(name, rows, {"env": "CartPole-v1", "seed": seed, "agent": {"learning_rate": rate}})


def test_a_seed_counts_once():
    """Of two runs with equal options and seed the longer one counts, and the other is a row and a sentence."""
    short = one("short", 0, 0.1, 3.0)
    long = of_history("long", [*ROWS, ROWS[-1] | {"env_steps": 9000}], short.tables)
    found = of_records([short, long, one("other", 1, 0.1, 5.0)])
    assert [setting.runs for setting in found.settings] == [["long", "other"]]
    assert found.settings[0].standing.iqm == 8.0  # the mean of 11 and 5
    assert found.runs == ["long", "other", "short"]
    assert found.notes == [
        "short has options and seed of long: the seed counts once, with the latter (11; not counted: 3)."
    ]
    assert str(found).endswith(found.notes[0])
    assert long_table([short, long])["run"] == ["short"] + 3 * ["long"]


def test_runs_whose_seed_is_not_known_are_not_repeats():
    tables = {"env": "CartPole-v1", "agent": {"learning_rate": 0.1}}
    found = of_records([of_history(name, ROWS, tables) for name in ("a", "b")])
    assert [setting.runs for setting in found.settings] == [["a", "b"]]
    assert found.notes == []


def limited(name, seed, score, steps, **evaluation):
    tables = {"env": "CartPole-v1", "seed": seed, "total_steps": steps, "eval": evaluation}
    return of_history(name, ROWS, tables)._replace(evaluation={"mean_return": score, "episodes": 8})


def test_scores_of_other_limits_and_steps_are_ranked_apart():
    """The longer training and the shorter episodes have the highest and the lowest score; neither is in the ranking."""
    base = [limited(f"base{seed}", seed, 200.0 + seed, 1000, max_steps="none", episodes=8) for seed in range(5)]
    found = of_records(
        [
            limited("long", 0, 500.0, 9000, max_steps="none", episodes=8),
            limited("short", 0, 50.0, 1000, max_steps=50, episodes=8),
            *base,
        ]
    )
    kinds = [one.kind for one in found.settings]
    assert kinds == [  # that of the most runs first
        "total_steps = 1000, eval.max_steps = none",
        "total_steps = 9000, eval.max_steps = none",
        "total_steps = 1000, eval.max_steps = 50",
    ]
    assert found.differences == []
    assert found.notes == [f"Scores of different kinds cannot be compared and are ranked apart: {'; '.join(kinds)}."]
    assert str(found).startswith(f"{kinds[0]}:\nIQM of the final return")
    assert {one["kind"] for one in found.to_dict()["settings"]} == set(kinds)


def test_more_episodes_of_an_evaluation_are_the_same_kind_of_score():
    found = of_records([limited("a", 0, 1.0, 1000, episodes=8), limited("b", 1, 2.0, 1000, episodes=64)])
    assert [one.kind for one in found.settings] == [""]


def test_the_best_setting_is_compared_with_the_others_and_few_seeds_are_told():
    runs = [one(f"{rate}-{seed}", seed, rate, 10.0 * rate + seed) for rate in (1.0, 2.0, 3.0) for seed in range(3)]
    found = of_records(runs)
    assert [(x.label, x.other, x.seeds) for x in found.differences] == [
        ("learning_rate = 3", "learning_rate = 2", (3, 3)),
        ("learning_rate = 3", "learning_rate = 1", (3, 3)),
    ]
    assert [x.difference.iqm for x in found.differences] == [10.0, 20.0]
    assert [x.difference.better for x in found.differences] == [1.0, 1.0]
    assert found.notes == [
        "A setting has only 3 seeds: other seeds may reverse the order, and an interval of fewer than 5 seeds is too "
        "narrow."
    ]
    assert found.to_dict()["differences"][0]["than"] == "learning_rate = 2"
    single = of_records(runs[::3])  # a seed of each, as in a search: nothing to compare
    assert (single.differences, single.notes) == ([], [])
    pair = of_records(runs[::6])
    assert [x.difference.iqm for x in pair.differences] == [20.0]
    assert "only one seed" in pair.notes[0]


def test_final_evaluations_stand_before_the_last_returns_of_members_that_a_search_has_stopped():
    stopped = [one(f"stopped{i}", 0, 0.1 * i, 900.0) for i in range(1, 5)]
    ended = one("ended", 0, 0.7, 1.0)._replace(evaluation={"mean_return": 300.0})
    assert [(x.runs, x.kind) for x in of_records([*stopped, ended]).settings][:2] == [
        (["ended"], "final evaluation"),
        (["stopped1"], "training episodes"),
    ]


def test_columns_of_options_and_metrics_with_one_name_are_one_column():
    """Population-based training changes an option, which is then a column of the rows; `seed` is a metric here."""
    rows = [{"iteration": 1, "env_steps": 10, "agent.learning_rate": 0.5, "seed": 7.0}] * 2
    runs = [of_history(f"r{i}", rows, {"env": "E", "seed": i, "agent": {"learning_rate": 0.1 + i}}) for i in range(2)]
    table = long_table(runs)
    assert table["agent.learning_rate"] == [0.5] * 4
    assert table["seed"] == [0, 0, 1, 1]
    assert table["metric seed"] == [7.0] * 4
    assert {len(column) for column in table.values()} == {4}
