"""Learner from which a warm start takes: of a run directory, a TrainedRun or a TrainState, as arrays by name."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ppax.arrays import counter
from ppax.config import InitFrom
from ppax.core.types import ConfigError, TrainState
from ppax.devices.footprint import available_bytes
from ppax.run import checkpoint
from ppax.run import directory as run_dirs
from ppax.run.conditions.best import policy_of
from ppax.run.ending import BEST
from ppax.run.result import TrainedRun
from ppax.storage import state_arrays

LEARNER, CURRENT = "learner.", "current."  # prefixes of names in a checkpoint; the second with self-play
OF_SELF_PLAY = "num_snapshots"  # field that only SelfPlayState has


class Source(NamedTuple):
    """Learner of another run; of self-play, the current learners of the groups."""

    name: str  # run directory, or the class of an object in memory
    arrays: dict[str, np.ndarray]  # by dotted name: "params.value.bias", with groups "prey.params.value.bias"
    run_id: str  # id in about.json; "" for an object in memory
    iteration: int
    env_steps: int


def settings_and_object(given: object) -> tuple[InitFrom, TrainedRun | TrainState | None]:
    """Return the settings of `init_from` as a run file has them, and the object in memory to start from, if any."""
    given = given if isinstance(given, InitFrom) else InitFrom(given)
    run = given.run
    if run is None or isinstance(run, str | Path):
        return dataclasses.replace(given, run=None if run is None else str(run)), None
    if isinstance(run, TrainedRun):
        return dataclasses.replace(given, run=None if run.run_dir is None else str(run.run_dir)), run
    if isinstance(run, TrainState):
        return dataclasses.replace(given, run=None), run
    raise ConfigError(
        f"init_from: must be a run directory, a TrainedRun or a TrainState, alone or in ppax.InitFrom, not a "
        f"{type(run).__name__}"
    )


def read(settings: InitFrom, given: TrainedRun | TrainState | None) -> Source:
    """Read the learner of the run directory `settings.run`, or that of the object `given`.

    Raises ConfigError where there is no such run or policy, CheckpointError where no checkpoint can be loaded.
    """
    if given is not None:
        return _of_object(given, settings.best)
    path = Path(str(settings.run))
    try:
        run_dirs.find(path)
    except ConfigError as error:
        raise ConfigError(f"init_from.run = {str(path)!r}: {error}") from error
    return _of_directory(path, settings.best)


def _of_directory(path: Path, best: bool) -> Source:
    """Learner of the newest intact checkpoint, or of the best policy."""
    run_id, limit = str(run_dirs.read_about(path).get("id", "")), available_bytes()

    def read_one(one: Path) -> Source:
        saved = checkpoint.read_arrays(one, run_id, limit)
        arrays = _of_learner(saved.arrays)
        broken = _not_finite(arrays)
        if broken:
            raise checkpoint.DamagedCheckpoint(f"{one} is not finite: {', '.join(broken)}")
        return Source(str(path), arrays, run_id, saved.manifest["iteration"], int(saved.manifest.get("env_steps", 0)))

    source, skipped = checkpoint.newest(path / (BEST if best else "checkpoints"), read_one)
    for sentence in skipped:
        warnings.warn(f"skipped a damaged checkpoint: {sentence}", stacklevel=2)
    if source is None and best and not skipped:
        raise ConfigError(
            f"init_from.best: {path} has no best policy: train it with --best.metric episode_return, or leave out best"
        )
    if source is None:
        raise checkpoint.CheckpointError(f"init_from: {path} has no checkpoint that can be loaded")
    return source


def _of_object(given: TrainedRun | TrainState, best: bool) -> Source:
    """Learner of an object in memory."""
    name = type(given).__name__
    if isinstance(given, TrainState):
        state = None if best else given
    else:
        name = str(given.run_dir) if given.run_dir is not None else name
        state = given.state if not best else None if given.best is None else given.best.policy
    if state is None:
        raise ConfigError(f"init_from.best: this {type(given).__name__} has no best policy; leave out best")
    if np.ndim(state.iteration):
        raise ConfigError(
            f"init_from: a TrainState of {len(state.iteration)} members of a sweep: must be that of one run; choose a "
            "member, jax.tree.map(lambda x: x[0], states)"
        )
    arrays = _of_learner(state_arrays.to_arrays(policy_of(state)).arrays)
    broken = _not_finite(arrays)
    if broken:
        raise ConfigError(f"init_from: the learner of {name} is not finite: {', '.join(broken)}")
    return Source(name, arrays, "", int(state.iteration), counter.to_int(jax.device_get(state.env_steps)))


def _of_learner(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays of the learner by their names in it; of self-play, those of the current learners."""
    own = {name.removeprefix(LEARNER): x for name, x in arrays.items() if name.startswith(LEARNER)}
    if OF_SELF_PLAY not in own:
        return own
    return {name.removeprefix(CURRENT): x for name, x in own.items() if name.startswith(CURRENT)}


def _not_finite(arrays: dict[str, Any]) -> list[str]:
    """Names of arrays that are not finite; in optimiser states, only NaN counts."""
    return [
        name
        for name, x in arrays.items()
        if jnp.issubdtype(x.dtype, jnp.floating)
        and bool((np.isnan(x) if "opt_state" in name.split(".") else ~np.isfinite(x)).any())
    ]
