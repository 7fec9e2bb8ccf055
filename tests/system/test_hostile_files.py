"""Files of somebody else: bombs, damage and mutations of every file that ppax reads end in one sentence."""

import contextlib
import io
import json
import os
import random
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import jax
import pytest
import yaml

import ppax
from ppax import config
from ppax.cli.options import add_train, parse_run
from ppax.core import imports
from ppax.extensions.imitation import demonstrations
from ppax.loggers import Csv, JsonLines
from ppax.loggers.mlflow import recorded_id
from ppax.policy.bundle import NumpyPolicy, archive
from ppax.policy.spec import spec_of
from ppax.reports.page import page
from ppax.run import checkpoint, records
from ppax.run.directory import RunDirectory, read_evaluation
from ppax.run.monitor import RunMonitor
from ppax.run.provenance import origin_of
from ppax.run.restore import load_run, load_state, state_shapes
from ppax.scores import results, suite
from ppax.storage.manifest import sealed
from ppax.sweeps import directory, plan
from ppax.sweeps.decisions import Decisions, SearchDecision
from ppax.sweeps.directory import Recorded
from ppax.sweeps.member import end_of
from support import hostile_files

REFUSALS = (ppax.ConfigError, checkpoint.CheckpointError, OSError)  # exit codes 2 and 5
MEMORY = 350  # MB that a command may take for a file that claims gigabytes
SIZES = {"env": "CartPole-v1", "num_envs": 2, "num_steps": 4, "total_steps": 64, "log": {"console": False}}
SMALL = SIZES | {"agent": {"network": {"hidden": [4]}, "minibatch": {"num_minibatches": 1}, "num_epochs": 1}}


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A run directory, a sweep directory, a bundle, demonstrations and the other files that ppax reads."""
    root = tmp_path_factory.mktemp("originals")
    run_config = config.resolve(SMALL | {"best": {"metric": "episode_return"}, "stop": "episode_return >= 400"})
    agent, env, run = config.build(run_config)
    state = jax.jit(lambda: ppax.start(agent, env, run.num_steps, jax.random.key(0)))()
    spec = spec_of(agent, env, state.actor.action_mask, {})
    with RunDirectory.create(root / "run", run_config, spec.to_data()) as made:
        checkpoint.save(made.checkpoints, state, origin=origin_of(made.path, agent, env, run)._asdict())
        made.record_start({"time": "2026-01-01", "packages": {"jax": "1"}, "hardware": ["cpu"], "git": None})
    rows = [{"iteration": i, "env_steps": 8 * i, "episode_return": 9.5 + i, "seconds": 0.1 * i} for i in range(1, 6)]
    for logger in (JsonLines(root / "run" / "metrics.jsonl"), Csv(root / "run" / "metrics.csv")):
        for row in rows:
            logger.log(row)
        logger.close()
    scores = {"episodes": 8, "mean_return": 9.5, "std_return": 1.0, "mean_length": 9.5, "env_steps": 40}
    (root / "run" / "evaluation.json").write_text(json.dumps(scores))
    end = {"kind": "done", "why": "total_steps are done", "iteration": 5, "env_steps": 40}
    (root / "run" / "stopped.json").write_text(json.dumps(end))
    (root / "run" / "mlflow.json").write_text(json.dumps({"run_id": "0" * 32}))
    learner = ppax.load(root / "run")
    learner.export(root / "policy.zip", ["numpy"])
    search = {"part": "halving", "rungs": 1}
    swept = plan.read({"agent.learning_rate": [1e-3, 2e-3], "seeds": 2, "search": search})
    (root / "sweep").mkdir()
    members = plan.members_of(run_config, swept)
    directory.create_sweep(root / "sweep", Recorded(run_config, swept, members, ((0, 1), (2, 3))))
    (root / "sweep" / "members").mkdir()
    Decisions(root / "sweep").add([SearchDecision(4, number, 1.0, "on") for number in range(4)])
    (root / "settings.toml").write_text('trust = ["numpy"]\n')
    (root / "suite.toml").write_text('[[row]]\nname = "A"\ntarget = "CartPole-v1"\nsteps = 64\nthreshold = 1.0\n')
    member = {"seed": 1, "score": 1.0, "std": 0.0, "length": 9.0, "random": 9.0, "env_steps": 8, "seconds": 1.0}
    content = {"env": "CartPole-v1", "backend": "compiled", "episodes": 8, "about": {}, "fingerprint": "a"}
    (root / "A.json").write_text(json.dumps(content | {"members": [member | {"curve": [[8, 1.0]]}]}))
    (root / "run.json").write_text(json.dumps(config.resolve(SMALL), default=str))
    (root / "run.yaml").write_text(yaml.safe_dump(json.loads((root / "run.json").read_text())))
    return root


# ------------------------------------------------------------------ mutations of every file


def quietly(*calls):
    """Make every call; refusals of one do not keep the others from being made."""
    for call in calls:
        try:
            call()
        except REFUSALS as error:
            words = str(error)
            if "\x1b" in words or "Traceback" in words:
                raise AssertionError(words) from error


def read_run(path):
    """Do what load, report, compare, doctor and checkpoints read."""

    def reported():
        record = records.read(path)
        page([record], None, "today")
        str(ppax.compare([path]))

    quietly(lambda: ppax.load(path), reported, lambda: ppax.checkpoints(path), lambda: str(ppax.doctor(path)))


def read_rows(path):
    """Do what a resume reads beside the state, and rewrite the rows as it does."""
    agent, env, run = load_run(path)
    shapes = state_shapes(agent, env, run)
    RunMonitor(run).restore(path, 3, shapes)
    quietly(lambda: load_state(path, agent, env, run))
    for made in (JsonLines(path / "metrics.jsonl", 3), Csv(path / "metrics.csv", 3)):
        made.log({"iteration": 4, "env_steps": 32})
        made.close()
    read_run(path)


def read_sweep(path):
    quietly(lambda: directory.read(path), lambda: Decisions(path))


def read_member(path):
    end_of(path), read_evaluation(path), recorded_id(path)
    quietly(lambda: records.read(path))


def read_run_file(path):
    """Do what train, evaluate and resume do with a run file before anything is trained."""
    quietly(lambda: config.build_agent(config.resolve(config.read(path)), ppax.make("CartPole-v1", 2)))
    quietly(lambda: parse_run("train", [str(path)], add_train))
    quietly(lambda: RunMonitor(config.settings(config.read(path))))


def read_bundle(path):
    quietly(lambda: ppax.load(path))
    with contextlib.suppress(ValueError, OSError):
        NumpyPolicy(path)


def resealed(name):
    """Function that mutates one file of a bundle and gives the bundle right checksums."""

    def change(data, rng):
        with zipfile.ZipFile(io.BytesIO(data)) as bundle:
            files = {entry: bundle.read(entry) for entry in bundle.namelist()}
        kind = "json" if name.endswith(".json") else "bytes"
        files[name] = hostile_files.mutated(files[name], rng, kind)
        description = json.loads(files.pop(archive.DESCRIPTION)) if name != archive.DESCRIPTION else None
        if description is not None:
            return archive.archive_bytes(description, files)
        try:  # the checksum of the description itself is right, its entries are not
            text = json.dumps(sealed(json.loads(files[name]))).encode()
        except (ValueError, TypeError, RecursionError):
            text = files[name]
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as bundle:
            for entry, content in (files | {name: text}).items():
                bundle.writestr(entry, content)
        return out.getvalue()

    return change


def resealed_manifest(data, rng):
    """Mutate a manifest and give it a right checksum."""
    changed = hostile_files.mutated(data, rng, "json")
    try:
        return json.dumps(sealed(json.loads(changed))).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        return changed


def plain(kind):
    return lambda data, rng: hostile_files.mutated(data, rng, kind)


def read_settings(path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PPAX_SETTINGS", str(path))
        quietly(lambda: imports.granted())


def read_demonstrations(path):
    env = ppax.make("CartPole-v1", 2)
    quietly(lambda: demonstrations.read(str(path), env.observation_space, env.action_space))


def read_result(path):
    results.load(suite.SuiteRow(name="A", target="CartPole-v1"), path.parent)


CHECKPOINT = "run/checkpoints/0000000000"
# The file, its mutations, and the function that reads it: of a directory, the directory
FUZZED = {
    "run file": ("run/run.toml", plain("toml"), read_run),
    "run file on a command line": ("run/run.toml", plain("toml"), lambda path: read_run_file(path / "run.toml")),
    "run file in JSON": ("run.json", plain("json"), read_run_file),
    "run file in YAML": ("run.yaml", plain("bytes"), read_run_file),
    "policy.json": ("run/policy.json", plain("json"), read_run),
    "about.json": ("run/about.json", plain("json"), read_run),
    "metrics.jsonl": ("run/metrics.jsonl", plain("lines"), read_rows),
    "metrics.csv": ("run/metrics.csv", plain("bytes"), read_rows),
    "evaluation.json": ("run/evaluation.json", plain("json"), read_member),
    "stopped.json": ("run/stopped.json", plain("json"), read_member),
    "mlflow.json": ("run/mlflow.json", plain("json"), read_member),
    "manifest": (f"{CHECKPOINT}/manifest.json", plain("json"), read_run),
    "sealed manifest": (f"{CHECKPOINT}/manifest.json", resealed_manifest, read_rows),
    "state": (f"{CHECKPOINT}/state.safetensors", plain("bytes"), read_run),
    "sweep.toml": ("sweep/sweep.toml", plain("toml"), read_sweep),
    "sweep.json": ("sweep/sweep.json", plain("json"), read_sweep),
    "search.jsonl": ("sweep/search.jsonl", plain("lines"), read_sweep),
    "settings file": ("settings.toml", plain("toml"), read_settings),
    "suite": ("suite.toml", plain("toml"), lambda path: quietly(lambda: suite.choose([], str(path)))),
    "result of a score": ("A.json", plain("json"), read_result),
    "bundle": ("policy.zip", plain("bytes"), read_bundle),
    "description of a bundle": ("policy.zip", resealed(archive.DESCRIPTION), read_bundle),
    "program of a bundle": ("policy.zip", resealed(archive.PROGRAM), read_bundle),
    "weights of a bundle": ("policy.zip", resealed(archive.WEIGHTS), read_bundle),
    "demonstrations": ("demos.npz", plain("bytes"), read_demonstrations),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("portion", [3, *(pytest.param(n, marks=pytest.mark.nightly) for n in (100, 101, 102, 103))])
@pytest.mark.parametrize("kind", FUZZED)
def test_a_mutated_file_is_refused_or_read_and_never_a_traceback(kind, portion, originals, tmp_path):
    """A portion is the number of mutations, and the seed of the generator."""
    name, mutate, read = FUZZED[kind]
    if kind == "demonstrations":
        hostile_files.good_demonstrations(originals / name)
    rng = random.Random(f"{kind} {portion}")
    original = (originals / name).read_bytes()
    for number in range(portion):
        folder, changed = tmp_path / str(number), mutate(original, rng)
        top, *inside = Path(name).parts
        target = folder / top
        folder.mkdir()
        if inside:
            shutil.copytree(originals / top, target)
        (folder / name).write_bytes(changed)
        try:
            quietly(lambda read=read, target=target: read(target))
        except BaseException as error:
            kept = Path(os.environ.get("FUZZED", tmp_path)) / f"{kind}-{portion}-{number}".replace(" ", "_")
            kept.write_bytes(changed)
            raise AssertionError(f"{kind}: {type(error).__name__}: {error}; the file is {kept}") from error
        shutil.rmtree(folder)


# ------------------------------------------------------------------ the command line, watched


def run_commands(commands, folder):
    """Run commands in a process that reports forbidden events and memory."""
    (folder / "cache").mkdir(exist_ok=True)
    environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache"), "JAX_PLATFORMS": "cpu"}
    arguments = [sys.executable, hostile_files.__file__, json.dumps(commands)]
    done = subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def require_refused(found, codes):
    for name, one in found.items():
        assert one["code"] in codes, (name, one)
        assert one["events"] == [], (name, one)
        assert one["grown"] < MEMORY, (name, one)
        assert "Traceback" not in one["text"], (name, one)
        assert not set("\x1b\x07\x9b\u202e") & set(one["text"]), (name, one)
        assert one["code"] == 0 or [line[:6] for line in one["text"].splitlines()].count("ppax: ") == 1, (name, one)


def corpus(kinds, folder, suffix):
    """Write every file of a corpus; return them by what they are."""
    folder.mkdir()
    found = {}
    for place, (name, make) in enumerate(kinds.items()):
        found[name] = folder / f"{place}{suffix}"
        make(found[name])
    return found


def test_bundles_of_a_stranger_exit_with_5_and_do_nothing(tmp_path):
    files = corpus(hostile_files.BUNDLES, tmp_path / "files", ".zip")
    found = run_commands([["evaluate", str(path), "--no-cache"] for path in files.values()], tmp_path)
    require_refused(dict(zip(files, found, strict=True)), {5})
    assert not list(tmp_path.rglob("executed"))


def test_demonstrations_of_a_stranger_exit_with_2_and_do_nothing(tmp_path):
    files = corpus(hostile_files.DEMONSTRATIONS, tmp_path / "files", ".npz")
    command = [
        "train",
        "CartPole-v1",
        "--num-envs",
        "2",
        "--agent.extensions",
        "behaviour_cloning",
        "--run-dir",
        "run",
        "--no-cache",
    ]
    commands = [[*command, "--agent.extensions.behaviour_cloning.demonstrations", str(path)] for path in files.values()]
    require_refused(dict(zip(files, run_commands(commands, tmp_path), strict=True)), {2})
    assert not list(tmp_path.rglob("executed"))
    assert not (tmp_path / "run").exists()


def records_for(place, every):
    """Return the hostile records for the file at a place in a list: all, or a third of them."""
    return list(enumerate(hostile_files.RECORDS.items()))[slice(None) if every else slice(place % 3, None, 3)]


EVERY = pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.nightly)])


@EVERY
def test_metrics_and_records_of_a_stranger_are_read_in_bounds(every, originals, tmp_path):
    """Records that cannot be read are left out of a report; what a run needs to go on is refused."""
    commands, names = [], []
    for place, (name, make) in enumerate(hostile_files.METRICS.items()):
        run = Path(shutil.copytree(originals / "run", tmp_path / f"metrics{place}"))
        make(run / "metrics.jsonl")
        names.append(f"report with {name}")
        commands.append(["report", str(run), "--no-video", "--no-cache", "--out", "page.html"])
        names.append(f"plot with {name}")
        commands.append(["plot", str(run), "--out", "curves.png"])
    for one, file in enumerate(("evaluation.json", "stopped.json", "about.json", "mlflow.json", "run.toml")):
        for place, (name, make) in records_for(one, every):
            run = Path(shutil.copytree(originals / "run", tmp_path / f"{file}{place}"))
            make(run / file)
            names.append(f"{file}: {name}")
            commands.append(["compare", str(run)])
    found = dict(zip(names, run_commands(commands, tmp_path), strict=True))
    read = [name for name in names if not name.startswith(("run.toml", "plot"))]
    require_refused({name: found[name] for name in names if name.startswith("run.toml")}, {2})
    require_refused({name: found[name] for name in read}, {0})
    require_refused({name: found[name] for name in names if name.startswith("plot")}, {0, 2})  # 2: no row is left


@EVERY
def test_records_of_a_policy_or_sweep_exit_with_2_or_5(every, originals, tmp_path):
    commands, names = [], []
    of_run = "policy.json", "run.toml", f"{CHECKPOINT.removeprefix('run/')}/manifest.json"
    for target, files in {"run": of_run, "sweep": ("sweep.toml", "sweep.json", "search.jsonl")}.items():
        for one, file in enumerate(files):
            for place, (name, make) in records_for(one, every):
                path = Path(shutil.copytree(originals / target, tmp_path / f"{place}{file.replace('/', '-')}"))
                make(path / file)
                names.append(f"{file}: {name}")
                verb = "export" if target == "run" else "resume"
                commands.append([verb, str(path), "--no-cache", *(["--out", "x.zip"] if verb == "export" else [])])
    require_refused(dict(zip(names, run_commands(commands, tmp_path), strict=True)), {2, 5})


def test_a_run_file_of_any_size_is_refused(tmp_path, capsys):
    from ppax.cli import main

    hostile_files.sparse(tmp_path / "huge.toml")
    assert main.main(["train", str(tmp_path / "huge.toml")]) == 2
    assert "must have at most 1,048,576" in capsys.readouterr().err
