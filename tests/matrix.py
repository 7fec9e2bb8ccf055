"""Tests of the wheel on every Python that this machine has, with few, all and the oldest dependencies.

    pip install uv
    python tests/matrix.py                                  # everything: about ten minutes for each Python
    python tests/matrix.py --python 3.13 --kind plain       # one cell
    python docs/generate.py                                 # the table in docs/start.md, from the results

Sdist and wheel are built and checked first: metadata (twine), files (check-wheel-contents; the sdist holds what git
holds, the wheel what is in src/). `--dist FOLDER` keeps them there, to be published.

Kinds: `plain` installs the wheel without an extra, runs README's first command and `ppax selftest CartPole-v1`;
`test` installs the extra `test` and runs README's test command; `oldest` does so with the oldest versions of the
direct dependencies that pyproject.toml allows, `newest` with the newest jax that it allows, also where a package of the
extra asks for an older one. Every cell is a new environment.
Exit code 1 if anything fails.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "matrix.json"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
KINDS = ("plain", "test", "oldest", "newest")
SOLVED = 475.0  # mean return of README's first command
SHOWN = ("jax", "numpy", "gymnasium", "optax")


def pythons() -> dict[str, str]:
    """Return the interpreters of this machine by version: those on PATH, those of pyenv, and the one that runs this."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = {}
    for version in VERSIONS:
        paths = [shutil.which(f"python{version}"), *pyenv.glob(f"versions/{version}.*/bin/python"), sys.executable]
        for path in filter(None, paths):
            command = [str(path), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
            answer = subprocess.run(command, capture_output=True, text=True, check=False)
            if answer.stdout.strip() == version:  # a shim of pyenv may stand for no installed version
                found[version] = str(path)
                break
    return found


def run(command: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in `folder`; its output is captured, errors with it."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def build(folder: Path) -> Path:
    """Build sdist and wheel into `folder`, check both, and return the wheel, which is made from the sdist."""
    built = run(["uv", "build", "--quiet", "--out-dir", str(folder)], ROOT)
    if built.returncode:
        sys.exit(built.stdout)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    checks = (["twine", "check", "--strict", str(sdist), str(wheel)], ["check-wheel-contents", str(wheel)])
    for command in checks:
        checked = run(["uvx", "--quiet", *command], ROOT)
        if checked.returncode:
            sys.exit(checked.stdout)
    listed = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], ROOT).stdout.split("\0")
    if wrong := misplaced(sdist, wheel, {name for name in listed if (ROOT / name).is_file()}):
        sys.exit("\n".join(wrong))
    return wheel


def misplaced(sdist: Path, wheel: Path, tracked: set[str]) -> list[str]:
    """Return a line for each file that is missing in sdist or wheel, or does not belong there; [] if all is right.

    The sdist holds `tracked`, the files of the repository: its tests read documents, examples and results. The wheel
    holds what is in src/, and the licence.
    """
    with tarfile.open(sdist) as archive:
        in_sdist = {member.name.partition("/")[2] for member in archive if member.isfile()}
    names = zipfile.ZipFile(wheel).namelist()
    in_wheel = {re.sub(r"^ppax-[^/]*\.dist-info/", "*.dist-info/", name) for name in names}
    about = {f"*.dist-info/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")}
    sources = {name.removeprefix("src/") for name in tracked if name.startswith("src/")}
    return [
        f"{where.name}: {name} {'is missing' if name in right else 'does not belong there'}"
        for where, there, right in ((sdist, in_sdist, tracked | {"PKG-INFO"}), (wheel, in_wheel, sources | about))
        for name in sorted(there ^ right)
    ]


def cell(python: str, kind: str, wheel: Path, folder: Path) -> dict[str, Any]:
    """Install the wheel into a new environment in `folder`, run what `kind` says, and return what came of it."""
    begin = time.monotonic()
    venv, work = folder / "venv", folder / "work"
    work.mkdir(parents=True)
    binaries = venv / ("Scripts" if os.name == "nt" else "bin")
    extra, chosen = "" if kind == "plain" else "[test]", work / "versions.txt"
    commands = [["uv", "venv", "--quiet", "--python", python, str(venv)]]
    install = ["uv", "pip", "install", "--quiet", f"ppax{extra} @ {wheel.as_uri()}"]
    if kind == "oldest":  # of a wheel uv would take ppax alone for a direct dependency, so all others the newest
        project, oldest = str(ROOT / "pyproject.toml"), ["--extra", "test", "--resolution", "lowest-direct"]
        wheels = ["--only-binary", ":all:"]  # older ones, without a wheel for this Python, mostly cannot be built
        compile_ = ["uv", "pip", "compile", "--quiet", project, *oldest, *wheels, "--python", python]
        commands.append([*compile_, "-o", str(chosen)])
        install += ["--constraints", str(chosen)]
    if kind == "newest":
        chosen.write_text(f"{requirement('jax')}\n")
        install += ["--overrides", str(chosen)]
    own = {"VIRTUAL_ENV": str(venv), "XDG_CACHE_HOME": str(folder / "cache")}
    for command in (*commands, install):
        done = run(command, work, **own)
        if done.returncode:
            return {"passed": False, "result": "not installed", "output": done.stdout[-4000:], "versions": {}}
    frozen = run(["uv", "pip", "freeze"], work, **own).stdout
    versions = dict(re.findall(rf"^({'|'.join(SHOWN)})==(\S+)$", frozen, re.MULTILINE))
    passed, result, output = (plain if kind == "plain" else tested)(binaries, work, own)
    minutes = round((time.monotonic() - begin) / 60, 1)
    return {"passed": passed, "result": result, "minutes": minutes, "versions": versions} | (
        {} if passed else {"output": output[-4000:]}
    )


def requirement(name: str) -> str:
    """Return the dependency `name` of the project with the versions that it allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return next(text for text in project["dependencies"] if re.fullmatch(rf"{name}\b[^a-z].*", text))


def plain(binaries: Path, work: Path, own: dict[str, str]) -> tuple[bool, str, str]:
    """Run README's first command and the self-test; whether CartPole is solved and all checks hold."""
    command = shutil.which("ppax", path=binaries) or "ppax"
    trained = run([command, "train", "CartPole-v1", "--json"], work, **own)
    score = re.search(r'"mean_return": ([0-9.]+)', trained.stdout)
    mean = float(score.group(1)) if score else float("nan")
    checked = run([command, "selftest", "CartPole-v1"], work, **own)
    passed = trained.returncode == 0 and mean >= SOLVED and checked.returncode == 0
    return passed, f"CartPole {mean:.0f}, selftest {checked.returncode}", trained.stdout + checked.stdout


def tested(binaries: Path, work: Path, own: dict[str, str]) -> tuple[bool, str, str]:
    """Run README's test command in a copy of the tracked files; the tests import the installed wheel."""
    for name in run(["git", "ls-files", "-z"], ROOT).stdout.split("\0"):
        if (ROOT / name).is_file():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, work / name)
    done = run([shutil.which("pytest", path=binaries) or "pytest"], work, **own)
    last = done.stdout.splitlines()[-1] if done.stdout else ""
    counts = re.findall(r"(\d+) (passed|failed|skipped|errors?)", last)
    return done.returncode == 0, ", ".join(f"{count} {what}" for count, what in counts), done.stdout


def main() -> int:
    """Run the chosen cells, keep each result as it comes, and return the exit code."""
    found = pythons()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="+", choices=VERSIONS, default=list(found), help="versions of Python")
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--dist", metavar="FOLDER", type=Path, help="keep sdist and wheel there")
    parser.add_argument("--results", metavar="FILE", type=Path, default=RESULTS, help="add the results to this file")
    options = parser.parse_args()
    if shutil.which("uv") is None:
        parser.error("uv makes the environments: pip install uv")
    missing = [version for version in options.python if version not in found]
    if missing:
        parser.error(f"no Python {', '.join(missing)} here; found: {', '.join(found)}")
    cells = json.loads(options.results.read_text())["cells"] if options.results.exists() else {}
    failed = []
    with tempfile.TemporaryDirectory(prefix="ppax-matrix-") as folder:
        wheel = build(options.dist.absolute() if options.dist else Path(folder) / "dist")
        for version in options.python:
            for kind in options.kind:
                outcome = cell(found[version], kind, wheel, Path(folder) / f"{version}-{kind}")
                jax = outcome["versions"].get("jax", "-")
                print(
                    f"Python {version}, {kind}: jax {jax}, {outcome['result']}, {outcome.get('minutes')} min",
                    flush=True,
                )
                if not outcome["passed"]:
                    failed.append(f"{version} {kind}")
                    print(outcome["output"])
                kept = {name: value for name, value in outcome.items() if name != "output"}
                cells[f"{version} {kind}"] = kept | {"date": datetime.date.today().isoformat()}
                options.results.write_text(json.dumps({"cells": dict(sorted(cells.items()))}, indent=1) + "\n")
    print(f"failed: {', '.join(failed)}" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
