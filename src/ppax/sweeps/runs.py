"""`sweep_runs` and `resume_sweep`: train the members of a sweep, packed into programs, and conclude."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ppax import config, imports
from ppax.options import Config
from ppax.program import clusters, processes
from ppax.program.footprint import available_bytes, explained, footprint
from ppax.program.members import MOST, SHARE, MembersTraining, filled, members_that_fit
from ppax.protocols import Search
from ppax.run.directory import RunDirectory
from ppax.run.restore import planned_iterations
from ppax.run.result import Interrupted
from ppax.run.signals import ON_DISK, stop_on_signals
from ppax.storage.cache import kept_programs
from ppax.sweeps import directory, pictures, plan
from ppax.sweeps.alone import train_alone
from ppax.sweeps.directory import Recorded, member_dir
from ppax.sweeps.distributions import Distribution
from ppax.sweeps.member import SEARCH, complete, end_of, reached
from ppax.sweeps.packing import Pack, Task, packed
from ppax.sweeps.placing import settings as placing
from ppax.sweeps.placing.settings import Cluster
from ppax.sweeps.plan import Plan, Target, config_of
from ppax.sweeps.progress import Counting, Progress
from ppax.sweeps.results import SweepResult, conclude
from ppax.sweeps.searching import Searching, checked_total, stop_members, unplaced
from ppax.sweeps.training import Stopped, Together, objects_of
from ppax.types import ConfigError


def sweep_runs(
    target: Target,
    values: Mapping[str, Sequence[Any] | Distribution | Mapping[str, Any]] | None = None,
    *,
    seeds: int | Sequence[int] | None = None,
    draws: int | None = None,
    draw_seed: int | None = None,
    search: Search | Config | None = None,
    run_dir: str | Path | None = None,
    ray: str | Mapping[str, Any] | None = None,
) -> SweepResult:
    """Train many settings and seeds of a run together, evaluate each, and rank the settings.

    `target` is what `ppax train` takes (a preset, a run file, an environment), a configuration, or a `ppax.Preset`.
    `values` are lists or distributions by the dotted path of an option of agent, environment or run, as
    `{"agent.learning_rate": [1e-4, 3e-4], "agent.gamma": ppax.sweeps.Uniform(0.9, 0.999)}`: every combination of the
    lists, each with the same `draws` joint draws of all distributions, each with all `seeds`, a number of them or a
    list. They add to the table `[sweep]` of a run file. Members that differ in numbers alone share a compiled program;
    members on the host train one after the other. A member whose iteration is not finite is dropped alone. `search`
    decides over the members while they train, as `ppax.sweeps.Halving()`, ASHA or PBT; a table of its options will do.

    Each member has an ordinary run directory in `run_dir`/members (default: a new one in sweeps/), for `ppax.load`,
    `report` and `resume`. A signal saves all members and raises Interrupted; `resume_sweep` continues, with the same
    bits as an uninterrupted sweep. Raises ConfigError, before anything compiles, for settings that cannot work.

    With `ray`, the address of a Ray cluster ("auto": $RAY_ADDRESS, or one on this machine) or a table of options
    (`address`, `cpus` and `gpus` of each program, `retries`), the programs are placed on its machines; ProcessLost
    where one was lost more often than `retries`.
    """
    run_config, of_ray = placing.split(config_of(target))
    run_config, table = plan.split(run_config)
    given = {"seeds": seeds, "draws": draws, "draw_seed": draw_seed, config.SEARCH: search}
    table = table | dict(values or {}) | {name: value for name, value in given.items() if value is not None}
    cluster = placing.read(of_ray if ray is None else ray)
    return start(config.resolve(run_config), plan.read(table), run_dir, cluster=cluster)


def start(
    run_config: Config,
    sweep_plan: Plan,
    run_dir: str | Path | None = None,
    say: Callable[[str], None] = lambda text: None,
    cluster: Cluster | None = None,
) -> SweepResult:
    """Begin a sweep over a resolved configuration in a new directory; `say` gets lines for the user."""
    _require_one_process()
    placing.check(cluster, sweep_plan.search)
    members = plan.members_of(run_config, sweep_plan)
    packs = packed(members)
    checked_total(sweep_plan, packs)
    path = directory.new(run_config, run_dir)
    settings, together = members[-1].setting + 1, [pack for pack in packs if pack.compiled]
    kinds = "kind of program" if len(together) == 1 else "kinds of programs"
    how = f"{len(together)} {kinds}" if together else "one after the other, on the host"
    say(f"{len(members)} members, {settings} settings of {len(members) // settings} seeds; {how}; {path}")
    with RunDirectory(path):
        directory.create(path, run_config, sweep_plan, members)
        return _train(path, Recorded(sweep_plan, members, ()), packs, cluster)


def resume_sweep(run_dir: str | Path, *, ray: str | Mapping[str, Any] | None = None) -> SweepResult:
    """Continue the sweep in `run_dir`; results are those of an uninterrupted sweep. Finished members stay as they are.

    `ray` as in `sweep_runs`, whether it was begun with it or without. Raises ConfigError where there is no sweep, or
    another process uses it.
    """
    _require_one_process()
    path, cluster = Path(run_dir), placing.read(ray)
    recorded = directory.read(path)
    placing.check(cluster, recorded.plan.search)
    with RunDirectory(path):
        return _train(path, recorded, packed(recorded.members), cluster)


def _require_one_process() -> None:
    """Raise ConfigError in a run of several processes, whose devices belong to one run."""
    if processes.count() > 1:
        raise ConfigError("ppax sweep: one process trains all members; start it without --distributed")


def _train(path: Path, recorded: Recorded, packs: Sequence[Pack], cluster: Cluster | None) -> SweepResult:
    """Train all packs, with programs as recorded and new ones for the other members, and conclude."""
    planned = sum(planned_iterations(task.env, task.run) for pack in packs for task in pack.tasks)
    total, console = checked_total(recorded.plan, packs), packs[0].tasks[0].run.log.console
    searching = Searching(path, recorded.plan, recorded.members, total)
    try:
        with ExitStack() as stack:
            ray = None if cluster is None else stack.enter_context(clusters.connected(cluster.address))
            stop = stack.enter_context(stop_on_signals(ON_DISK))
            progress = stack.enter_context(Progress(path, planned, console))
            stack.enter_context(kept_programs())
            for until in searching.stages():
                progress.skip(dict.fromkeys(searching.decisions.stops(), total))
                if cluster is None:
                    recorded = _train_here(path, recorded, packs, searching, until, progress, stop)
                else:
                    from ppax.sweeps.placing import driver  # late: workers import this file

                    recorded = driver.train(ray, path, recorded, packs, cluster, until, progress, stop)
                if until < total:
                    recorded = stop_members(path, recorded, searching, until)
    except Stopped as error:
        raise Interrupted(f"stopped; resume with: ppax resume {path}{imports.flags()}") from error
    result = conclude(path, recorded.plan, recorded.members, total)
    try:
        pictures.draw(result)
    except ImportError as error:
        warnings.warn(f"no pictures: {error}", stacklevel=3)
    return result


def _train_here(
    path: Path,
    recorded: Recorded,
    packs: Sequence[Pack],
    searching: Searching,
    until: int,
    progress: Progress,
    stop: threading.Event,
) -> Recorded:
    """Train all packs to iteration `until` in this process; return the record with their programs."""
    for pack in packs:
        if stop.is_set():
            raise Stopped
        if pack.compiled:
            with explained(footprint(pack.shapes)):
                recorded = _train_pack(path, recorded, pack, searching, until, progress, stop)
        else:
            train_alone(pack.tasks[0], _dir_of(path, recorded, pack.tasks[0]), progress)
    return recorded


def _dir_of(path: Path, recorded: Recorded, task: Task) -> Path:
    return member_dir(path, task.member, len(recorded.members))


def _train_pack(
    path: Path,
    recorded: Recorded,
    pack: Pack,
    searching: Searching,
    until: int,
    progress: Progress,
    stop: threading.Event,
) -> Recorded:
    """Train a pack to iteration `until`, one program after the other; return the record with these programs."""
    program = None
    run_dirs = {task.member.number: _dir_of(path, recorded, task) for task in pack.tasks}
    known = [numbers for numbers in recorded.programs if set(numbers) <= run_dirs.keys()]
    new = unplaced(pack, known, run_dirs)
    if new:
        chunks, program = chunks_of(pack, new)
        known = [*known, *chunks]
        recorded = recorded._replace(programs=(*recorded.programs, *chunks))
        directory.write_programs(path, recorded)
    train_programs(pack, known, max(map(len, known), default=0), run_dirs, searching, until, progress, stop, program)
    return recorded


def train_programs(
    pack: Pack,
    programs: Sequence[tuple[int, ...]],
    largest: int,
    run_dirs: Mapping[int, Path],
    searching: Searching,
    until: int,
    progress: Counting,
    stop: threading.Event,
    program: MembersTraining | None = None,
) -> None:
    """Train programs of a pack, members by their numbers, to iteration `until`; the largest has `largest` members."""
    tasks = {task.member.number: task for task in pack.tasks}
    total = planned_iterations(pack.tasks[0].env, pack.tasks[0].run)
    for numbers in programs:
        while True:
            left = [tasks[number] for number in numbers if end_of(run_dirs[number]).kind != SEARCH]
            progress.skip({number: total for number in numbers if complete(run_dirs[number])})
            if all(done(run_dirs[task.member.number], until, total) for task in left):
                break
            size = filled(largest if len(left) == len(numbers) else len(left))
            if program is None or program.members != size:
                program = MembersTraining(*objects_of(left, size), pack.shapes)
            with ExitStack() as stack:
                together = Together(pack, left, lambda task: run_dirs[task.member.number], searching, stack)
                together.train(program, progress, stop, min(until, total))


def done(run_dir: Path, until: int, total: int) -> bool:
    """Whether a member needs no training before `until`, and no evaluation."""
    return complete(run_dir) or (until < total and reached(run_dir, until))


def chunks_of(
    pack: Pack, tasks: Sequence[Task], most: int = MOST, sharing: int = 1
) -> tuple[list[tuple[int, ...]], MembersTraining]:
    """Distribute members evenly over the fewest programs that fit into memory; return their numbers and a program.

    The number for a program begins with a lower bound on memory, at most `most`, and is halved until the compiled
    program fits. `sharing` programs share the machine's memory.
    """
    free = available_bytes()
    available = None if free is None else free // sharing
    most = min(most, members_that_fit(footprint(pack.shapes), available))
    while True:
        programs = -(-len(tasks) // most)
        size = -(-len(tasks) // programs)
        program = MembersTraining(*objects_of(tasks, filled(size)), pack.shapes)
        if size == 1 or available is None or program.num_bytes <= SHARE * available:
            break
        most = -(-size // 2)
    numbers = [task.member.number for task in tasks]
    return [tuple(numbers[begin : begin + size]) for begin in range(0, len(numbers), size)], program
