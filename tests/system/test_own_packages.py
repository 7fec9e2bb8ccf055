"""Run files with code of the user's: the worked parts of docs/extending.md by import path, and strangers' files."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import optax
import pytest

import ppax
from ppax import config
from ppax.cli import main
from ppax.core import imports
from ppax.run import checkpoint
from support import worked

SOURCE = Path(ppax.__file__).parents[1]
SIZES = "--num-envs 4 --num-steps 16 --eval.episodes 4 --agent.num-epochs 1 --agent.network.hidden 8 --log.every 1"
LONG = [*SIZES.split(), "--total-steps", "3200", "--log.checkpoint-seconds", "0"]
TRUST = ["--trust", "my_parts"]
CASES = {
    "advantage": "CartPole-v1 --agent.advantage my_parts.adv:Mixed --agent.advantage.weight 0.25",
    "memory": "CartPole-v1 --agent.network.memory my_parts.memory:Trace",
    "cell": "CartPole-v1 --agent.network.memory my_parts.differences:Differences",
    "loss": "CartPole-v1 --agent.loss my_parts.loss:SoftClip --agent.loss.tau 2",
    "extension": "CartPole-v1 --agent.extensions.z_loss.part my_parts.extension:ZLoss "
    "--agent.extensions.z_loss.coef 1e-3",
    "environment": "my_parts.worlds:short --env-params.max-steps 10",
    "minibatch": "CartPole-v1 --agent.minibatch my_parts.minibatch:WithReplacement",
    "logger": "CartPole-v1 --log.to my_parts.log:Best --log.to.0.digits 3",
    "head": "Pendulum-v1 --agent.network.distribution my_parts.laplace:laplace",
    "optax": "CartPole-v1 --agent.optimizer optax:lion --agent.optimizer.b1 0.8 --agent.loss my_parts.loss:SoftClip",
    "stop": "CartPole-v1 --stop my_parts.worlds:Late",
}
TOGETHER = (
    "my_parts.worlds:short --agent.advantage my_parts.adv:Mixed --agent.network.memory my_parts.memory:Trace "
    "--agent.loss my_parts.loss:SoftClip --agent.minibatch my_parts.minibatch:WithReplacement "
    "--log.to my_parts.log:Best --agent.optimizer optax:lion --stop my_parts.worlds:Late"
)


@pytest.fixture(autouse=True)
def no_trust(monkeypatch, tmp_path):
    monkeypatch.setattr(imports, "_trusted", set())
    monkeypatch.setattr(imports, "_beside", set())
    monkeypatch.setenv("PPAX_SETTINGS", str(tmp_path / "no settings.toml"))


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return worked.write(tmp_path_factory.mktemp("library"))


@pytest.fixture
def on_path(library, monkeypatch):
    monkeypatch.syspath_prepend(library)
    monkeypatch.setenv("PYTHONPATH", f"{library}{os.pathsep}{SOURCE}")
    yield library
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_parts"]:
        del sys.modules[name]


def start(*arguments):
    """Start the command in a process of its own."""
    command = [sys.executable, "-P", "-m", "ppax", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def kill_after_rows(process, directory, rows):
    """Kill the process as soon as the run has so many log rows."""
    file, deadline = Path(directory) / "metrics.jsonl", time.monotonic() + 240
    while not file.exists() or file.read_bytes().count(b"\n") < rows:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def final_arrays(directory):
    path, _ = checkpoint.newest_valid(Path(directory) / "checkpoints")
    return checkpoint.read_arrays(path, "", 2**40).arrays


def live(arguments, folder, draws=True):
    """Train, kill, resume, evaluate, play, export, load; the resumed run equals an uninterrupted one bit for bit."""
    whole, killed = folder / "whole", folder / "killed"
    train = ["train", *arguments.split(), *LONG]
    done = start(*train, "--run-dir", whole, *TRUST)
    said = done.communicate(timeout=280)[0]
    assert done.returncode == 0, said
    process = start(*train, "--run-dir", killed, *TRUST)
    kill_after_rows(process, killed, 4)
    assert config.OBJECTS not in config.read(killed / "run.toml")
    assert main.main(["resume", str(killed)]) == main.USAGE
    resumed = start("resume", killed, *TRUST)  # in a process of its own: compiled with the same options
    said = resumed.communicate(timeout=280)[0]
    assert resumed.returncode == 0, said
    ours, theirs = final_arrays(killed), final_arrays(whole)
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert main.main(["evaluate", str(killed)]) == main.USAGE
    assert main.main(["evaluate", str(killed), *TRUST]) == 0
    if draws:
        assert main.main(["play", str(killed), "--max-steps", "5", *TRUST]) == 0
        assert (killed / "play.gif").exists()
    assert main.main(["export", str(killed), *TRUST]) == 0
    assert main.main(["evaluate", str(killed / "policy.zip"), *TRUST]) == 0
    assert main.main(["report", str(killed), "--out", str(folder / "report.html")]) == 0
    return killed


@pytest.mark.usefixtures("cached_programs", "vmapped_keys")
def test_parts_by_import_path_live_as_those_of_ppax(on_path, tmp_path):
    run = live(TOGETHER, tmp_path)
    assert len((run / "best.txt").read_text().splitlines()) >= 50  # rows after the last checkpoint come twice
    ppax.trust("my_parts")
    policy = ppax.load(run)
    assert policy.act(np.zeros(1, np.float32)) in (0, 1)


@pytest.mark.nightly
@pytest.mark.usefixtures("cached_programs", "vmapped_keys")
@pytest.mark.parametrize("case", CASES)
def test_each_worked_part_lives_as_those_of_ppax(case, on_path, tmp_path):
    live(CASES[case], tmp_path)


@pytest.mark.nightly
@pytest.mark.usefixtures("cached_programs", "vmapped_keys")
def test_an_installed_package_and_its_short_names(tmp_path, monkeypatch):
    """The package is installed by pip, with entry points, into a directory that the path has."""
    pytest.importorskip("hatchling")
    source, target = worked.write(tmp_path / "source", "worked_pkg"), tmp_path / "target"
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "worked-pkg"\nversion = "1"\n'
        '[project.entry-points."ppax.parts"]\n"loss.soft" = "worked_pkg.loss:SoftClip"\n'
        '"env.Short-v0" = "worked_pkg.worlds:short"\n'
    )
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        target,
        source,
    ]
    subprocess.run(list(map(str, pip)), check=True)
    monkeypatch.setenv("PYTHONPATH", f"{target}{os.pathsep}{SOURCE}")
    plan = ["train", "Short-v0", "--agent.loss", "soft", *SIZES.split(), "--total-steps", "128"]
    refused = start(*plan, "--run-dir", tmp_path / "run")
    assert "--trust worked_pkg" in refused.communicate()[0]
    assert refused.returncode == main.USAGE
    done = start(*plan, "--run-dir", tmp_path / "run", "--trust", "worked_pkg")
    said = done.communicate()[0]
    assert done.returncode == 0, said
    assert config.read(tmp_path / "run" / "run.toml")["agent"]["loss"]["part"] == "worked_pkg.loss:SoftClip"


@pytest.mark.nightly
@pytest.mark.usefixtures("cached_programs", "vmapped_keys")
def test_the_other_commands_take_parts_by_import_path(on_path, tmp_path, capsys):
    plan = [*TOGETHER.split(), *SIZES.split(), "--total-steps", "512", *TRUST]
    assert main.main(["selftest", *plan]) == 0, capsys.readouterr()
    assert main.main(["bench", *plan, "--seconds", "0.1"]) == 0
    assert main.main(["check-env", "my_parts.worlds:short", *TRUST]) == 0
    assert main.main(["envs", "my_parts.worlds:short", *TRUST]) == 0
    suite = '[[row]]\nname = "own"\ntarget = "CartPole-v1"\nsteps = 512\nsuites = ["quick"]\n'
    options = '[row.options]\nnum_envs = 4\nnum_steps = 16\n[row.options.agent.loss]\npart = "my_parts.loss:SoftClip"\n'
    minibatch = "[row.options.agent.minibatch]\nnum_minibatches = 1\n"
    (tmp_path / "suite.toml").write_text(suite + options + minibatch)
    score = ["score", "--suite", str(tmp_path / "suite.toml"), "--out", str(tmp_path / "scores"), "--seeds", "1"]
    assert main.main(score) == main.USAGE
    assert main.main([*score, *TRUST]) == 0, capsys.readouterr()


# ---------------------------------------------------------------- Python


@pytest.mark.usefixtures("cached_programs", "quick_programs", "vmapped_keys")
def test_a_run_made_in_python_is_recorded_by_import_path(on_path, tmp_path):
    from my_parts.adv import Mixed
    from my_parts.log import Best
    from my_parts.memory import Trace

    env = ppax.make("CartPole-v1", 4)
    agent = ppax.PPO(
        ppax.networks.network(env, memory=Trace(), hidden=(8,)),
        advantage=Mixed(weight=0.25),
        optimizer=ppax.optimizers.Optax(optax.lion, b1=0.75),
        minibatch=ppax.minibatches.Shuffle(1),
        num_epochs=1,
    )
    log = ppax.Log(every=1, checkpoint_seconds=0.0, console=False, to=(Best(digits=2),))
    ppax.fit(agent, env, 128, run_dir=tmp_path / "run", num_steps=8, log=log)
    plan = config.read(tmp_path / "run" / "run.toml")
    assert config.OBJECTS not in plan
    assert plan["agent"]["advantage"] == {"part": "my_parts.adv:Mixed", "weight": 0.25}
    assert plan["agent"]["network"]["memory"] == {"part": "my_parts.memory:Trace"}
    assert plan["agent"]["optimizer"] == {"part": "optax:lion", "b1": 0.75, "b2": 0.99, "weight_decay": 0.001}
    assert plan["log"]["to"] == [{"part": "my_parts.log:Best", "digits": 2}]
    assert imports._trusted == set()  # recording trusts for its own time
    with pytest.raises(imports.Untrusted, match=r'ppax\.trust\("my_parts"\)'):
        ppax.resume(tmp_path / "run")
    ppax.trust("my_parts")
    resumed = ppax.resume(tmp_path / "run", console=False, total_steps=160)  # without a warning of a changed run file
    assert int(resumed.state.iteration) == 5
    built = config.build(plan)
    assert built.agent.advantage == Mixed(weight=0.25)
    assert type(built.agent.optimizer) is type(agent.optimizer)
    policy = ppax.load(tmp_path / "run")
    np.testing.assert_array_equal(policy.act(np.zeros(4)), resumed.policy().act(np.zeros(4)))


SCRIPT = """
import functools, signal, arm, ppax
env = ppax.envs.host(functools.partial(arm.Arm, 0.5, gear="high"), 2)
sizes = {"minibatch": ppax.minibatches.Shuffle(1), "num_epochs": 1}
agent = arm.Careful(ppax.networks.mlp(env, hidden=(4,)), bonus=2.0, **sizes)
ppax.fit(agent, env, 32, num_steps=8, run_dir="runs/mine", log=ppax.Log(console=False))

def stop(state, row):
    signal.raise_signal(signal.SIGTERM)

try:
    ppax.fit(agent, env, 64, num_steps=8, run_dir="runs/half", log=ppax.Log(every=1, console=False), callbacks=[stop])
except ppax.Interrupted as stopped:
    print(stopped)
"""
ARM = """
import gymnasium, numpy as np
from gymnasium import spaces
import ppax
from ppax.core.types import Scalar, number, part


@part
class Careful(ppax.PPO):
    bonus: Scalar = number("bonus", default=0.0)


class Arm(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"]}
    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)

    def __init__(self, x=1.0, gear="low", render_mode=None):
        self.x, self.gear, self.render_mode = x, gear, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(2, np.float32), self.x * (self.gear == "high"), self.steps == 4, False, {}

    def render(self):
        return np.full((8, 8, 3), 40 * self.steps, np.uint8)

"""


@pytest.mark.usefixtures("cached_programs")
def test_objects_made_in_a_script_go_on_by_command(tmp_path, monkeypatch, capsys):
    """A script trains an environment and an agent of a module beside it; the commands build them from their paths."""
    (tmp_path / "arm.py").write_text(ARM)
    (tmp_path / "train.py").write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "train.py"], check=True, cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    try:
        plan = config.read(Path("runs/mine/run.toml"))
        assert (plan["env"], plan["env_params"]) == ("arm:Arm", {"x": 0.5, "gear": "high"})
        assert (plan["agent"]["part"], plan["agent"]["bonus"]) == ("arm:Careful", 2.0)
        for verb in ("evaluate", "play", "export", "resume"):
            assert main.main([verb, "runs/mine"]) == main.USAGE
            assert capsys.readouterr().err.splitlines()[-1] == f"  ppax {verb} runs/mine --trust arm"
            assert "arm" not in sys.modules
        trust = ["--trust", "arm", "--json"]
        assert main.main(["evaluate", "runs/mine", "--episodes", "2", *trust]) == 0
        result = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert (result["mean_return"], result["mean_length"]) == (2.0, 4.0)
        assert main.main(["play", "runs/mine", *trust]) == 0
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["lengths"] == [4]
        assert main.main(["resume", "runs/mine", "--total-steps", "64", *trust]) == 0
        assert main.main(["export", "runs/mine", "--formats", "numpy", *trust]) == 0
        line = done.stdout.splitlines()[-1].partition("resume with: ")[2]
        assert line == "ppax resume runs/half --trust arm"
        assert main.main(shlex.split(line)[1:]) == 0
    finally:
        sys.modules.pop("arm", None)


# ---------------------------------------------------------------- a stranger's run directory


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory):
    """A finished run of ppax's own parts."""
    path, env = tmp_path_factory.mktemp("stranger") / "run", ppax.make("CartPole-v1", 2)
    agent = ppax.PPO(ppax.networks.mlp(env, (4,)), minibatch=ppax.minibatches.Shuffle(1), num_epochs=1)
    run = ppax.fit(agent, env, 64, run_dir=path, num_steps=8, log=ppax.Log(every=1, console=False))
    run.policy().export(path / "policy.zip", ["numpy"])
    return path


@pytest.fixture
def stranger(plain_run, tmp_path, monkeypatch):
    """A copy of the run, made to name code of a package that writes a file when it is imported; and this file."""
    (tmp_path / "lib").mkdir()
    written = tmp_path / "executed"
    (tmp_path / "lib" / "canary.py").write_text(f"open({str(written)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(tmp_path / "lib")

    def make(**changes):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        shutil.copytree(plain_run, tmp_path / "run")
        plan = config.read(tmp_path / "run" / "run.toml")
        flat = dict(config.flatten(plan)) | changes
        (tmp_path / "run" / "run.toml").write_text(config.to_toml(config.unflatten(flat)))
        return tmp_path / "run"

    yield make, written
    sys.modules.pop("canary", None)


NETWORK = {"agent.network.memory.part": "canary:Memory"}
ENV = {"env": "canary:River"}
LOSS = {"agent.loss.part": "canary:Loss"}
AGENT = {"agent.part": "canary:Agent"}
LOGGER = {"log.to": [{"part": "canary:Logger"}]}
REFUSED = [
    *[
        (verb, names)
        for verb in ("resume", "evaluate", "play", "train", "bench", "selftest")
        for names in (NETWORK, ENV, LOSS, AGENT)
    ],
    ("resume", LOGGER),
    ("train", LOGGER),
    ("export", NETWORK),
    ("export", AGENT),
]


@pytest.mark.parametrize(("verb", "names"), REFUSED, ids=str)
def test_commands_on_a_strangers_run_execute_nothing_and_say_what_would(verb, names, stranger, capsys):
    make, written = stranger
    path = make(**names)
    assert main.main([verb, str(path)]) == main.USAGE
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == f"  ppax {verb} {path} --trust canary"
    assert not written.exists()


@pytest.mark.parametrize("names", [NETWORK, ENV, LOSS, LOGGER, AGENT], ids=str)
@pytest.mark.parametrize("verb", ["report", "doctor"])
def test_commands_that_only_read_a_strangers_run_execute_nothing(verb, names, stranger, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # for report.html
    make, written = stranger
    assert main.main([verb, str(make(**names))]) == 0
    assert not written.exists()


def test_the_doctor_imports_nothing_even_where_the_package_is_trusted(stranger):
    make, written = stranger
    with imports.trusting(["canary"]):
        assert main.main(["doctor", str(make(**NETWORK, **LOSS))]) == 0
    assert not written.exists()


def test_load_of_a_strangers_run_executes_nothing(stranger):
    make, written = stranger
    with pytest.raises(imports.Untrusted, match="canary"):
        ppax.load(make(**NETWORK))
    for names in (ENV, LOSS, LOGGER):  # acting needs none of these
        assert ppax.load(make(**names)).act(np.zeros(4)) in (0, 1)
    for names in (NETWORK, ENV, LOSS, LOGGER):
        with pytest.raises(imports.Untrusted, match="canary"):
            ppax.resume(make(**names))
    assert not written.exists()


def test_a_warm_start_from_a_strangers_run_executes_nothing(stranger, tmp_path):
    make, written = stranger
    env = ppax.make("CartPole-v1", 2)
    agent = ppax.PPO(ppax.networks.mlp(env, (4,)), minibatch=ppax.minibatches.Shuffle(1), num_epochs=1)
    path = make(**NETWORK, **ENV, **LOSS)
    ppax.fit(agent, env, 16, num_steps=8, init_from=path, log=ppax.Log(console=False))
    assert not written.exists()


def test_a_bundle_of_a_stranger_executes_nothing(stranger, tmp_path, capsys):
    import zipfile

    make, written = stranger
    path = make()
    with zipfile.ZipFile(path / "policy.zip") as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    name = next(name for name in files if name.endswith(".json") and b'"spec"' in files[name])
    old = json.loads(files[name])
    text = json.dumps(old).replace('"part": "none"', '"part": "canary:Memory"')
    assert "canary" in text
    from ppax.policy.bundle import reading

    with pytest.raises(imports.Untrusted, match="canary"):
        reading._agent(path, json.loads(text), None)
    assert not written.exists()
