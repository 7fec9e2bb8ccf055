"""`ppax.load` and `ppax.checkpoints`: load the policies that a run directory holds, and list them."""

from __future__ import annotations

import contextlib
import math
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ppax import config
from ppax.config import Run
from ppax.core import imports
from ppax.core.options import flatten, require_whole
from ppax.core.protocols import Agent, Row
from ppax.core.types import OF_LEARNING, ConfigError, PyTree, TrainState
from ppax.devices.footprint import available_bytes
from ppax.envs import Env, for_evaluation
from ppax.loggers.files import rows_until
from ppax.policy import bundle
from ppax.policy.actor import acting_agent
from ppax.policy.bundle.reading import read_bundle
from ppax.policy.hub import PREFIX, fetch
from ppax.policy.policy import Policy, Source
from ppax.policy.spec import PolicySpec, spec_of
from ppax.run import checkpoint, python_objects
from ppax.run import directory as run_dirs
from ppax.run.conditions import policy_of
from ppax.run.directory import BEST, CHECKPOINTS, ROWS
from ppax.run.monitor import load_best
from ppax.run.records import CURVES, RETURN
from ppax.run.restore import load_state, state_shapes
from ppax.run.result import TrainedRun
from ppax.storage import state_arrays
from ppax.storage.paths import to_path


def load(
    source: str | Path,
    best: bool = False,
    *,
    step: int | None = None,
    agent: Agent | None = None,
    env: Env | None = None,
) -> Policy:
    """Return the policy of the run directory or bundle `source`: the newest, or the best one by `best.metric`.

    A bundle is a file that holds a policy alone; "hf://OWNER/NAME" is the bundle in a repository of the Hugging Face
    Hub (extra `hub`), "@REVISION" behind it a branch, tag or commit. `step` chooses the checkpoint with this number of
    environment steps instead; `ppax.checkpoints` lists them. Without `env` the spaces come from the run directory, and
    the environment's library need not be installed. A run made from Python objects needs them again, as `agent`;
    ConfigError names them. Nothing in the directory is executed; of code that it names by import path only networks are
    needed, whose packages you must trust (`ppax.trust`).
    """
    path = local_path(source)
    if best and step is not None:
        raise ConfigError(f"best = True and step = {step}: choose one of them")
    if path.is_dir():
        return _from_run(path, best, step, agent, env)
    if bundle.is_bundle(path):
        if best or step is not None or env is not None:
            raise ConfigError(f"{path} is a bundle, of one policy and its spaces: leave out best, step and env")
        return read_bundle(path, agent)
    raise ConfigError(
        f"{path}: must be a run directory, as fit(..., run_dir=PATH) and `ppax train` write it, or a bundle"
    )


def local_path(source: str | Path) -> Path:
    """Return the path of the run directory or bundle `source`; a bundle on the Hugging Face Hub is downloaded."""
    return fetch(source) if isinstance(source, str) and source.startswith(PREFIX) else to_path(source, "source")


def env_of_bundle(path: Path, policy: Policy, call: str = python_objects.EVALUATE) -> Env:
    """Return the environment of the run that trained the policy of the bundle `path`, as its evaluations use it.

    Raises ConfigError, with the Python `call` to use instead, where the bundle cannot name the environment, and
    Untrusted where the environment needs code that the user does not trust.
    """
    run_config = dict(policy.spec.config)
    if run_config.get("env") in (None, "", "own"):  # exported from a run without a directory
        run_config = {config.OBJECTS: ["env"]} | run_config
    python_objects.require_passed(run_config, True, None, str(path), call)
    run_config = python_objects.recorded(run_config)
    return for_evaluation(config.build_env(run_config), config.settings(run_config).eval.env_params)


def _from_run(path: Path, best: bool, step: int | None, agent: Agent | None, env: Env | None) -> Policy:
    checkpoint.require_format(path)
    run_config = run_dirs.read_run_config(path)
    policy = run_dirs.read_policy(path) | {"config": run_config} if env is None else {}
    spaces = PolicySpec.from_data(policy, str(path / run_dirs.POLICY)) if env is None else env
    python_objects.require_passed(
        python_objects.to_act(run_config), agent, spaces, str(path), "policy = ppax.load({where!r}, {arguments})"
    )
    buildable = python_objects.without_learning(python_objects.recorded(run_config))
    agent = agent or config.build_agent(buildable, spaces)
    if isinstance(spaces, PolicySpec):
        spec = spaces
    else:
        _, _, mask = jax.eval_shape(spaces.reset, jax.random.key(0))
        spec = spec_of(agent, spaces, mask, run_config)
    learner, source = _acting_learner(path, best, step, agent, spec)
    return Policy(agent, learner, spec, source)


def _acting_learner(path: Path, best: bool, step: int | None, agent: Any, spec: PolicySpec) -> tuple[PyTree, Source]:
    """Return the part of a learner that acting needs, and the checkpoint that it comes from.

    The checkpoint is the one after `step` environment steps; if `step` is None, the best policy with `best`, and the
    newest intact checkpoint without. Raises ConfigError or CheckpointError where there is none.
    """
    base = agent if agent.pool is None else agent.agent
    init = jax.eval_shape(lambda key: base.init(spec.observation_space, key), jax.random.key(0))
    like, run_id, room = acting_agent(base, init).learner, run_dirs.read_about(path).get("id"), available_bytes()

    def read(one: Path) -> tuple[PyTree, Source]:
        saved = checkpoint.read_arrays(one, run_id, room)
        steps = saved.manifest.get("env_steps")
        learner = acting_arrays(one, like, saved.arrays)
        return learner, Source(path, saved.manifest["iteration"], steps if type(steps) is int else 0)

    if step is not None:
        return read(find_step(path, step).path)
    loaded, skipped = checkpoint.newest(path / (BEST if best else CHECKPOINTS), read)
    for sentence in skipped:
        warnings.warn(f"skipped a damaged checkpoint: {sentence}", stacklevel=4)
    if loaded is not None:
        return loaded
    if best and not skipped:
        raise ConfigError(f"{path} has no best policy: train with --best.metric episode_return, or leave out best")
    raise checkpoint.CheckpointError(f"{path} has no checkpoint that can be loaded")


def acting_arrays(path: Path, like: PyTree, arrays: dict[str, np.ndarray]) -> PyTree:
    """Return the part of a learner that acting reads, from the arrays of a checkpoint; `like` has its structure.

    Raises CheckpointError where the arrays do not fit `like`, DamagedCheckpoint where they are not finite. `path` is
    the checkpoint's path, for messages.
    """
    place = 1 if isinstance(like, dict) else 0  # of the field in a name, behind that of the group
    learner = checkpoint.learner_arrays(arrays)
    own = {name: x for name, x in learner.items() if name.split(".")[place] not in OF_LEARNING}
    expected = state_arrays.named_leaves(like)
    problems = state_arrays.array_differences(expected, own)
    if problems:
        raise checkpoint.CheckpointError(f"{path} does not fit this agent:\n  " + "\n  ".join(problems))
    broken = checkpoint.arrays_not_finite(own)
    if broken:
        raise checkpoint.DamagedCheckpoint(f"{path} is not finite: {', '.join(broken)}")
    return jax.tree.unflatten(jax.tree.structure(like), [own[name] for name in expected])


def load_chosen(run_dir: Path, agent: Agent, env: Env, run: Run, best: bool, step: int | None) -> TrainState:
    """Return the newest training state of a run; with `best` that of its best policy, with `step` that at this step.

    `step` counts environment steps. Raises ConfigError where there is no such state. The state of the best policy has
    no environments and random keys.
    """
    if best and step is not None:
        raise ConfigError(f"--best and --step {step}: choose one of them")
    run_id = run_dirs.read_about(run_dir).get("id")
    if best:
        kept = load_best(run_dir, state_shapes(agent, env, run), run_id)
        if kept is None:
            raise ConfigError(
                f"{run_dir} has no best policy: train with --best.metric episode_return, or leave out --best"
            )
        return kept.policy
    if step is None:
        return load_state(run_dir, agent, env, run, fresh=False)
    saved, shapes = find_step(run_dir, step), state_shapes(agent, env, run)
    return checkpoint.load(saved.path, policy_of(shapes) if saved.best else shapes, run_id)


class SavedState(NamedTuple):
    """Checkpoint of a run, or its best policy, with its step and score, as `ppax.checkpoints` lists it.

    `score` is the value of `metric` in the log row of the checkpoint's iteration. `metric` is the run's option
    `best.metric` if that names a metric; else the first of eval_return, episode_return and reward_mean that the run's
    log rows have.
    """

    step: int  # environment steps done, valid ones of all agents; `ppax.load(run, step=...)` takes it
    iteration: int
    score: float  # `metric` in the log row of this checkpoint; NaN if the row has no value
    metric: str  # best.metric, if it is a name; else the first of eval_return, episode_return, reward_mean that it has
    best: bool  # the best policy, which `resume` cannot continue from
    path: Path

    def __repr__(self) -> str:
        kind = ", best" if self.best else ""
        return f"SavedState(step {self.step:,}, iteration {self.iteration:,}, {self.metric} {self.score:.4g}{kind})"


def checkpoints(run: str | Path | TrainedRun) -> list[SavedState]:
    """Return the checkpoints of a run directory (`log.keep` of them) and its best policy, in the order of steps.

    Damaged ones are left out. Raises ConfigError where there is no run directory.
    """
    path = run.run_dir if isinstance(run, TrainedRun) else to_path(run, "run")
    if path is None:
        raise ConfigError("run: it has no directory; train with ppax.fit(..., run_dir='runs/mine')")
    metric = dict(flatten(run_dirs.read_run_config(path))).get("best.metric", "none")
    found = [(one, name == BEST) for name in (CHECKPOINTS, BEST) for one in checkpoint.list_checkpoints(path / name)]
    iterations, rows, known = {int(one.name) for one, _ in found}, dict[int, Row](), set[str]()
    for row in rows_until(path / ROWS, 2**63):
        known |= {name for name in CURVES if row.get(name) is not None}
        if row["iteration"] in iterations:
            rows[row["iteration"]] = row
    if not isinstance(metric, str) or metric == "none" or imports.is_path(metric):
        metric = next((name for name in CURVES if name in known), RETURN)
    saved = []
    for one, best in found:
        with contextlib.suppress(checkpoint.DamagedCheckpoint):
            saved.append(_saved(one, rows, metric, best))
    return sorted(saved, key=lambda one: (one.iteration, one.best))


def _saved(path: Path, rows: dict[int, Row], metric: str, best: bool) -> SavedState:
    manifest = checkpoint.read_manifest(path)
    value: Any = rows.get(manifest["iteration"], {}).get(metric)
    steps = manifest.get("env_steps")
    if type(steps) is not int:
        raise checkpoint.DamagedCheckpoint(f"{path}: env_steps = {steps!r}: must be a whole number")
    return SavedState(steps, manifest["iteration"], math.nan if value is None else float(value), metric, best, path)


def find_step(run_dir: Path, step: int) -> SavedState:
    """Return the checkpoint or best policy of a run after `step` environment steps.

    Raises ConfigError, with the nearest step, if there is none.
    """
    require_whole(step, "step", low=0)
    saved = checkpoints(run_dir)
    found = [one for one in saved if one.step == step]
    if found:
        return found[0]
    listed = ", ".join(f"{one.step}" for one in saved[-10:])
    nearest = min(saved, key=lambda one: abs(one.step - step)).step if saved else None
    raise ConfigError(
        f"step = {step}: {run_dir} has no checkpoint of this step; "
        + (f"nearest valid value: {nearest}, the last ones are {listed}" if saved else "it has none at all")
    )
