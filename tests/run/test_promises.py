"""Promises of a run, asked of every kind of run: a table of kinds and promises, each cell a check or a reason.

A guard, record or promise that one kind has and another lacks was the fault behind many: docs/security.md,
docs/run_files.md and docs/sweeps.md promise them for all. A new kind or a new promise needs an entry in every cell.
"""

import json
import re
import shutil
import signal
import warnings
from pathlib import Path

import pytest

import ppax
from ppax import config
from ppax.run import checkpoint, provenance
from ppax.run.directory import RunDirectory
from ppax.run.fit import fit_run
from ppax.sweeps import member, runs
from ppax.training.loop import MEASURED, STAGES
from support.sweeping import signalling

pytestmark = pytest.mark.usefixtures(
    "vmapped_keys", "quick_programs", "cached_programs", "shared_sweeps", "shared_programs"
)

TOTAL = 6  # iterations
BASE = {
    "env": "CartPole-v1",
    "num_envs": 4,
    "num_steps": 16,
    "total_steps": 64 * TOTAL,
    "agent": {"num_epochs": 1, "network": {"hidden": [8]}, "schedule": {"part": "linear"}},
    "eval": {"episodes": 2},
    "log": {"console": False, "every": 1, "checkpoint_every": 1, "keep": "all"},
}
PAIRS = {"prey": {"players": [0]}, "hunter": {"players": [1]}}
VALUES = {"agent.learning_rate": [1e-2, 1e-3, 3e-3, 1e-4]}
OPTUNA = ppax.sweeps.Optuna(trials=2, batch=2, sampler="random")
SWEEPS = {
    "sweep": (VALUES, {}),
    "population": (VALUES, {"search": ppax.sweeps.PBT(interval=2, fraction=0.25)}),
    "study": ({"agent.learning_rate": ppax.sweeps.LogUniform(1e-4, 1e-2)}, {"search": OPTUNA}),
}
RUNS = {
    "run": BASE,
    "groups": BASE | {"env": "Pursuit-2", "total_steps": 128 * TOTAL, "groups": PAIRS},
    "host": BASE | {"env": "gymnasium/CartPole-v1"},
}
KINDS = ("run", "groups", "host", "sweep", "population", "study", "member")  # a member: resumed alone
STOPPED_AT = 3


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch):
    monkeypatch.setattr(runs.pictures, "draw", lambda result: [])


def begin(kind, path, callbacks=()):
    if kind in SWEEPS:
        values, options = SWEEPS[kind]
        return ppax.sweep_runs(BASE, values, run_dir=path, **options)
    built = config.build(RUNS[kind])
    return fit_run(*built, path, callbacks)


def resume(kind, path):
    """Resume a directory of this kind; a member alone."""
    if kind in SWEEPS:
        return ppax.resume_sweep(path)
    run = ppax.resume(path / "members" / "000" if kind == "member" else path, console=False)
    run.env.close() if kind == "host" else None
    return run


def run_dirs(kind, path):
    """Run directories of this kind: one, or those of the members that have begun."""
    if kind == "member":
        return [path / "members" / "000"]
    return sorted((path / "members").iterdir()) if kind in SWEEPS else [path]


def run_file(kind, path):
    return path / "sweep.toml" if kind in SWEEPS else run_dirs(kind, path)[0] / "run.toml"


_stopped, _whole = {}, {}


@pytest.fixture
def stopped(tmp_path_factory, monkeypatch):
    """Return a function: a copy of a directory of this kind that a signal has stopped halfway."""

    def of(kind):
        own = "sweep" if kind == "member" else kind
        if own not in _stopped:
            path = tmp_path_factory.mktemp(own) / "it"

            def stop(state, row):
                if row["iteration"] == STOPPED_AT:
                    signal.raise_signal(signal.SIGTERM)

            with monkeypatch.context() as patch:
                patch.setattr(member.MemberRun, "log", signalling(member.MemberRun.log, STOPPED_AT))
                with pytest.raises(ppax.Interrupted, match=re.escape(f"ppax resume {path}")):
                    begin(own, path, [stop])
            _stopped[own] = path
        return Path(shutil.copytree(_stopped[own], tmp_path_factory.mktemp(kind) / "it"))

    return of


def whole(kind, tmp_path_factory):
    if kind not in _whole:
        _whole[kind] = tmp_path_factory.mktemp(kind) / "it"
        begin(kind, _whole[kind])
    return _whole[kind]


def results(kind, path):
    """Rows without times, and final states, of each run directory."""
    found = []
    for run_dir in run_dirs(kind, path):
        rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
        newest, _ = checkpoint.newest_valid(run_dir / "checkpoints")
        kept = [{name: x for name, x in row.items() if name not in (*MEASURED, *STAGES)} for row in rows]
        found.append((run_dir.name, kept, newest.name, (newest / "state.safetensors").read_bytes()))
    return found


def edit(kind, path, old, new):
    file = run_file(kind, path)
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def changed(kind, path, words):
    """Resume after an edit: a run goes on and says what was changed, a sweep refuses it."""
    if kind in SWEEPS:
        with pytest.raises(ppax.ConfigError, match=rf"(was changed since|with other options).*{words}"):
            resume(kind, path)
    else:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            resume(kind, path)
        assert any(re.search(words, str(one.message)) for one in seen), [str(one.message) for one in seen]


# Promises: each is a function of a kind, of a stopped directory of it, and of further fixtures


def is_locked(kind, path, **_):
    for locked in {path if kind in SWEEPS else run_dirs(kind, path)[0], *run_dirs(kind, path)}:
        with RunDirectory(locked), pytest.raises(ppax.ConfigError, match="is in use by process"):
            resume(kind, path)


def refuses_links(kind, path, **_):
    (run_dirs(kind, path)[0] / "link").symlink_to("/etc/hostname")
    with pytest.raises(ppax.ConfigError, match="contains links"):
        resume(kind, path)


def is_not_begun_twice(kind, path, **_):
    with pytest.raises(ppax.ConfigError, match="already holds"):
        begin(kind, path)


def adopts_nothing_of_another(kind, path, **_):
    run_file(kind, path).unlink()
    with pytest.raises(ppax.ConfigError, match=r"it holds \S+ of another"):
        begin(kind, path)


def tells_edits(kind, path, **_):
    edit(kind, path, "gamma = 0.99\n", "gamma = 0.9\n")
    changed(kind, path, r"gamma was 0\.99 and is 0\.9")


def tells_another_length(kind, path, **_):
    steps = 128 if kind == "groups" else 64
    edit(kind, path, f"total_steps = {steps * TOTAL}", f"total_steps = {steps * TOTAL * 2}")
    changed(kind, path, "total_steps was" if kind in SWEEPS else "progress goes from 50% to 25%, .* learning_rate from")


def records_its_precision(kind, path, **_):
    for file in {run_file(kind, path), *(run_dir / "run.toml" for run_dir in run_dirs(kind, path))}:
        flat = dict(config.flatten(config.read(file)))
        dtypes = {value for name, value in flat.items() if name.endswith("compute_dtype")}
        assert dtypes == {"float32"}, file  # what auto is here: a run goes on, or is repeated, with it elsewhere


def records_its_stop(kind, path, **_):
    for run_dir in run_dirs(kind, path):
        assert json.loads((run_dir / "stopped.json").read_text())["kind"] == "signal"


def records_each_start(kind, path, **_):
    resume(kind, path)
    for run_dir in run_dirs(kind, path):
        starts = json.loads((run_dir / "about.json").read_text())["starts"]
        assert len(starts) == 2
        assert all({"verb", "products", "devices", "packages", "platform", "time"} <= start.keys() for start in starts)
        assert json.loads((run_dir / "stopped.json").read_text())["kind"] == "done"


def tells_another_machine(kind, path, monkeypatch, **_):
    def of_another_version(run_dir):
        return provenance.saved_origin(run_dir)._replace(jax="0.0.1")

    monkeypatch.setattr("ppax.run.fit.saved_origin", of_another_version)
    monkeypatch.setattr(member, "saved_origin", of_another_version)
    with pytest.warns(UserWarning, match=r"the checkpoint was saved with jax = 0\.0\.1, here it is"):
        resume(kind, path)


def survives_a_damaged_checkpoint(kind, path, **_):
    for run_dir in run_dirs(kind, path)[:1]:
        newest, _ = checkpoint.newest_valid(run_dir / "checkpoints")
        (newest / "state.safetensors").write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="skipped a damaged checkpoint"):
        resume(kind, path)
    assert all(name == f"{TOTAL:010d}" for _, _, name, _ in results(kind, path))


def goes_on_bit_for_bit(kind, path, tmp_path_factory, **_):
    resume(kind, path)
    assert results(kind, path) == results(kind, whole(kind, tmp_path_factory))


PROMISES = {
    is_locked: {},
    refuses_links: {},
    is_not_begun_twice: {"member": "a member begins with its sweep"},
    adopts_nothing_of_another: {"member": "a member begins with its sweep"},
    tells_edits: {},
    tells_another_length: {},
    records_its_precision: {},
    records_its_stop: {},
    records_each_start: {},
    tells_another_machine: {},
    survives_a_damaged_checkpoint: {},
    goes_on_bit_for_bit: {
        "host": "the state of Python environments cannot be saved: new episodes begin (docs/python_environments.md)",
        "member": "its own program has another layout than the sweep's: equal to rounding (docs/sweeps.md)",
    },
}
# Ray: workers train in copies of the run directories, by the same classes; tests/sweeps/placing kills and stops them


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_every_kind_of_run_keeps_the_promises_of_a_run(promise, kind, stopped, monkeypatch, tmp_path_factory):
    reason = PROMISES[promise].get(kind)
    if reason is None:
        promise(kind, stopped(kind), monkeypatch=monkeypatch, tmp_path_factory=tmp_path_factory)
    else:
        assert reason.strip()  # says why it does not apply
