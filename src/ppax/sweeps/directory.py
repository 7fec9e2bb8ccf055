"""Sweep directory: its layout, and the record of a sweep that a resume reads.

sweep.toml    the run file of the sweep, resolved, with its tables [sweep] and [search]; repeats the sweep
sweep.json    members (settings, seed), the programs that they are packed into, and sweep.toml as the sweep began
sweep.jsonl   progress of all members together
about.json    name and id of the sweep, by which loggers group its members
search.jsonl  decisions of the search over each member, with its score and the reason (sweeps/decisions.py)
members/000/  run directory of each member (run/directory.py), as that of an ordinary run
result.json   scores, best setting first
best.toml     run file of the best setting
"""

from __future__ import annotations

import contextlib
import itertools
import json
import secrets
import time
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from ppax import config
from ppax.core import imports, untrusted
from ppax.core.options import Config, flatten
from ppax.core.types import ConfigError
from ppax.run import python_objects
from ppax.run.directory import MEMBERS, RECORD, SWEEP_FILE, SweepName
from ppax.storage import safe_files
from ppax.storage.paths import absolute, quoted, to_directory
from ppax.sweeps import plan as plans
from ppax.sweeps import search as searches
from ppax.sweeps.plan import Member, Plan, member, split_sweep
from ppax.sweeps.search import Optuna

BEST, PROGRESS = "best.toml", "sweep.jsonl"
# Options of sweep.toml that a user may edit while the sweep is stopped: they change no result
FREE = ("log.console", "log.checkpoint_", "log.keep", "log.tensorboard", "log.to", "film.", "vectorization", "timeout")
OPTUNA = "optuna"  # name of the search that is a study
FORMAT = 1
LIMIT = 2**24  # bytes read of sweep.json
DIGITS = 3  # least number of digits in the name of a member's directory


class Recorded(NamedTuple):
    """Record of a sweep: its run file, its plan, its members (runs), and the members of each compiled program.

    `programs` has the numbers of the members that train in each program, and `begun` the text of sweep.toml when the
    sweep began, "" before it is written.
    """

    run_config: Config  # resolved, without the tables of the sweep
    plan: Plan
    members: tuple[Member, ...]
    programs: tuple[tuple[int, ...], ...]
    begun: str = ""  # sweep.toml as the sweep began; "" until it is written

    def to_toml(self) -> str:
        """Return the text of sweep.toml: the run file with the tables [sweep] and [search]."""
        return config.to_toml(self.run_config | self.plan.to_tables())


def member_dir(path: Path, one: Member) -> Path:
    """Return the run directory of the member (run) `one` in the sweep directory `path`."""
    return path / MEMBERS / f"{one.number:0{DIGITS}d}"


def is_sweep(path: Path) -> bool:
    """Return True if `path` is a sweep directory: one with a file sweep.toml."""
    return (path / SWEEP_FILE).is_file()


def new(run_config: Config, run_dir: str | Path | None) -> Path:
    """Return the directory for a new sweep, created if missing: `run_dir`, or if None a new directory in sweeps/."""
    if run_dir is not None:
        path = to_directory(run_dir, "run_dir")
        path.mkdir(parents=True, exist_ok=True)
        return path
    name = f"{run_config['env'].replace('/', '-')}-{time.strftime('%Y%m%d-%H%M%S')}"
    for copy in itertools.count(1):
        path = absolute("sweeps") / (name if copy == 1 else f"{name}-{copy}")
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            continue
    raise AssertionError("unreachable: the count has no end")


def create_sweep(path: Path, recorded: Recorded) -> None:
    """Write sweep.json, about.json and sweep.toml of a new sweep into the directory `path`.

    The caller has to make sure that the directory holds no run or sweep; that is not checked here.
    """
    SweepName(path.name, secrets.token_hex(4)).write(path)  # first: it says whose the other files are after a kill
    write_programs(path, recorded)
    safe_files.write_text(path / SWEEP_FILE, recorded.to_toml())


def write_programs(path: Path, recorded: Recorded) -> None:
    """Write members (runs) of a sweep and their assignment to compiled programs to sweep.json in `path`, atomically."""
    members = [[one.setting, one.values, one.seed] for one in recorded.members]
    begun = recorded.begun or recorded.to_toml()
    content = {"format": FORMAT, "members": members, "programs": recorded.programs, "begun": begun}
    safe_files.write_text(path / RECORD, json.dumps(content) + "\n")


def sweep_trust_flags(recorded: Recorded) -> str:
    """Return the options " --trust NAME" that a command needs to continue a sweep, each after a space; "" if none."""
    table = searches.to_table(recorded.plan.search)
    names = python_objects.names_to_trust(
        [recorded.run_config, *(one.config for one in recorded.members)], python_objects.SOURCE
    )
    names |= {config.package_of(path) for path in config.import_paths({config.SEARCH: table}).values()}
    return imports.flags(names | {one.name for one in searches.outside_of(table).values()})


def read(path: Path) -> Recorded:
    """Return the record of the sweep in `path`; ConfigError where it is missing or damaged, or sweep.toml was edited.

    An edited option is refused if it changes results, because the members (runs), trained with other options, would no
    longer be comparable. Options that change none (FREE), and those of an Optuna study, may be edited.
    """
    if not is_sweep(path):
        raise ConfigError(f"{path} is not a sweep directory: it has no {SWEEP_FILE}")
    run_config, table = split_sweep(config.read(path / SWEEP_FILE))
    plan = plans.read(table)
    try:
        content: Any = untrusted.read_json(path / RECORD, LIMIT)
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']!r}")
        rows = [(int(setting), dict(values), int(seed)) for setting, values, seed in content["members"]]
        programs = tuple(tuple(int(number) for number in program) for program in content["programs"])
        begun = str(content["begun"])
        before = untrusted.from_toml(begun)
        if not (rows or isinstance(plan.search, Optuna)) or not all(
            0 <= number < len(rows) for program in programs for number in program
        ):
            raise ValueError("members")
    except (OSError, *untrusted.MALFORMED) as error:
        raise ConfigError(
            f"{path / RECORD} is damaged ({error}); `ppax sweep {quoted(path / SWEEP_FILE)}` starts it again"
        ) from error
    require_unchanged(before, config.read(path / SWEEP_FILE), path / SWEEP_FILE)
    members = (member(run_config, number, *row) for number, row in enumerate(rows))
    return Recorded(run_config, plan, tuple(members), programs, begun)


def require_unchanged(before: Config, now: Config, path: Path, changing: Collection[str] = ()) -> None:
    """Raise ConfigError if the options `now` of a run file differ from `before`, those when the sweep began.

    `path` is the run file of a sweep or member (run), for the error message. Options whose names are in `changing` may
    differ, because a search changes them.
    """
    changed = changed_options(before, now, changing)
    if changed:
        raise ConfigError(
            f"{path} was changed since the sweep began: {changed}; its members would no longer be comparable: write "
            "the former value back, or begin a new sweep in another directory"
        )


def changed_options(before: Config, now: Config, changing: Collection[str] = ()) -> str:
    """Return a text with the options in which two run files differ, and both values; "" if there are none.

    Left out are options that change no result (FREE), options whose names are in `changing`, and, for a study of
    Optuna, the options of the study, such as its number of trials.
    """
    first, last = (_flat(tables) for tables in (before, now))
    study = {tables.get(f"{config.SEARCH}.part") for tables in (first, last)} == {OPTUNA}
    free = (*FREE, f"{config.SEARCH}.") if study else FREE
    ends = tuple(f".{name}" for name in changing)  # also of each group: groups.prey.agent.learning_rate
    names = [name for name in sorted(first | last) if not name.startswith(free) and not f".{name}".endswith(ends)]
    pairs = {name: (first.get(name), last.get(name)) for name in names}
    return ", ".join(
        f"{name} was {a!r} and is {b!r}" for name, (a, b) in pairs.items() if not python_objects.same_value(a, b)
    )


def _flat(tables: Config) -> dict[str, Any]:
    """Return all options of a run file by dotted path; for missing ones the defaults of this version of ppax."""
    run_config, _ = split_sweep(tables)
    with contextlib.suppress(ConfigError):  # user-defined parts cannot be resolved
        run_config = config.resolve(run_config)
    own = {name: tables[name] for name in (config.SWEEP, config.SEARCH) if name in tables}
    return dict(flatten(tomllib.loads(config.to_toml(run_config | own))))
