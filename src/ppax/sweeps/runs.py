"""Functions `sweep_runs` and `resume_sweep`: train the members (runs) of a sweep together, and rank its settings."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ppax import config
from ppax.agents.precision import machine_dtype
from ppax.config import Built
from ppax.core import imports
from ppax.core.options import Config
from ppax.core.protocols import Search
from ppax.core.types import ConfigError
from ppax.core.unknown_names import refusing_unknown
from ppax.devices import clusters, processes
from ppax.devices.footprint import footprint
from ppax.devices.layout import AUTO, WHERE_SAFE
from ppax.run.directory import OF_SWEEP, RESULT, RunDirectory, require_named
from ppax.run.dry_run import Demand, commented, demand_of, require_new_directory
from ppax.run.evaluations import Evaluations
from ppax.run.monitor import RunMonitor
from ppax.run.restore import planned_iterations
from ppax.run.result import Interrupted
from ppax.run.signals import ON_DISK, stop_on_signals
from ppax.run.warm_start import prepare
from ppax.storage.cache import kept_programs
from ppax.storage.paths import absolute, quoted, relative
from ppax.sweeps import directory, pictures, plan
from ppax.sweeps import search as searches
from ppax.sweeps.decisions import Searching, checked_total, search_in_iterations
from ppax.sweeps.directory import Recorded
from ppax.sweeps.member import end_of, is_complete
from ppax.sweeps.packing import Pack, packed, planned_of
from ppax.sweeps.placing import driver
from ppax.sweeps.placing import settings as placing
from ppax.sweeps.placing.settings import Cluster
from ppax.sweeps.plan import Distribution, Plan, Target, config_of
from ppax.sweeps.progress import Progress
from ppax.sweeps.results import SweepResult, conclude, conclude_study
from ppax.sweeps.search import Optuna
from ppax.sweeps.training import Programs, Session, SweepStopped

DTYPE = "agent.compute_dtype"  # end of the path of the option


@refusing_unknown
def sweep_runs(
    target: Target,
    values: Mapping[str, Sequence[Any] | Distribution | Mapping[str, Any]] | None = None,
    *,
    seeds: int | str | Sequence[int] | None = None,
    draws: int | None = None,
    draw_seed: int | None = None,
    search: Search | Config | None = None,
    run_dir: str | Path | None = None,
    overwrite: bool = False,
    ray: str | Mapping[str, Any] | None = None,
) -> SweepResult:
    """Train many settings and seeds of a run together, evaluate each, and return the settings, ranked by their scores.

    `target` is what `ppax train` takes (an environment, a preset, a run file), a configuration, or what `ppax.build`
    returns. `values` are lists or distributions by the dotted path of an option of agent, environment or run, as
    `{"agent.learning_rate": [1e-4, 3e-4], "agent.gamma": ppax.sweeps.Uniform(0.9, 0.999)}`. Settings are all
    combinations of the lists' values; with distributions, each combination is trained with the same `draws` joint draws
    of them. Each setting is trained with all `seeds`: a number of seeds, a list, or a range as "1000-1009". `draw_seed`
    is the random seed of the draws. If a run file has a table `[sweep]`, its entries are used, too, except those that
    these arguments replace; `search` replaces the table `[search]`.

    Each run is a member of the sweep. Members that differ in numbers alone share a compiled program; members on the
    host train one after the other. If an iteration of a member is not finite, this member alone is dropped. `search`
    decides over the members while they train, as `ppax.sweeps.Halving()` or PBT; it may also be a table of options.

    Each member has an ordinary run directory in `run_dir`/members (default: a new one in sweeps/), for `ppax.load`,
    `report` and `resume`. A signal saves all members and raises Interrupted; `resume_sweep` continues, with the same
    bits as an uninterrupted sweep. Where `run_dir` holds a trained run or sweep already, `overwrite` renames it, and a
    warning says how; without it, ConfigError. Raises ConfigError, too, before anything compiles, for options that are
    invalid or contradict each other.

    With `ray`, the address of a Ray cluster ("auto": $RAY_ADDRESS, or one on this machine) or a table of options
    (`address`, `cpus` and `gpus` of each program, `retries`), the programs train on its machines; ProcessLost where a
    program was lost more often than `retries`.
    """
    run_config, of_ray = placing.split_cluster(config_of(target))
    run_config, table = plan.split_sweep(run_config)
    given = {"seeds": seeds, "draws": draws, "draw_seed": draw_seed, config.SEARCH: search}
    table = table | dict(values or {}) | {name: value for name, value in given.items() if value is not None}
    file = config.file_of(str(target)) if isinstance(target, str | Path) else None
    named = _of_python(target, run_config, values or {}, search)
    with imports.trusting(named, within=[] if file is None else [file.parent]):
        cluster = placing.of_file(of_ray) if ray is None else placing.read(ray)
        run_config = config.resolve(config.completed(run_config).config)
        return start(run_config, plan.read(table), run_dir, cluster=cluster, overwrite=overwrite)


def _of_python(target: Target, run_config: Config, values: Mapping[str, Any], search: Any) -> set[str]:
    """Return the file paths and network addresses that the user has written in the arguments of `sweep_runs`.

    They are trusted: the sweep may open these files and contact these servers. The configuration in `target` is
    searched only if `ppax.build` has returned it, as a file that `target` names may be a stranger's.
    """
    found = config.outside(run_config) if isinstance(target, Built) else {}
    found |= config.outside_values(values, config.options(run_config))
    found |= searches.outside_of(search) if isinstance(search, dict) else {}
    return {one.name for one in found.values()}


def start(
    run_config: Config,
    sweep_plan: Plan,
    run_dir: str | Path | None = None,
    say: Callable[[str], None] = lambda text: None,
    cluster: Cluster | None = None,
    overwrite: bool = False,
) -> SweepResult:
    """Begin a sweep over a resolved configuration in a new directory, train it, and return its result.

    `say` is called with lines for the user. `run_dir` and `overwrite` are as in `sweep_runs`, and `cluster` is what
    `ray` is there.
    """
    require_named(run_dir, overwrite)
    recorded, packs = _checked(run_config, sweep_plan, cluster)
    with ExitStack() as stack:
        if cluster is not None:  # before there is a directory: the cluster may not answer
            stack.enter_context(clusters.connected(cluster.address))
        path = directory.new(run_config, run_dir)
        say(f"{_described(recorded, packs)}; {relative(path)}")
        stack.enter_context(RunDirectory.vacant(path, overwrite, OF_SWEEP))
        directory.create_sweep(path, recorded)
        return _train(path, recorded, packs, cluster)


class Planned(NamedTuple):
    """Sweep whose settings are checked: what sweep.toml and sweep.json will record, and its members (runs) in packs.

    A pack is the members that one compiled program can train together.
    """

    recorded: Recorded
    packs: list[Pack]  # of a study those of one setting that it might propose


def _checked(run_config: Config, sweep_plan: Plan, cluster: Cluster | None) -> Planned:
    """Return a sweep over a resolved configuration after checks, with agent and environment of each member (run) built.

    Raises ConfigError for options that are invalid or contradict each other, and for a search that does not suit the
    sweep or the cluster.
    """
    _require_one_process()
    placing.check(cluster, sweep_plan.search)
    run_config = _decided(run_config, sweep_plan)
    members = plan.members_of(run_config, sweep_plan)
    packs = packed(members)
    _check_metrics_and_starts(packs)
    sweep_plan = search_in_iterations(sweep_plan, packs)
    checked_total(sweep_plan, packs)
    recorded = Recorded(run_config, sweep_plan, members, ())
    if isinstance(sweep_plan.search, Optuna):
        recorded = recorded._replace(members=())  # its settings are proposed in rounds
    return Planned(recorded, packs)


def _check_metrics_and_starts(packs: Sequence[Pack]) -> None:
    """Raise ConfigError where a member (run) names a metric that it will not log, or cannot start from another run.

    Metrics are those of stop conditions and of the best policy. Members of a pack with equal settings are checked once.
    Compiles nothing.
    """
    for pack in packs:
        checked = list[tuple[Any, ...]]()
        for task in pack.tasks:
            agent, env, run = task.agent, task.env, task.run
            settings = run.stop, run.best, run.eval, run.init_from
            if settings in checked:
                continue
            checked.append(settings)
            try:
                prepare(agent, pack.shapes, run.init_from)
                with Evaluations(agent, env, run, pack.shapes) as evaluations:
                    RunMonitor(run).check(agent, env, pack.shapes, evaluations.blank)
            except ConfigError as error:
                raise ConfigError(f"sweep, member {task.member.number}: {error}") from error


class SweepDryRun(NamedTuple):
    """Result of a dry run of a sweep: its resolved settings, and the sizes of one member's (run's) training.

    `described` is the sweep in words. `demands` are pairs (number of members, sizes of one member's training), one for
    each group of members that one compiled program can train; the sizes are iterations, steps, gradient steps, weights
    and memory.
    """

    recorded: Recorded
    described: str
    demands: tuple[tuple[int, Demand], ...]  # members of each kind of program, with the sizes of one of them

    def to_toml(self) -> str:
        """Return the text of the sweep's run file, with settings and sizes of the training as comments above."""
        settings = {one.setting: plan.described_values(one.values) for one in self.recorded.members}
        lines = [self.described, *(f"setting {number}: {text}" for number, text in settings.items() if text)]
        for count, demand in self.demands:
            lines += [f"each of {count} members:", *(f"  {line}" for line in demand.lines())]
        return commented(lines) + self.recorded.to_toml()

    def to_dict(self) -> dict[str, Any]:
        """Return the dry run's result as plain data for JSON: configuration, members (runs), and sizes of programs."""
        members = [{"number": one.number, "seed": one.seed, **one.values} for one in self.recorded.members]
        demands = [{"members": count, **demand.to_dict()} for count, demand in self.demands]
        tables = self.recorded.run_config | self.recorded.plan.to_tables()
        return {"config": tables, "members": members, "programs": demands}


def dry_run(
    run_config: Config,
    sweep_plan: Plan,
    run_dir: Path | None = None,
    cluster: Cluster | None = None,
    overwrite: bool = False,
) -> SweepDryRun:
    """Return settings and sizes of a sweep over a resolved configuration, checked as in `start`, without training it.

    Nothing is compiled or written. Raises ConfigError for options that are invalid or contradict each other. `run_dir`,
    `cluster` and `overwrite` are those of `start`.
    """
    require_new_directory(run_dir, overwrite, OF_SWEEP)
    recorded, packs = _checked(run_config, sweep_plan, cluster)
    demands = []
    for pack in packs:
        agent, env, run = pack.tasks[0].agent, pack.tasks[0].env, pack.tasks[0].run
        demands.append((len(pack.tasks), demand_of(agent, env, run, pack.shapes, footprint(pack.shapes))))
    return SweepDryRun(recorded, _described(recorded, packs), tuple(demands))


def _decided(run_config: Config, sweep_plan: Plan) -> Config:
    """Return the configuration with the dtype of this machine in place of each `compute_dtype` "auto".

    A resume on another machine then computes the same. Raises ConfigError where "auto" is among swept values.
    """
    for path, swept in sweep_plan.values.items():
        if path.endswith(DTYPE) and AUTO in (swept if isinstance(swept, tuple) else getattr(swept, "values", ())):
            raise ConfigError(
                f"sweep: {path} = {AUTO!r}: it stands for another dtype on another machine; write {WHERE_SAFE!r} or "
                "'float32'"
            )
    flat = dict(config.flatten(run_config))
    auto = {path: machine_dtype() for path, value in flat.items() if path.endswith(DTYPE) and value == AUTO}
    return config.unflatten(flat | auto)


def _described(recorded: Recorded, packs: Sequence[Pack]) -> str:
    """Return a sweep in words for the user: its numbers of members (runs), settings, seeds and different programs.

    Members whose agents or environments differ in shapes or static fields need different compiled programs. For a study
    of Optuna, the text has the numbers of trials, of seeds, and of trials that train at a time.
    """
    search, together = recorded.plan.search, [pack for pack in packs if pack.compiled]
    if isinstance(search, Optuna):
        seeds = len(plan.seeds_of(recorded.run_config, recorded.plan))
        return f"study {search.study!r}: {search.trials} trials of {seeds} seeds, {search.batch} at a time"
    settings, kinds = recorded.members[-1].setting + 1, "kind of program" if len(together) == 1 else "kinds of programs"
    how = f"{len(together)} {kinds}" if together else "one after the other, on the host"
    return f"{len(recorded.members)} members, {settings} settings of {len(recorded.members) // settings} seeds; {how}"


@refusing_unknown
def resume_sweep(run_dir: str | Path, *, ray: str | Mapping[str, Any] | None = None) -> SweepResult:
    """Continue the sweep in `run_dir`, and return its result, which is that of an uninterrupted sweep.

    Finished members (runs) stay as they are. With `ray`, an address or a table as for `sweep_runs`, the sweep continues
    on a cluster, wherever it was begun. Raises ConfigError where there is no sweep, or another process uses it.
    """
    _require_one_process()
    path, cluster = absolute(run_dir), placing.read(ray)
    with imports.trusting(within=[path]):
        recorded = directory.read(path)
        placing.check(cluster, recorded.plan.search)
        with RunDirectory(path):
            if _finished(path, recorded):
                return _concluded_again(path, recorded)
            members = recorded.members
            if isinstance(recorded.plan.search, Optuna):
                members = plan.members_of(recorded.run_config, recorded.plan)
            return _train(path, recorded, packed(members), cluster)


def _finished(path: Path, recorded: Recorded) -> bool:
    """Return True if the sweep in `path` has nothing left to train; a study of Optuna can always get more trials."""
    ended = (path / RESULT).is_file() and not isinstance(recorded.plan.search, Optuna)
    return ended and all(is_complete(directory.member_dir(path, one)) for one in recorded.members)


def _concluded_again(path: Path, recorded: Recorded) -> SweepResult:
    """Return the result of a finished sweep, made again from the files of its members (runs); nothing is compiled."""
    total = planned_of(recorded.members[0]) if recorded.plan.search.perturbs else 0
    result = conclude(path, recorded.plan, recorded.members, total)
    if not (path / pictures.MEMBERS).exists():
        _draw(result)
    return result


def _require_one_process() -> None:
    """Raise ConfigError if JAX has joined this process with others, whose devices together serve a single run."""
    if processes.count() > 1:
        raise ConfigError("ppax sweep: one process trains all members; start it without --distributed")


def _train(path: Path, recorded: Recorded, packs: Sequence[Pack], cluster: Cluster | None) -> SweepResult:
    """Train all packs of a sweep, write its result into `path`, and return it.

    A pack is the members (runs) that one compiled program can train. Members to which sweep.json assigns a program
    train in that program; new programs are made for the others. For a study of Optuna, which proposes settings as it
    goes, `packs` are those of one setting that it might propose. Raises Interrupted where a signal has stopped it.
    """
    total, console = checked_total(recorded.plan, packs), packs[0].tasks[0].run.log.console
    search, best = recorded.plan.search, None
    planned = sum(planned_iterations(task.env, task.run) for pack in packs for task in pack.tasks)
    if isinstance(search, Optuna):
        planned *= search.trials
    try:
        with ExitStack() as stack:
            train = Programs().train
            if cluster is not None:
                train = partial(
                    driver.train_on_cluster, stack.enter_context(clusters.connected(cluster.address)), cluster
                )
            stop = stack.enter_context(stop_on_signals(ON_DISK))
            progress = stack.enter_context(Progress(path, planned, console))
            stack.enter_context(kept_programs())
            session = Session(path, recorded, progress, stop, train)
            if isinstance(search, Optuna):
                for number, run_dir in session.run_dirs().items():
                    if is_complete(run_dir):  # in an earlier process
                        progress.skip({number: total}, {number: end_of(run_dir).env_steps})
                best = _rounds()(session)
            else:
                session.train_stages(packs, Searching(path, recorded.plan, recorded.members, total))
            recorded = session.recorded
    except SweepStopped as error:
        line = f"ppax resume {quoted(path)}{directory.sweep_trust_flags(recorded)}"
        raise Interrupted(f"stopped; resume with: {line}") from error
    result = conclude(path, recorded.plan, recorded.members, total)
    if best is not None:
        result = conclude_study(result, recorded, best)
    _draw(result)
    return result


def _draw(result: SweepResult) -> None:
    try:
        pictures.draw(result)
    except ImportError as error:
        warnings.warn(f"no pictures: {error}", stacklevel=4)


def _rounds() -> Any:
    """Return `train_study`, the function that trains a study of Optuna; ConfigError where Optuna is not installed."""
    try:
        from ppax.sweeps.studies.rounds import train_study
    except ImportError as error:
        raise ConfigError(f'{error.name} is not installed: pip install "ppax[optuna]"') from error
    return train_study
