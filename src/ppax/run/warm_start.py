"""Warm start: a new run whose learner begins with weights and statistics of another run."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.agents.metrics import NO_STREAMS
from ppax.agents.self_play import pool_of
from ppax.arrays import counter
from ppax.config import InitFrom
from ppax.core.protocols import Agent
from ppax.core.types import OF_LEARNING, ConfigError, LearnerState, PyTree, TrainState
from ppax.devices.footprint import available_bytes
from ppax.envs import Env
from ppax.policy import bundle, hub
from ppax.policy.bundle.reading import read_bundle
from ppax.policy.spec import PolicySpec
from ppax.ppo.normalization import Normalization, is_stats
from ppax.run import checkpoint
from ppax.run import directory as run_dirs
from ppax.run.changed_spaces import change_spaces, require_changeable
from ppax.run.conditions import policy_of
from ppax.run.directory import BEST, CHECKPOINTS
from ppax.run.result import TrainedRun
from ppax.storage import state_arrays
from ppax.storage.paths import to_path
from ppax.training.loop import place_state

__all__ = ["SavedLearner", "WarmStart", "prepare", "settings_and_object"]


def prepare(
    agent: Agent,
    shapes: TrainState,
    settings: InitFrom,
    given: TrainedRun | TrainState | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> WarmStart | None:
    """Return the learner of another run to start from, compared with this agent's; None: no warm start.

    `shapes` are those of this run's training state. `given` is a run in memory that takes the place of `settings.run`.
    `say` is called with a text on what is taken; if arrays are left out, as `partial` allows, the text is given as a
    Python warning instead. Raises ConfigError, with a table of all arrays, where arrays differ and `partial` is off, or
    where none fits.
    """
    groups, _ = _by_group(agent, shapes.learner)
    _check(settings, given, groups)
    if given is None and settings.run is None:
        return None
    require_changeable(agent, settings, groups)
    source, changes, fresh = read_learner(settings, given), "", frozenset[str]()
    settings = _without_missing(settings, source)
    if settings.observations or settings.actions:
        arrays, fresh, changes = change_spaces(agent, groups[""], source.arrays, source.spec, settings)
        source = source._replace(arrays=arrays)
    rows = compare_learners(groups, source.arrays, settings.keep)
    rows = [row._replace(verdict=NEW) if row.path in fresh and row.verdict == ONLY_HERE else row for row in rows]
    warm = WarmStart(source, tuple(rows), settings.best, changes)
    if not warm.rows:
        kept = ", ".join(map('"{}"'.format, settings.keep))
        raise ConfigError(f'init_from.keep = [{kept}]: neither run has such arrays; nearest: ["params"]')
    if not any(row.taken for row in warm.rows) or (warm.left and not settings.partial):
        raise ConfigError(_refusal(warm))
    if warm.left:
        warnings.warn(str(warm), stacklevel=3)
    else:
        say(str(warm))
    return warm


def _check(settings: InitFrom, given: object, learners: Mapping[str, LearnerState]) -> None:
    """Raise ConfigError for settings of a warm start that contradict each other or this run's `learners`, by group.

    `given` is the run in memory to start from; None: there is none.
    """
    if given is None and settings.run is None and settings != InitFrom():
        raise ConfigError("init_from: without a run to start from, keep, best and partial have no effect; set run")
    if not settings.keep:
        raise ConfigError('init_from.keep = []: takes nothing; nearest: ["params"]')
    for field, missing in weights_missing(learners, settings.keep).items():
        has = "may have" if field == "extensions" else "has"
        raise ConfigError(
            f"init_from.keep: {field} {has} moments of the weights: add {' and '.join(missing)}, or leave out {field}"
        )


def _without_missing(settings: InitFrom, source: SavedLearner) -> InitFrom:
    """Return the settings with `keep` reduced to the fields of a learner that `source` has, if it is a bundle.

    A bundle lacks `opt_state`, `extensions` and `reward_stats`. Raises ConfigError for the first two, which are not in
    the default of `keep`, so that the user has asked for them; and if no field is left. A run has all fields: the
    settings are unchanged.
    """
    if not source.bundle:
        return settings
    kept = tuple(field for field in settings.keep if field not in OF_LEARNING)
    lacking = [field for field in settings.keep if field in OF_LEARNING and (field != "reward_stats" or not kept)]
    if lacking:
        raise ConfigError(
            f"init_from.keep: {', '.join(lacking)}: {source.name} is a bundle, which holds what acting needs: params, "
            "obs_stats and critic; start from the run directory, or leave it out"
        )
    return dataclasses.replace(settings, keep=kept)


def _refusal(warm: WarmStart) -> str:
    """Return the error message for a warm start whose arrays do not fit."""
    return (
        f"init_from {warm.source.name}: {len(warm.left)} of {len(warm.rows)} arrays do not fit this agent:\n"
        f"{table_of(warm.rows)}\n"
        "Give this run the network, normalisation and critic of that one (its run file has them), or leave the field "
        "out of init_from.keep, or take the arrays that are the same: --init-from.partial, in Python "
        "ppax.InitFrom(run, partial=True)"
    )


class WarmStart(NamedTuple):
    """Learner of another run to start from, and its comparison, array by array, with the learner of the new run."""

    source: SavedLearner
    rows: tuple[ArrayRow, ...]
    best: bool
    changes: str = ""  # of observations and actions, as text

    def apply(self, agent: Agent, env: Env, state: TrainState) -> TrainState:
        """Return `state`, a run's state before its first iteration, with the arrays taken from the source run.

        The source run is that of `init_from`. With self-play the pool of past selves starts with snapshots of the
        resulting learners. Raises ConfigError where statistics of the source contradict the options of normalisation.
        """
        taken = {row.path: jnp.asarray(self.source.arrays[row.path]) for row in self.rows if row.taken}

        def one(group: str, learner: LearnerState) -> LearnerState:
            started: LearnerState = jax.tree_util.tree_map_with_path(
                lambda path, leaf: taken.get(dotted_name(group, dotted(path)), leaf), learner
            )
            return started

        groups, structure = _by_group(agent, state.learner)
        names = [name for name, _ in agent.requires.sizes] or [""]
        for name, (ppo, _) in zip(names, agent.learners(NO_STREAMS), strict=True):
            if said := _contradiction(groups[name], name, ppo.normalization, taken):
                raise ConfigError(f"init_from {self.source.name}: {said}")
        learner = jax.tree.unflatten(structure, [one(group, own) for group, own in groups.items()])
        if agent.pool is not None:
            learner = state.learner._replace(current=learner, pool=pool_of(learner, agent.pool.size))
        return place_state(agent, env, dataclasses.replace(state, learner=learner))

    @property
    def left(self) -> list[ArrayRow]:
        """Comparisons of the arrays that are not taken from the learner of the source run (`init_from`)."""
        return [row for row in self.rows if not row.taken and row.verdict != NEW]

    def __str__(self) -> str:
        count = sum(row.taken for row in self.rows)
        which = f"{'best policy, ' if self.best else ''}iteration {self.source.iteration:,}"
        which = "bundle, without statistics of rewards" if self.source.bundle else which
        text = f"init_from {self.source.name} ({which}): {count} arrays taken"
        text += f"; {self.changes}" if self.changes else ""
        return f"{text}, {len(self.left)} not:\n{table_of(self.left)}" if self.left else text

    def record(self) -> dict[str, Any]:
        """Return plain data for about.json: the run that the learner comes from, and the arrays taken and not taken."""
        source = self.source
        lists = {
            "taken": [row.path for row in self.rows if row.taken],
            "fresh": [row.path for row in self.rows if not row.taken and row.verdict != ONLY_THERE],
            "only_there": [row.path for row in self.left if row.verdict == ONLY_THERE],
        }
        facts = {"run": source.name, "id": source.run_id, "iteration": source.iteration, "env_steps": source.env_steps}
        changes = {"changes": self.changes} if self.changes else {}
        return {"init_from": facts | {"best": self.best} | changes | lists}


def _contradiction(
    own: LearnerState, group: str, chosen: Normalization, taken: Mapping[str, Array | np.ndarray]
) -> str:
    """Return how the statistics among the arrays `taken` contradict `chosen`, this run's normalisation; "" if not.

    `own` is this run's learner of the group before it has learned, and has the statistics that `chosen` gives.
    """
    fields = (("obs_stats", "mean and std", chosen.mean is not None), ("reward_stats", "reward_std", chosen.reward_std))
    for field, options, given in fields:
        leaves = jax.tree_util.tree_leaves_with_path(getattr(own, field))
        paths = {dotted(path): dotted_name(group, field, dotted(path)) for path, _ in leaves}
        pairs = {
            name: (np.asarray(here), np.asarray(taken[paths[name]]))
            for name, here in ((dotted(path), x) for path, x in leaves)
            if paths[name] in taken
        }
        equal = {name: np.array_equal(*pair) for name, pair in pairs.items()}
        last = {name: name.rpartition(".")[2] for name in pairs}
        leave = f"leave {field} out of init_from.keep"
        if not all(equal[name] for name in pairs if last[name] == "kept"):
            return f"its normalization.skip leaves out other entries of the observation; give the same, or {leave}"
        moments = all(equal[name] for name in pairs if last[name] not in ("kept", "count"))
        if given and not moments:
            return f"its statistics are not those of normalization.{options}, which they would replace; {leave}"
        counts = [there for name, (_, there) in pairs.items() if last[name] == "count"]
        if not given and not moments and counts and not any(count.any() for count in counts):
            return (
                f"its statistics were given (normalization.{options}), and running ones would replace them at once; "
                f"give the same, or {leave}"
            )
    return ""


def _by_group(agent: Agent, learner: Any) -> tuple[dict[str, LearnerState], Any]:
    """Return an agent's learners by group (by "" without groups), and the JAX treedef of `learner` with them as leaves.

    `jax.tree.unflatten` with this treedef and a list of learners gives a learner of the agent again. With self-play,
    which also has a pool of past selves, only the current learners are returned, and the treedef is of these.
    """
    current: PyTree = learner if agent.pool is None else learner.current
    nodes, structure = jax.tree_util.tree_flatten_with_path(current, is_leaf=lambda x: isinstance(x, LearnerState))
    return {dotted(path): node for path, node in nodes}, structure


def settings_and_object(given: object) -> tuple[InitFrom, TrainedRun | TrainState | None]:
    """Return the settings of a warm start as a run file has them, and the run in memory to start from (None: no such).

    `given` is what `fit` takes as `init_from`; ConfigError for other types.
    """
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


class SavedLearner(NamedTuple):
    """Learner of another run, as arrays; with self-play the current learner, without the pool of past selves."""

    name: str  # run directory, or the class of an object in memory
    arrays: dict[str, np.ndarray]  # by dotted name: "params.value.bias", with groups "prey.params.value.bias"
    run_id: str  # id in about.json; "" for an object in memory
    iteration: int
    env_steps: int
    spec: PolicySpec | None = None  # spaces and configuration of the run; None for a TrainState
    bundle: bool = False  # a bundle, which has only what acting needs


def read_learner(settings: InitFrom, given: TrainedRun | TrainState | None) -> SavedLearner:
    """Return the learner of the run directory or bundle `settings.run`, or of `given`, a run in memory, if not None.

    A bundle may be on the Hugging Face Hub, "hf://OWNER/NAME", from where it is downloaded. Raises ConfigError where
    there is no such run or policy, CheckpointError where no checkpoint can be loaded.
    """
    if given is not None:
        return _of_object(given, settings.best)
    name = str(settings.run)
    if name.startswith(hub.PREFIX):
        return _of_bundle(hub.fetch(name), settings.best)._replace(name=name)
    path = to_path(name, "init_from.run")
    if bundle.is_bundle(path):
        return _of_bundle(path, settings.best)
    try:
        run_dirs.read_run_config(path)
    except ConfigError as error:
        raise ConfigError(f"init_from.run = {str(path)!r}: {error}") from error
    source = _of_directory(path, settings.best)
    return source._replace(spec=_spec(path)) if settings.observations else source


def _of_bundle(path: Path, best: bool) -> SavedLearner:
    """Return the learner of a bundle: weights and statistics of observations, without what only learning reads.

    Raises ConfigError if `best` is True: a bundle has a single policy.
    """
    if best:
        raise ConfigError(f"init_from.best: {path} is a bundle, of one policy; leave out best")
    policy = read_bundle(path)
    return SavedLearner(str(path), state_arrays.named_leaves(policy.learner), "", 0, 0, policy.spec, bundle=True)


def _spec(path: Path) -> PolicySpec:
    """Return spaces and configuration of the run in the directory `path`; ConfigError where they are damaged."""
    data = run_dirs.read_policy(path) | {"config": run_dirs.read_run_config(path)}
    return PolicySpec.from_data(data, str(path / run_dirs.POLICY))


def _of_directory(path: Path, best: bool) -> SavedLearner:
    """Return the learner of a run directory: of its newest intact checkpoint, or of its best policy.

    Raises ConfigError or CheckpointError where there is none.
    """
    run_id, limit = str(run_dirs.read_about(path).get("id", "")), available_bytes()

    def read_one(one: Path) -> SavedLearner:
        saved = checkpoint.read_arrays(one, run_id, limit)
        arrays = checkpoint.learner_arrays(saved.arrays)
        broken = checkpoint.arrays_not_finite(arrays)
        if broken:
            raise checkpoint.DamagedCheckpoint(f"{one} is not finite: {', '.join(broken)}")
        return SavedLearner(
            str(path), arrays, run_id, saved.manifest["iteration"], int(saved.manifest.get("env_steps", 0))
        )

    source, skipped = checkpoint.newest(path / (BEST if best else CHECKPOINTS), read_one)
    for sentence in skipped:
        warnings.warn(f"skipped a damaged checkpoint: {sentence}", stacklevel=2)
    if source is None and best and not skipped:
        raise ConfigError(
            f"init_from.best: {path} has no best policy: train it with --best.metric episode_return, or leave out best"
        )
    if source is None:
        raise checkpoint.CheckpointError(f"init_from: {path} has no checkpoint that can be loaded")
    return source


def _of_object(given: TrainedRun | TrainState, best: bool) -> SavedLearner:
    """Return the learner of a run in memory, or of its best policy; ConfigError if there is none that is finite."""
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
    arrays = checkpoint.learner_arrays(state_arrays.to_arrays(policy_of(state)).arrays)
    broken = checkpoint.arrays_not_finite(arrays)
    if broken:
        raise ConfigError(f"init_from: the learner of {name} is not finite: {', '.join(broken)}")
    env_steps, spec = counter.to_int(jax.device_get(state.env_steps)), None
    if isinstance(given, TrainedRun):
        spec = given.policy().spec
    return SavedLearner(name, arrays, "", int(state.iteration), env_steps, spec)


SAME, OTHER, ONLY_HERE, ONLY_THERE, BESIDE = "same", "differs", "only here", "only there", "beside one that differs"
NEW = "new"  # belongs to a new entry of the observation
# Fields with an optimiser's moments, and the fields of the weights that these are of; an extension may have some (PPG)
WEIGHTS = {"opt_state": ("params", "extensions"), "extensions": ("params",)}
ROWS = 40  # largest number of rows in a message
Names = dict[str, Any]


class ArrayRow(NamedTuple):
    """Comparison of one array of this run's learner with the array of the same name in another run's learner.

    `here` and `there` are dtype and shape in the two runs as text, "-" if a run has no such array; `verdict` says
    whether they agree.
    """

    path: str
    here: str  # dtype and shape in this run; "-" if it has no such array
    there: str  # the same in the other run
    verdict: str

    @property
    def taken(self) -> bool:
        """Return whether this run starts with the other run's array."""
        return self.verdict == SAME


def compare_learners(
    learners: Mapping[str, LearnerState], there: Mapping[str, np.ndarray], keep: Collection[str]
) -> list[ArrayRow]:
    """Return the comparison, array by array, of this run's learners with the arrays `there` of another run's.

    `learners` are by group ("" without groups), and may consist of shapes. Only their fields named in `keep` are
    compared.

    Some arrays are taken together or not at all: those of one set of statistics (the mean of one run with the variance
    of another would be neither's), of each extension, and of an optimiser's state. Arrays of an extension or an
    optimiser are taken only with all weights that they belong to. Random keys are not compared: each run has its own.
    """
    rows: list[ArrayRow] = []
    known: list[str] = []  # names of fields, of all learners
    for group, learner in learners.items():
        known += [dotted_name(group, field) for field in LearnerState._fields]
        left = {field for field in _with_weights({group: learner}) if field not in keep}
        kept = [field for field in LearnerState._fields if field in keep]
        # weights first: moments depend on them, those of the optimiser on the weights of extensions, too
        for field in sorted(kept, key=lambda field: len(WEIGHTS.get(field, ()))):
            usable, prefix = left.isdisjoint(WEIGHTS.get(field, ())), dotted_name(group, field)
            rows_of = _of_extensions if field == "extensions" else partial(_of_field, field)
            own = list(rows_of(prefix, getattr(learner, field), there, usable))
            rows += own
            if not all(row.taken for row in own if field != "extensions" or _trained(row.path, prefix)):
                left.add(field)
    others = set(LearnerState._fields) - set(keep)
    unknown = [name for name in sorted(there) if not any(_below(name, prefix) for prefix in known)]
    strange = [name for name in unknown if not others & set(name.split("."))]
    return rows + [ArrayRow(name, "-", array_text(there[name]), ONLY_THERE) for name in strange]


def dotted_name(*names: str) -> str:
    """Return the names that are not empty, joined by dots."""
    return ".".join(filter(None, names))


def dotted(path: Any) -> str:
    """Return the path of a leaf in a JAX tree as text, with dots."""
    return jax.tree_util.keystr(path, simple=True, separator=".")


def array_text(x: Any) -> str:
    """Return type and shape of an array as text, such as "float32[64, 2]"."""
    return f"{np.dtype(x.dtype).name}{list(x.shape)}"


def table_of(rows: Collection[ArrayRow]) -> str:
    """Return comparisons of arrays as a table in text, those that differ first, and at most ROWS of them."""
    ordered = sorted(rows, key=lambda row: row.taken)
    shown = [ArrayRow("array", "here", "there", ""), *ordered[:ROWS]]
    widths = [max(len(row[i]) for row in shown) for i in range(3)]
    lines = ["  " + "  ".join(x.ljust(n) for x, n in zip(row, [*widths, 0], strict=True)).rstrip() for row in shown]
    return "\n".join([*lines, *([f"  and {len(ordered) - ROWS} more"] if len(ordered) > ROWS else [])])


def _with_weights(learners: Mapping[str, LearnerState]) -> set[str]:
    """Return the names of a learner's fields that have weights which the optimiser trains.

    They are "params" and, if an extension has parameters, "extensions".
    """
    trains = any(jax.tree.leaves(one.params) for own in learners.values() for one in own.extensions.values())
    return {"params", "extensions"} if trains else {"params"}


def weights_missing(learners: Mapping[str, LearnerState], keep: Collection[str]) -> dict[str, list[str]]:
    """Return which fields with weights must be added to `keep`, since it has a field with their optimiser's moments.

    Fields are those of a learner, and `keep` names those that a warm start takes. The result is {field with moments:
    missing fields with the weights of these moments}: {"opt_state": ["params"]} if `keep` has "opt_state" without
    "params", as moments are useless without their weights. {} if nothing is missing.
    """
    lacking = _with_weights(learners) - set(keep)
    missing = {field: [x for x in weights if x in lacking] for field, weights in WEIGHTS.items() if field in keep}
    return {field: names for field, names in missing.items() if names}


def _trained(path: str, prefix: str) -> bool:
    """Return True if the array at `path` is of an extension's parameters, which the optimiser trains.

    `prefix` is the common beginning of the paths of all extensions.
    """
    return path.removeprefix(f"{prefix}.").split(".")[1:2] == ["params"]


def _of_extensions(
    prefix: str, states: Mapping[str, PyTree], there: Mapping[str, np.ndarray], usable: bool
) -> Iterator[ArrayRow]:
    """Yield a comparison for each array of a learner's extensions: whether a warm start takes it from the source run.

    `states` are the extensions' states by name, and `there` the arrays of the source run (`init_from`) by path. The
    arrays of an extension are taken over together or not at all, and never if `usable` is False. In `there` the paths
    of all extensions begin with `prefix`.
    """
    for name, state in states.items():
        yield from _of_field("extension", dotted_name(prefix, name), state, there, usable)
    others = (
        x for x in sorted(there) if _below(x, prefix) and not any(_below(x, f"{prefix}.{name}") for name in states)
    )
    yield from (ArrayRow(name, "-", array_text(there[name]), ONLY_THERE) for name in others)


def _of_field(
    field: str, prefix: str, tree: PyTree, there: Mapping[str, np.ndarray], usable: bool
) -> Iterator[ArrayRow]:
    """Yield the comparisons of `tree`, a field of a learner or one extension, with the arrays `there` below `prefix`.

    If `usable` is False, the comparisons say that no array is taken.
    """
    units = list(_units(prefix, tree, field))
    expected = {dotted_name(prefix, dotted(path)) for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]}
    extra = [name for name in sorted(there) if _below(name, prefix) and name not in expected]
    whole = field not in ("params", "obs_stats")
    for unit in units:
        verdicts = {name: _verdict(leaf, there.get(name)) for name, leaf in unit.items()}
        fits = usable and set(verdicts.values()) == {SAME} and not (whole and extra)
        for name, leaf in unit.items():
            verdict = BESIDE if verdicts[name] == SAME and not fits else verdicts[name]
            yield ArrayRow(name, array_text(leaf), array_text(there[name]) if name in there else "-", verdict)
    for name in extra:
        yield ArrayRow(name, "-", array_text(there[name]), ONLY_THERE)


def _units(prefix: str, tree: PyTree, field: str) -> Iterator[Names]:
    """Yield dicts of those arrays, by name, that are taken together or not at all.

    Each weight has a dict of its own, and so has each set of statistics, and any other field as a whole.

    `tree` is the field of a learner with the name `field`, and `prefix` the beginning of its arrays' names.
    """
    is_leaf = {"params": None, "obs_stats": is_stats}.get(field, lambda _: True)
    for path, node in jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_leaf)[0]:
        inner, _ = jax.tree_util.tree_flatten_with_path(node)
        unit = {dotted_name(prefix, dotted(path), dotted(within)): leaf for within, leaf in inner if not _is_key(leaf)}
        if unit:
            yield unit


def _verdict(here: Any, there: np.ndarray | None) -> str:
    if there is None:
        return ONLY_HERE
    return SAME if here.shape == there.shape and here.dtype == there.dtype else OTHER


def _is_key(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jax.dtypes.prng_key))


def _below(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")
