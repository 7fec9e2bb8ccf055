"""Comparison of runs: table and data."""

from ppax.reports.comparison import of_records
from ppax.reports.records import of_history

ROWS = [{"iteration": i, "env_steps": 1000 * i, "seconds": 2.0 * i, "episode_return": 5.5 * i} for i in (1, 2)]
ONE = of_history("one", ROWS, {"env": "CartPole-v1", "agent": {"learning_rate": 0.001, "gamma": 0.9}})
OTHER = of_history("two", ROWS[:1], {"env": "CartPole-v1", "agent": {"learning_rate": 0.1, "gamma": 0.9}}, "a signal")
OTHER = OTHER._replace(evaluation={"mean_return": 7.0, "std_return": 1.0, "episodes": 32})

TABLE = """\
[1] one
[2] two

                                      [1]       [2]
learning_rate                       0.001       0.1
evaluation return                       –         7
evaluation std                          –         1
evaluation episodes                     –        32
episode return                         11       5.5
env steps                           2,000     1,000
seconds                             4.0 s     2.0 s
steps per second                      500       500
end                  total_steps are done  a signal"""  # noqa: RUF001


def test_the_table():
    assert str(of_records([ONE, OTHER])) == TABLE


def test_the_data():
    unknown = {"evaluation_return": None, "evaluation_std": None, "evaluation_episodes": None, "eval_return": None}
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
    assert max(map(len, text.splitlines())) < 100


def test_a_speed_that_is_unknown_is_a_dash():
    unknown = of_history("three", [], {"env": "CartPole-v1"})
    row = next(line for line in str(of_records([ONE, unknown])).splitlines() if line.startswith("steps per second"))
    assert row.split() == ["steps", "per", "second", "500", "–"]  # noqa: RUF001
