"""Origin of a checkpoint: the run that saved it, its configuration and its devices; differences from now are said."""

from __future__ import annotations

import contextlib
import json
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax

from ppax import config
from ppax.agents.multi_agent import Agent, with_devices
from ppax.config import Run
from ppax.envs import Env
from ppax.options import flatten
from ppax.run import checkpoint
from ppax.run import directory as run_dirs
from ppax.training import num_devices
from ppax.types import ConfigError

# Settings that a user may change in the run file of a stopped run without changing what was learned so far
FREE = ("total_steps", "stop", "best.", "log.", "eval.", "vectorization")


class Origin(NamedTuple):
    """What the manifest of a checkpoint says of its run."""

    run: str  # id in about.json; "": not recorded
    devices: int  # over which the program is split; 0: not recorded
    platform: str
    jax: str
    config: dict[str, Any]  # values by dotted path, of what decides what is learned


NOWHERE = Origin("", 0, "", "", {})  # where there is no checkpoint


def origin_of(run_dir: Path, agent: Agent, env: Env, run: Run) -> Origin:
    """Origin of the checkpoints that a process saves from now on."""
    plan = run_dirs.find(run_dir)
    with contextlib.suppress(ConfigError):  # parts of the user's own cannot be resolved
        plan = config.resolve(plan)
    plan = {name: value for name, value in plan.items() if name != config.OBJECTS}
    settings = {path: value for path, value in flatten(plan) if not path.startswith(FREE)}
    plain = json.loads(json.dumps(settings, default=str))
    devices = num_devices(agent, env, run.num_steps)
    return Origin(run_dirs.read_about(run_dir).get("id", ""), devices, jax.default_backend(), jax.__version__, plain)


def saved_origin(run_dir: Path) -> Origin:
    """Origin of the newest checkpoint that can be read."""
    manifest, _ = checkpoint.newest(run_dir / "checkpoints", checkpoint.read_manifest)
    found = (manifest or {}).get("origin", {})
    return Origin(*(found[name] if type(found.get(name)) is type(x) else x for name, x in NOWHERE._asdict().items()))


def as_begun(before: Origin, agent: Agent, env: Env, run: Run) -> Agent:
    """`agent` split over the devices of its checkpoint, where they are here and the run file asks for no others."""
    devices = before.devices
    if devices in (0, num_devices(agent, env, run.num_steps)) or devices > len(jax.local_devices()):
        return agent
    for learner, streams in agent.learners(env.num_streams):
        minibatch = learner.minibatch.size(run.num_steps * streams // learner.sequence_length(run.num_steps))
        if learner.program.devices is not None or env.num_envs % devices or minibatch % devices:
            return agent
    return with_devices(agent, devices)


def say_changes(run_dir: Path, before: Origin, now: Origin | None) -> None:
    """Warn where configuration or devices are not those of the checkpoint: the run is then no longer the same bits."""
    if before == NOWHERE or now is None:
        return
    for name in ("devices", "platform", "jax"):
        old, new = getattr(before, name), getattr(now, name)
        if old and old != new:
            text = f"{run_dir}: the checkpoint was saved with {name} = {old}, here it is {new}"
            warnings.warn(f"{text}; the run goes on, but its bits are not those of an uninterrupted one", stacklevel=3)
    paths = sorted(path for path in before.config | now.config if before.config.get(path) != now.config.get(path))
    if paths and before.config:
        changed = ", ".join(f"{path} was {before.config.get(path)!r} and is {now.config.get(path)!r}" for path in paths)
        warnings.warn(
            f"{run_dir / run_dirs.RUN_FILE} was changed since the checkpoint was saved: {changed}", stacklevel=3
        )
