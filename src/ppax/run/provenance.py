"""Origin of checkpoints (run, configuration, devices), and versions, hardware and git commit of each start of a run."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import platform
import re
import time
import tomllib
import warnings
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ppax import config
from ppax.agents.precision import decide_dtype, products_of, recorded_dtype
from ppax.agents.self_play import Pool
from ppax.config import Run
from ppax.core import untrusted
from ppax.core.options import flatten
from ppax.core.protocols import Agent
from ppax.core.types import ConfigError
from ppax.devices import sharding
from ppax.devices.layout import with_devices
from ppax.envs import Env
from ppax.envs.suites.registry import HOST_SUITES, SUITES
from ppax.run import checkpoint, python_objects
from ppax.run import directory as run_dirs
from ppax.run.directory import RunDirectory
from ppax.training.backends import backend_of
from ppax.training.loop import num_devices

# Options that do not change what is learned: a user may edit them in the run file of a stopped run
FREE = ("stop", "best.", "log.", "eval.", "film.", "vectorization", "timeout", "info_metrics")
LENGTH = "total_steps"  # another option that may be edited; `with_total_steps` warns where it moves a schedule
COMMIT = re.compile(r"[0-9a-f]{40,64}")
GIT_FILE_LIMIT, PACKED_LIMIT = 2**16, 2**24  # bytes read of a file of git's, and of its list of all branches
MACHINE = ("devices", "products", "platform", "jax")  # fields of an origin that change the bits of a run
PACKAGES = ("ppax", "jax", "jaxlib", "numpy")
# Packages of environments, whose versions are recorded where they are installed
LIBRARIES = sorted({*SUITES, *(HOST_SUITES.keys() - {"atari"}), "ale-py", "box2d", "mujoco", "mujoco-mjx"})


class Origin(NamedTuple):
    """Origin of a checkpoint, recorded in its manifest: the run that saved it, devices, platform and configuration.

    `products` is the dtype of matrix products in training, such as "float32"; for learners with different dtypes it has
    those of all learners, separated by commas. `config` lacks the options that do not change what is learned (FREE),
    which a user may edit before a resume.
    """

    run: str  # id in about.json; "": unknown
    devices: int  # number of devices of the program; 0: unknown
    products: str  # dtype of products in training, of several learners that differ in it those of all; "": unknown
    platform: str
    jax: str
    config: dict[str, Any]  # values by dotted path, without the options in FREE

    @property
    def total_steps(self) -> int | None:
        """Option `total_steps`, the planned length of the run, when the checkpoint was saved; None: unknown."""
        length = self.config.get(LENGTH)
        return length if type(length) is int and 0 < length < 2**63 else None


UNKNOWN = Origin("", 0, "", "", "", {})  # without a checkpoint


def origin_of(run_dir: Path, agent: Agent, env: Env, run: Run) -> Origin:
    """Return the origin that this process writes into the manifests of the run's checkpoints."""
    run_config = run_dirs.read_run_config(run_dir)
    values = dict(flatten(run_config))
    with contextlib.suppress(ConfigError):  # user-defined parts cannot be resolved
        # those with an import path as the file has them: the same values whether their packages are trusted or not
        default = config.plain(run_config)
        plain_values = dict(flatten(default))
        own = {path: x for path, x in values.items() if path not in plain_values}
        values = dict(flatten(config.resolve(default))) | own
    settings = {path: x for path, x in values.items() if not path.startswith((*FREE, config.OBJECTS))}
    plain = json.loads(json.dumps(settings, default=str))
    devices = num_devices(agent, env, run.num_steps)
    products = products_of(agent, env.num_streams) if backend_of(env).repeatable else "float32"
    run_id = run_dirs.read_about(run_dir).get("id", "")
    return Origin(run_id, devices, products, jax.default_backend(), jax.__version__, plain)


def record_start(
    directory: RunDirectory | None, verb: str, agent: Agent, env: Env, run: Run, notes: Mapping[str, Any]
) -> Origin | None:
    """Record this start of a run in its directory, with `notes`, and return the origin of its checkpoints.

    The origin (run, configuration, devices) goes into their manifests. `verb` is "fit", "resume" or "sweep". Without a
    directory nothing is recorded, and None is returned.
    """
    if directory is None:
        return None
    origin = origin_of(directory.path, agent, env, run)
    program = {"devices": origin.devices, "products": origin.products}
    directory.record_start({"verb": verb, **program, **notes} | versions_and_hardware())
    return origin


def saved_origin(run_dir: Path) -> Origin:
    """Return what the newest readable checkpoint in `run_dir` records of the run and the machine that saved it.

    Entries that it lacks are "", 0 or {}.
    """
    manifest, _ = checkpoint.newest(run_dir / run_dirs.CHECKPOINTS, checkpoint.read_manifest)
    entries = (manifest or {}).get("origin", {})
    return Origin(
        *(entries[name] if type(entries.get(name)) is type(x) else x for name, x in UNKNOWN._asdict().items())
    )


def in_saved_precision(run_dir: Path, agent: Agent) -> Agent:
    """Return `agent`; a precision "auto" is replaced by the one that the run file of `run_dir` records.

    If the file records none, it is the precision that this machine chooses.
    """
    return decide_dtype(agent, recorded_dtype(run_dirs.read_run_config(run_dir)))


def with_saved_devices(devices: int, agent: Agent, env: Env, run: Run) -> Agent:
    """Return `agent`, split over the number of devices that its checkpoint was saved with; unchanged if not possible.

    `devices` is that number, 0 if unknown. The agent is unchanged if this machine has fewer devices, if environments or
    minibatches cannot be divided, if the run file sets the devices itself, or if several processes train.
    """
    if jax.process_count() > 1:  # every process has a share
        return agent
    if devices in (0, num_devices(agent, env, run.num_steps)) or devices > len(jax.local_devices()):
        return agent
    for learner, streams in agent.learners(env.num_streams):
        minibatch = learner.minibatch_size(run.num_steps, streams)
        if learner.program.devices is not None or env.num_envs % devices or minibatch % devices:
            return agent
    return with_devices(agent, devices)


def warn_of_changes(run_dir: Path, saved: Origin, current: Origin | None, passed: config.Built | None) -> None:
    """Warn where configuration, devices or versions of a resumed run differ from those when its checkpoint was saved.

    Results are then not bit-identical. `saved` is the checkpoint's origin, `current` that of the resumed run; None in a
    process that has no run directory, because another process leads the run: then `saved` and `current` are not
    compared. Warns also where the `passed` agent and environment (None: built from the run file) differ from those
    recorded.
    """
    if passed is not None:
        warn_of_other_objects(run_dir, *passed)
    if saved == UNKNOWN or current is None:
        return
    for text in changed_provenance(saved, current):
        warnings.warn(f"{run_dir}: {text}", stacklevel=3)
    # an option that neither has came with a newer ppax, and has its default
    given = saved.config | dict(flatten(run_dirs.read_run_config(run_dir)))
    both = saved.config | {path: x for path, x in current.config.items() if path in given}
    paths = sorted(x for x in both if saved.config.get(x) != current.config.get(x) and x != LENGTH)
    if paths and saved.config:
        changed = ", ".join(
            f"{path} was {saved.config.get(path)!r} and is {current.config.get(path)!r}" for path in paths
        )
        warnings.warn(
            f"{run_dir / run_dirs.RUN_FILE} was changed since the checkpoint was saved: {changed}", stacklevel=3
        )


def changed_provenance(saved: Origin, current: Origin | None) -> list[str]:
    """Return a sentence for each entry on devices and versions in which this start differs from a checkpoint.

    `saved` is the checkpoint's origin, `current` that of this start; if `current` is None (unknown), [] is returned.
    """
    pairs = {name: (getattr(saved, name), getattr(current or saved, name)) for name in MACHINE}
    return [
        f"the checkpoint was saved with {name} = {old}, here it is {new}; the run goes on, but its bits differ from "
        "those of an uninterrupted run"
        for name, (old, new) in pairs.items()
        if old and old != new
    ]


def warn_of_other_objects(run_dir: Path, agent: Agent, env: Env, run: Run) -> None:
    """Warn, with names and values, where agent or environment differ from those recorded in the run file."""
    recorded = run_dirs.read_run_config(run_dir)
    objects = [place for place in config.objects_of(recorded) if not place.startswith(python_objects.NOT_NEEDED)]
    with contextlib.suppress(ConfigError):  # user-defined parts cannot be resolved
        recorded = config.resolve(recorded)
    fields = env.settings.run_fields() | {"agents": agent.sharing, "self_play": agent.pool or Pool()}
    given = tomllib.loads(config.to_toml(config.describe_run(agent, env, dataclasses.replace(run, **fields))))
    recorded = tomllib.loads(config.to_toml(recorded))
    was, now = ({path: x for path, x in flatten(one) if path != config.OBJECTS} for one in (recorded, given))
    paths = [path for path in sorted(was | now) if not python_objects.same_value(was.get(path), now.get(path))]
    replaced = tuple(path.removesuffix("part") for path in paths if path.endswith(".part"))  # their options differ too
    words = [
        f"{path} was {was.get(path)!r} and is {now.get(path)!r}"
        for path in paths
        if path.endswith(".part") or not path.startswith((*FREE, LENGTH, *replaced))
    ]
    other = set(objects) ^ set(python_objects.objects(agent, env, given))
    words += [f"{place} is not that of the run file" for place in sorted(other)]
    if words:
        warnings.warn(
            f"agent or environment passed to resume differ from those recorded in {run_dir / run_dirs.RUN_FILE}: "
            f"{', '.join(words)}; the run goes on with those passed, not as the uninterrupted run would",
            stacklevel=3,
        )


def versions_and_hardware() -> dict[str, Any]:
    """Return time, versions, hardware and git commit of this process, as plain data.

    Versions are those of ppax, of what it computes with, and of the environment libraries that are installed.
    """
    device = jax.local_devices()[0]
    return {
        "time": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "python": platform.python_version(),
        "packages": {
            **{name: _version(name) for name in PACKAGES},
            **{name: version for name in LIBRARIES if (version := _version(name))},
        },
        "git_commit": _commit_here(),
        "ppax_commit": _commit_of_ppax(),
        "system": platform.platform(),
        "cores": sharding.num_cores(),
        "platform": device.platform,
        "device": device.device_kind,
        "local_devices": len(jax.local_devices()),
    }


def _commit_here() -> str | None:
    """Return the commit checked out in the current directory; None outside of a repository, or if it was removed."""
    try:
        return git_commit(Path.cwd())
    except FileNotFoundError:
        return None


def git_commit(directory: Path) -> str | None:
    """Return the commit checked out in the repository of `directory`; None outside of a repository.

    Reads git's files and does not run git, since a repository's configuration can make git start other programs.
    """
    for folder in (directory, *directory.parents):
        if os.path.lexists(folder / ".git"):
            try:
                return _commit(folder / ".git")
            except (OSError, ValueError):
                return None
    return None


def _commit_of_ppax() -> str | None:
    """Return the commit of the clone that ppax runs from; None for an installed package."""
    clone = Path(__file__).parents[3]
    return git_commit(clone) if (clone / "src" / "ppax").is_dir() and (clone / ".git").exists() else None


def _commit(git: Path) -> str | None:
    if git.is_file():  # a worktree or submodule: the file has the path of the real directory
        git = git.parent / _text(git).removeprefix("gitdir: ")
    head = _text(git / "HEAD")
    if not head.startswith("ref: "):
        return head if COMMIT.fullmatch(head) else None
    name = head.removeprefix("ref: ")
    common = git / _text(git / "commondir") if (git / "commondir").exists() else git
    for ref in (git / name, common / name):
        if ref.is_file():
            commit = _text(ref)
            return commit if COMMIT.fullmatch(commit) else None
    packed = common / "packed-refs"
    lines = untrusted.read_text(packed, PACKED_LIMIT).splitlines() if packed.is_file() else []
    commits = [line.split(" ")[0] for line in lines if line.endswith(f" {name}")]
    return commits[0] if commits and COMMIT.fullmatch(commits[0]) else None


def _text(path: Path) -> str:
    return untrusted.read_text(Path(os.path.realpath(path)), GIT_FILE_LIMIT).strip()


@functools.cache  # parses the metadata of the whole package
def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:  # a source tree that is not installed
        return getattr({"jax": jax, "numpy": np}.get(name), "__version__", None)
