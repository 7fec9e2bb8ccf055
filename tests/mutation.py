"""Mutation testing: break the package, one line at a time, and check that the tests fail.

    python tests/mutation.py                     all breaks of breaks/
    python tests/mutation.py -k "GAE|clip"       those whose names match
    python tests/mutation.py --list
    python tests/mutation.py --json result.json  write results as JSON; results of other breaks in the file are kept

Every break is made in a copy of the tree. First its tests must pass on the unchanged copy; where they fail, or need a
package that is not installed, the break is not run. A break is caught if tests fail then; it is an error, and not
caught, if they cannot be collected.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).parent.parent
IGNORED = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".mypy_cache", ".pytest_cache", "runs")
TIMEOUT = 3600  # seconds for pytest, also on a busy machine
FAILED, NONE = 1, 5  # pytest's exit codes: tests failed; no test ran


def sources(root: Path) -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in sorted((root / "src").rglob("*.py"))}


def place(mutation: Mutation, texts: dict[Path, str]) -> tuple[Path, str]:
    """Return the file that contains the break's text, and its content; ValueError unless the text occurs once."""
    found = []
    for path, text in texts.items():
        if path.as_posix().endswith(mutation.file):
            found += [(path, text)] * text.count(mutation.old)
    if len(found) != 1:
        where = ", ".join(path.as_posix().rpartition("/src/")[2] for path, _ in found) or "nowhere"
        raise ValueError(f"{mutation.name!r}: its text must stand once, and stands {len(found)} times: {where}")
    return found[0]


def broken(mutation: Mutation, text: str) -> str:
    return text.replace(mutation.old, mutation.new)


def run_tests(copy: Path, tests: list[str]) -> tuple[int, str]:
    """Return pytest's exit code and its first failure."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-x", "--tb=line", "-p", "no:cacheprovider", *tests]
    command += ["-m", "nightly or not nightly"]
    # programs that a break does not change compile once
    cache = {"JAX_COMPILATION_CACHE_DIR": str(copy / ".jax"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    environment = os.environ | {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"} | cache
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return -1, f"still running after {TIMEOUT} s"
    if done.returncode == 0 and " passed" not in done.stdout.splitlines()[-1]:
        return NONE, "all are skipped"
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return done.returncode, (lines or done.stdout.splitlines()[-1:] or done.stderr.splitlines()[-1:] or [""])[0]


def try_one(mutation: Mutation, copy: Path) -> str:
    """ "caught", "SURVIVED" or "ERROR", with what pytest said."""
    path, text = place(mutation, sources(copy))
    try:
        path.write_text(broken(mutation, text), encoding="utf-8")
        code, said = run_tests(copy, list(mutation.tests))
    finally:
        path.write_text(text, encoding="utf-8")
    return "caught" if code == FAILED else "SURVIVED" if code == 0 else f"ERROR {code}: {said}"


def write(path: Path, results: dict[str, str]) -> None:
    """Write the results, in the order of the table, merged with those in the file."""
    known = json.loads(path.read_text(encoding="utf-8"))["results"] if path.exists() else {}
    all_results = {m.name: (known | results)[m.name] for m in MUTATIONS if m.name in known | results}
    caught = sum(verdict == "caught" for verdict in all_results.values())
    survivors = [name for name, verdict in all_results.items() if verdict != "caught"]
    share = caught / max(1, len(all_results))
    summary = {"breaks": len(all_results), "caught": caught, "share": share, "not_caught": survivors}
    path.write_text(json.dumps(summary | {"results": all_results}, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-k", default="", help="a regular expression: only breaks whose names match")
    parser.add_argument("--list", action="store_true", help="only list them")
    parser.add_argument("--json", type=Path, help="write the result to this file, beside what stands there already")
    options = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if re.search(options.k, mutation.name, re.IGNORECASE)]
    if options.list:
        texts = sources(ROOT)
        for mutation in chosen:
            print(f"{mutation.name:55} {place(mutation, texts)[0].relative_to(ROOT)}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(ROOT, copy, ignore=IGNORED)
        tests = sorted({test for mutation in chosen for test in mutation.tests})
        whole = run_tests(copy, tests)[0] == 0
        results, without = {}, []
        for mutation in chosen:
            code, said = (0, "") if whole else run_tests(copy, list(mutation.tests))
            begin = time.perf_counter()
            verdict = try_one(mutation, copy) if code == 0 else None
            if verdict is None or verdict.startswith(f"ERROR {NONE}"):  # they fail, or need a package that is missing
                print(f"NOT RUN  {mutation.name}: its tests do not pass as they are: {verdict or said}", flush=True)
                without.append(mutation.name)
                continue
            results[mutation.name] = verdict
            print(f"{verdict:8} {mutation.name} ({time.perf_counter() - begin:.0f} s)", flush=True)
            if options.json:
                write(options.json, results)
    left = [name for name, verdict in results.items() if verdict != "caught"]
    print(f"{len(results) - len(left)} of {len(results)} caught" + (f"; not: {', '.join(left)}" if left else ""))
    if without:
        print(f"{len(without)} not run: {', '.join(without)}")
    return 1 if left or without else 0


if __name__ == "__main__":
    sys.exit(main())
