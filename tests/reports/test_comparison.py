"""Comparison of runs: table and data."""

from ppax.reports.comparison import of_records
from ppax.run.records import of_history

ROWS = [{"iteration": i, "env_steps": 1000 * i, "seconds": 2.0 * i, "episode_return": 5.5 * i} for i in (1, 2)]
ONE = of_history("one", ROWS, {"env": "CartPole-v1", "agent": {"learning_rate": 0.001, "gamma": 0.9}})
OTHER = of_history("two", ROWS[:1], {"env": "CartPole-v1", "agent": {"learning_rate": 0.1, "gamma": 0.9}}, "a signal")
OTHER = OTHER._replace(evaluation={"mean_return": 7.0, "std_return": 1.0, "episodes": 32})

TABLE = """\
evaluation  episode return  std  episodes  steps   time  steps/s  learning_rate  run  end
         –              11    –         –  2,000  4.0 s      500          0.001  one  total_steps are done
         7             5.5    1        32  1,000  2.0 s      500            0.1  two  a signal"""  # noqa: RUF001


def test_the_table():
    assert str(of_records([OTHER, ONE])) == TABLE  # best first


def test_the_data():
    unknown = {"evaluation_return": None, "evaluation_std": None, "evaluation_episodes": None, "eval_return": None}
    unknown |= {"reward_mean": None}  # episodes have ended
    numbers = {"episode_return": 11.0, "env_steps": 2000.0, "seconds": 4.0, "steps_per_second": 500.0}
    first = {"run": "one", "config": {"agent.learning_rate": 0.001}, "stopped": "total_steps are done"}
    found = of_records([ONE, OTHER]).to_dict()["runs"]
    assert found[0] == first | unknown | numbers
    assert found[1]["evaluation_return"] == 7.0
    assert found[1]["config"] == {"agent.learning_rate": 0.1}


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
    first, second = str(found).split("\n\n")
    assert [line.split()[-1] for line in first.splitlines()] == ["runs", "5", "5"]
    assert "50 [50, 50]" in first
    assert second.splitlines()[1].split()[0] == "50"


def test_many_options_are_counted():
    many = [one(f"run{i}", 0, 0.1, 1.0)._replace(tables={f"o{n}": i for n in range(12)} | {"env": "x"}) for i in (0, 1)]
    assert str(of_records(many)).endswith("4 more options differ: --json, or Comparison.options, has them")


def one(name, seed, rate, score):
    rows = [{"iteration": 1, "env_steps": 10, "seconds": 1.0, "episode_return": score}]
    return of_history(name, rows, {"env": "CartPole-v1", "seed": seed, "agent": {"learning_rate": rate}})
