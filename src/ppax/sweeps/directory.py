"""Sweep directory: layout, and the record of a sweep that a resume reads.

sweep.toml    the run file of the sweep, resolved, with its tables [sweep] and [search]; repeats the sweep
sweep.json    members (settings, seed) and the programs that they are packed into
sweep.jsonl   progress of all members together
search.jsonl  decisions of the search over each member, with its score and the reason (search/decisions.py)
members/000/  run directory of each member (run/directory.py), as that of an ordinary run
result.json   scores, best setting first
best.toml     run file of the best setting
"""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

from ppax import config
from ppax.options import Config
from ppax.storage import safe_files, untrusted
from ppax.storage.paths import absolute, quoted, to_directory
from ppax.sweeps import plan as plans
from ppax.sweeps.plan import Member, Plan, member, split
from ppax.sweeps.search import Optuna
from ppax.types import ConfigError

SWEEP_FILE, RECORD, RESULT, BEST, MEMBERS = "sweep.toml", "sweep.json", "result.json", "best.toml", "members"
FORMAT = 1
LIMIT = 2**24  # bytes read of sweep.json
DIGITS = 3  # least number of digits in the name of a member's directory


class Recorded(NamedTuple):
    """Run file, plan and members of a sweep, and those of each program that was compiled for it, by their numbers."""

    run_config: Config  # resolved, without the tables of the sweep
    plan: Plan
    members: tuple[Member, ...]
    programs: tuple[tuple[int, ...], ...]


def member_dir(path: Path, one: Member) -> Path:
    """Return the run directory of a member."""
    return path / MEMBERS / f"{one.number:0{DIGITS}d}"


def is_sweep(path: Path) -> bool:
    """Return whether `path` is a sweep directory."""
    return (path / SWEEP_FILE).is_file()


def new(run_config: Config, run_dir: str | Path | None) -> Path:
    """Return a directory that exists: `run_dir`, or a new one in sweeps/."""
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


def create(path: Path, recorded: Recorded) -> None:
    """Write the record of a new sweep into `path`, which exists; ConfigError where there is a sweep or a run."""
    for name in (SWEEP_FILE, config.RUN_FILE):
        if (path / name).exists():
            raise ConfigError(
                f"{path} already holds {name}: continue it by `ppax resume {quoted(path)}`, or take another directory"
            )
    write_programs(path, recorded)
    safe_files.write_text(path / SWEEP_FILE, config.to_toml(recorded.run_config | recorded.plan.to_tables()))


def write_programs(path: Path, recorded: Recorded) -> None:
    """Write members and programs, atomically."""
    members = [[one.setting, one.values, one.seed] for one in recorded.members]
    content = {"format": FORMAT, "members": members, "programs": recorded.programs}
    safe_files.write_text(path / RECORD, json.dumps(content) + "\n")


def read(path: Path) -> Recorded:
    """Read the record of the sweep in `path`; ConfigError where there is none, or it is damaged."""
    if not is_sweep(path):
        raise ConfigError(f"{path} is not a sweep directory: it has no {SWEEP_FILE}")
    run_config, table = split(config.read(path / SWEEP_FILE))
    plan = plans.read(table)
    try:
        content: Any = untrusted.read_json(path / RECORD, LIMIT)
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']!r}")
        rows = [(int(setting), dict(values), int(seed)) for setting, values, seed in content["members"]]
        programs = tuple(tuple(int(number) for number in program) for program in content["programs"])
        if not (rows or isinstance(plan.search, Optuna)) or not all(
            0 <= number < len(rows) for program in programs for number in program
        ):
            raise ValueError("members")
    except (OSError, *untrusted.MALFORMED) as error:
        raise ConfigError(
            f"{path / RECORD} is damaged ({error}); `ppax sweep {quoted(path / SWEEP_FILE)}` starts it again"
        ) from error
    members = (member(run_config, number, *row) for number, row in enumerate(rows))
    return Recorded(run_config, plan, tuple(members), programs)
