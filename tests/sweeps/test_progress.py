"""Progress of a sweep: the line on the console, and the rows of sweep.jsonl."""

import json
import math

from ppax.sweeps.placing.driver import MergedProgress
from ppax.sweeps.progress import Progress

ENDLESS = {"episode_return": math.nan, "reward_mean": 0.25}


def test_where_no_episode_ends_the_line_has_the_mean_reward_of_a_step(tmp_path, capsys):
    with Progress(tmp_path, 10, True) as progress:
        progress.add({0: 3, 1: 2}, 80, 2.0, [ENDLESS, ENDLESS | {"reward_mean": 0.75}])
    assert " 50%  reward 0.5 a step  80 env-steps  40 steps/s  no episode ended" in capsys.readouterr().err
    row = json.loads((tmp_path / "sweep.jsonl").read_text())
    assert (row["episode_return"], row["reward_mean"]) == (None, 0.5)


def test_programs_on_a_cluster_count_as_one(tmp_path, capsys):
    with Progress(tmp_path, 10, True) as progress:
        merged = MergedProgress(progress)
        merged.add(40, [ENDLESS])
        merged.add(40, [{"episode_return": 6.0, "reward_mean": 0.75}])
        merged.show({0: 5, 1: 5})
    assert "100%  return 6.0  80 env-steps" in capsys.readouterr().err
    assert json.loads((tmp_path / "sweep.jsonl").read_text())["reward_mean"] == 0.5
