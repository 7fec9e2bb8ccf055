"""`ppax sweep`: values on the command line and in a run file, JSON, `ppax resume` of a sweep directory."""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import ppax
from ppax import config
from ppax.cli import main, sweep
from ppax.run import checkpoint
from ppax.sweeps import Choice, LogUniform
from ppax.sweeps.decisions import Stage
from ppax.sweeps.results import MemberResult, SettingResult, SweepResult
from ppax.training.loop import MEASURED

FILE = """
env = "CartPole-v1"
num_envs = 4
num_steps = 16
total_steps = 192
agent.num_epochs = 1
agent.network.hidden = [8]
eval.episodes = 2
log.console = false

[sweep]
seeds = 2
"agent.learning_rate" = [1e-3, 3e-3]
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1e-4,3e-4", [1e-4, 3e-4]),
        ("clipped, spo", ["clipped", "spo"]),
        ("true,false", [True, False]),
        ("[64, 64], [32]", [[64, 64], [32]]),
        ("[64, 64]", None),  # one value
        ("64", None),
        ("log_uniform(1e-5, 1e-2)", LogUniform(1e-5, 1e-2)),
        ("choice(a, b)", Choice(["a", "b"])),
        ("choice([64, 64])", Choice([[64, 64]])),
        ('{"lanes": 4, "duration": 40}', None),  # one table, as JSON or TOML
        ("{lanes = 4, duration = 40}", None),
        ('{"a": 1, "b": 2}, {"a": 3, "b": 4}', [{"a": 1, "b": 2}, {"a": 3, "b": 4}]),
    ],
)
def test_values_on_the_command_line(text, values):
    assert sweep.several(text) == values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1e-4,,1e-3", "1e-4,,1e-3: an empty value between commas; nearest valid value: 1e-4,1e-3"),
        (", a", "an empty value between commas; nearest valid value: a"),
        ("loguniform(1e-5, 1e-2)", r"not a distribution; nearest: log_uniform\(\.\.\.\)"),
        ("uniform(0.1, 0.2", r"not a distribution; nearest: uniform\(\.\.\.\), with a bracket at the end"),
    ],
)
def test_bad_values_on_the_command_line_are_refused(text, message):
    with pytest.raises(ppax.ConfigError, match=message):
        sweep.several(text)


def parsed(*arguments):
    return sweep.parse_sweep([str(x) for x in arguments])


def test_swept_options_are_split_from_those_of_the_run(file):
    flags = ["--agent.gamma", "0.9,0.99", "--num_envs=4,1e1", "--agent.loss", "clipped,spo", "--seeds", "3,4"]
    _, run_config, table = parsed(file, *flags, "--num-steps", 8, "--agent.network.hidden", "4,8", "--draw-seed", 1)
    assert run_config["num_steps"] == 8
    assert "sweep" not in run_config
    assert table == {
        "agent.learning_rate": [1e-3, 3e-3],  # of the file
        "agent.gamma": [0.9, 0.99],
        "num_envs": [4, 10],
        "agent.loss.part": ["clipped", "spo"],
        "agent.network.hidden": [[4], [8]],
        "seeds": [3, 4],
        "draw_seed": 1,
    }
    _, _, table = parsed(file, "--agent.learning-rate", "uniform(1e-4, 1e-3)", "--draws", 2)
    assert table["agent.learning_rate"] == ppax.sweeps.Uniform(1e-4, 1e-3)
    assert (table["draws"], table["seeds"]) == (2, 2)


NESTED = """
env = "CartPole-v1"
[sweep]
seeds = [3, 4]
[sweep.agent]
learning_rate = [1e-3, 3e-3]
gamma = [0.9, 0.99]
normalize_obs = [true, false]
network.hidden = { part = "choice", values = [[8], [16]] }
[sweep.env_params]
half_length = [0.4, 0.5]
"""


@pytest.mark.parametrize(
    ("flags", "path", "value"),
    [
        ("--agent.learning-rate 1e-2", "agent.learning_rate", 1e-2),
        ("--no-agent.normalize-obs", "agent.normalize_obs", False),
        ("--agent.normalize_obs on", "agent.normalize_obs", True),
        ("--agent.network.hidden 4", "agent.network.hidden", [4]),
        ("--env-params.half-length 0.3", "env_params.half_length", 0.3),
        ("--env-params.half-length.low 0.3 --env-params.half-length.high 0.4", "env_params.half_length.low", 0.3),
        ("--seed 7", "seed", 7),
    ],
)
def test_one_value_on_the_command_line_fixes_an_option_that_the_file_sweeps(tmp_path, flags, path, value):
    (tmp_path / "nested.toml").write_text(NESTED)
    whole = dict(config.flatten(parsed(tmp_path / "nested.toml")[2]))
    _, run_config, table = parsed(tmp_path / "nested.toml", *flags.split())
    assert dict(config.flatten(run_config))[path] == value
    fixed = path.replace("seed", "seeds").removesuffix(".low")
    left = {name: x for name, x in whole.items() if name not in (fixed, f"{fixed}.part", f"{fixed}.values")}
    assert dict(config.flatten(table)) == left != whole


@pytest.mark.parametrize(
    ("flag", "path", "values"),
    [
        ("--num-envs=choice(4, 1e1)", "num_envs", Choice((4, 10))),
        ("--agent.network.hidden=choice(8, 16)", "agent.network.hidden", Choice(([8], [16]))),
        ("--agent.network.hidden=choice([64, 1e1])", "agent.network.hidden", Choice(([64, 10],))),
        ("--agent.normalize-obs=on,off", "agent.normalize_obs", [True, False]),
    ],
)
def test_swept_values_have_the_type_of_their_option(file, flag, path, values):
    found = parsed(file, flag)[2][path]
    assert found == values
    assert repr(found) == repr(values)  # 10, and not 10.0


@pytest.mark.usefixtures("cached_programs", "vmapped_keys", "quick_programs")
def test_a_run_file_is_swept_and_resumed(file, tmp_path, capsys):
    out = tmp_path / "out"
    assert main.main(["sweep", str(file), "--env-params.gravity", "9.8,12.0", "--run-dir", str(out), "--json"]) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert result == json.loads((out / "result.json").read_text())
    assert "8 members, 4 settings of 2 seeds; 1 kind of program" in printed.err
    assert sorted(path.name for path in (out / "members").iterdir()) == [f"{i:03d}" for i in range(8)]
    assert main.main(["resume", str(out)]) == 0
    text = capsys.readouterr().out
    assert f"ppax train {out / 'best.toml'}" in text
    assert config.read(out / "best.toml")["agent"]["program"]["devices"] == 1  # as members are trained
    # the file that a sweep writes repeats it
    again = ["sweep", str(out / "sweep.toml"), "--run-dir", str(tmp_path / "again"), "--json"]
    assert main.main(again) == 0
    other = json.loads(capsys.readouterr().out)
    assert [x["iqm"] for x in other["settings"]] == [x["iqm"] for x in result["settings"]]
    assert main.main(["resume", str(out), "--total-steps", "1000"]) == 2
    assert main.main(["train", str(file)]) == 2
    assert "[sweep] is of `ppax sweep`" in capsys.readouterr().err


@pytest.mark.usefixtures("cached_programs", "vmapped_keys", "quick_programs")
def test_no_member_with_a_score_is_a_numerical_fault(file, tmp_path, capsys):
    arguments = ["sweep", str(file), "--agent.learning-rate", "1e30,2e30", "--run-dir", str(tmp_path / "out")]
    assert main.main(arguments) == 4
    assert "has a score" in capsys.readouterr().err


@pytest.mark.usefixtures("vmapped_keys")
@pytest.mark.nightly
def test_the_best_settings_train_alone_to_the_same_curve(file, tmp_path):
    out = tmp_path / "out"
    main.main(["sweep", str(file), "--run-dir", str(out), "--total-steps", "640"])
    assert main.main(["train", str(out / "best.toml"), "--run-dir", str(tmp_path / "alone")]) == 0
    best = config.read(out / "best.toml")
    assert best["agent"]["program"].pop("devices") == 1  # as members are trained; several devices round otherwise
    files = {p: config.read(p / "run.toml") for p in (out / "members").iterdir()}
    assert {given["agent"]["program"].pop("devices") for given in files.values()} == {1}
    same = [p for p, given in files.items() if given == best]
    curves = [
        np.array([json.loads(line)["episode_return"] or 0.0 for line in (p / "metrics.jsonl").read_text().splitlines()])
        for p in (same[0], tmp_path / "alone")
    ]
    np.testing.assert_allclose(*curves, rtol=1e-5)


def contents(path):
    """States and rows of all members."""
    found = {}
    for one in sorted((path / "members").iterdir()):
        newest, skipped = checkpoint.newest_valid(one / "checkpoints")
        assert skipped == []
        rows = [json.loads(line) for line in (one / "metrics.jsonl").read_text().splitlines()]
        kept = [{name: x for name, x in row.items() if name not in MEASURED} for row in rows]
        found[one.name] = newest.name, (newest / "state.safetensors").read_bytes(), kept
    return found


def rows_in(path):
    """Number of the progress rows of a sweep."""
    return len((path / "sweep.jsonl").read_text().splitlines()) if (path / "sweep.jsonl").exists() else 0


def killed_at_random(file, flags, tmp_path, kills):
    """Paths of a sweep that ran through, and of one that was killed by SIGKILL `kills` times and resumed."""
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    whole, killed = tmp_path / "whole", tmp_path / "killed"

    def command(*arguments):
        line = [sys.executable, "-m", "ppax", *map(str, arguments)]
        return subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    assert command("sweep", file, *flags, "--run-dir", whole).wait() == 0
    drawn = random.Random(0)
    for kill in range(kills):  # each after a random part of the way that is left to all of them
        until = rows_in(killed) + drawn.uniform(0.0, rows_in(whole) / (kills + 1))
        process = command("resume", killed) if kill else command("sweep", file, *flags, "--run-dir", killed)
        while rows_in(killed) <= until:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert command("resume", killed).wait() == 0
    return whole, killed


@pytest.mark.nightly
def test_a_sweep_killed_five_times_at_random_ends_with_the_same_bits(file, tmp_path):
    """Real processes, SIGKILL: 64 members, 16 learning rates and 4 seeds."""
    rates = ",".join(f"{rate:.3g}" for rate in np.geomspace(1e-4, 1e-2, 16))
    flags = ["--agent.learning-rate", rates, "--seeds", "4", "--total-steps", "64000"]
    flags += ["--log.every", "20", "--log.checkpoint-every", "40"]
    whole, killed = killed_at_random(file, flags, tmp_path, 5)
    assert contents(killed) == contents(whole)


@pytest.mark.parametrize("search", ["pbt", "grid"])
def test_what_comes_next_is_the_best_policy_of_a_population_and_else_the_best_setting(search, tmp_path, capsys):
    member = MemberResult(1, {"agent.gamma": 0.9}, 0, 500.0, 0.0, 640, "", tmp_path / "members" / "001")
    setting = SettingResult({"agent.gamma": 0.9}, (member,), 500.0, 500.0, 500.0)
    lineage = (Stage(0, 1, {"agent.gamma": 0.9}),) if search == "pbt" else ()
    result = SweepResult(tmp_path, (setting,), tmp_path / "best.toml", lineage)
    member.run_dir.mkdir(parents=True)
    for file in (member.run_dir / "run.toml", result.best):
        file.write_text('env = "river:River"\ninit_from = { run = "runs/first" }\n')
    sweep._report(argparse.Namespace(json=False), result)
    text = capsys.readouterr().out
    assert (f"ppax evaluate {member.run_dir} --episodes 1000 --trust river   #" in text) is (search == "pbt")
    assert (f"ppax train {result.best} --trust river --trust runs/first   #" in text) is (search == "grid")


@pytest.mark.nightly
@pytest.mark.parametrize("search", ["halving --search.eta 2", "pbt --search.interval 25"])
def test_a_search_killed_at_random_ends_with_the_same_bits(file, search, tmp_path):
    """Real processes, SIGKILL: 16 members of 1,000 iterations, with all decisions."""
    flags = ["--agent.learning-rate", "log_uniform(1e-4, 1e-2)", "--draws", "8", "--total-steps", "64000"]
    flags += ["--log.every", "5", "--log.checkpoint-every", "40", "--search", *search.split()]
    file.write_text(FILE.replace('"agent.learning_rate" = [1e-3, 3e-3]', ""))
    whole, killed = killed_at_random(file, flags, tmp_path, 3)
    assert contents(killed) == contents(whole)
    assert (killed / "search.jsonl").read_bytes() == (whole / "search.jsonl").read_bytes()


def test_a_search_on_the_command_line(file, capsys):
    """Another part than that of the file starts from its own defaults; the same part keeps the file's options."""
    assert config.SEARCH not in parsed(file)[2]
    file.write_text(FILE + '[search]\npart = "halving"\neta = 4\n')
    assert parsed(file)[2]["search"] == {"part": "halving", "eta": 4}
    assert parsed(file, "--search.rungs", 2)[2]["search"] == {"part": "halving", "eta": 4, "rungs": 2}
    assert parsed(file, "--search", "optuna", "--search.trials=2")[2]["search"] == {"part": "optuna", "trials": 2}
    flags = ["--search=pbt", "--search.factors", 0.5, 2, "--search.interval", "1e2", "--num-envs", "4,8"]
    _, run_config, table = parsed(file, *flags)
    assert table["search"] == {"part": "pbt", "factors": [0.5, 2.0], "interval": 100}
    assert table["num_envs"] == [4, 8]
    assert config.SEARCH not in run_config
    assert ppax.sweeps.plan.read(table).search == ppax.sweeps.PBT(factors=(0.5, 2.0), interval=100)
    with pytest.raises(SystemExit):
        parsed(file, "--search", "pbt", "--help", "search")
    assert "--search.resample" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (
            "--search havling",
            "search.part = 'havling': must be one of grid, halving, pbt, optuna; nearest: halving",
        ),
        ("--search halving --search.rung 3", "unknown option '--search.rung'; did you mean --search.rungs"),
        ("--search.rungs 3", "unknown option '--search.rungs'"),
    ],
)
def test_a_wrong_search_is_refused(file, flags, text):
    with pytest.raises(ppax.ConfigError, match=text):
        ppax.sweeps.plan.read(parsed(file, *flags.split())[2])


@pytest.mark.usefixtures("cached_programs", "vmapped_keys", "quick_programs")
def test_a_search_is_recorded_and_repeated(file, tmp_path, capsys):
    """The sweep file has the table; a sweep of it makes the same decisions. Members of a sweep train alone."""
    out, again = tmp_path / "out", tmp_path / "again"
    flags = ["--search", "halving", "--search.eta", "2", "--search.rungs", "1", "--log.every", "1"]
    assert main.main(["sweep", str(file), *flags, "--run-dir", str(out)]) == 0
    assert "stopped by halving at rung 1 of 1 (iteration 2)" in capsys.readouterr().out
    assert config.read(out / "sweep.toml")["search"] == {"part": "halving", "eta": 2, "rungs": 1}
    assert sorted(path.name for path in out.glob("*.png")) == ["members.png", "parallel.png"]
    assert main.main(["sweep", str(out / "sweep.toml"), "--run-dir", str(again)]) == 0
    assert (again / "search.jsonl").read_bytes() == (out / "search.jsonl").read_bytes()
    stopped = next(path for path in sorted(out.glob("members/*")) if not (path / "evaluation.json").exists())
    assert main.main(["resume", str(stopped)]) == 0
    assert json.loads((stopped / "stopped.json").read_text())["kind"] == "done"
    assert main.main(["train", str(out / "sweep.toml")]) == 2


@pytest.mark.usefixtures("cached_programs", "vmapped_keys", "quick_programs")
def test_a_study_on_the_command_line(file, tmp_path, capsys):
    """A study of two trials is recorded, finished by `ppax resume`, and ends with a run file that trains."""
    pytest.importorskip("optuna")
    out = tmp_path / "out"
    flags = ["--search", "optuna", "--search.trials", "2", "--search.batch", "1", "--search.sampler", "random"]
    assert main.main(["sweep", str(file), *flags, "--run-dir", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "study 'ppax': 2 trials of 2 seeds, 1 at a time" in printed
    assert "best trial of the study: " in printed
    search = config.read(out / "sweep.toml")["search"]
    assert (search["part"], search["trials"], search["storage"]) == ("optuna", 2, "none")
    assert main.main(["resume", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["study"] in printed
    assert [len(setting["members"]) for setting in found["settings"]] == [2, 2]
    assert main.main(["train", str(out / "best.toml"), "--run-dir", str(tmp_path / "best")]) == 0
    own = found["settings"][0]["members"][0]
    score = json.loads((tmp_path / "best" / "evaluation.json").read_text())["mean_return"]
    assert score == pytest.approx(own["score"])
