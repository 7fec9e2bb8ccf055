"""`benchmarks/accelerator.py --quick` on the CPU: every stage, the time budget, and what a killed run keeps."""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent.parent
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def modules(monkeypatch):
    """Import modules of the benchmarks."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import accelerator
    import accelerator_stages
    import accelerator_tables

    return argparse.Namespace(parent=accelerator, stages=accelerator_stages, tables=accelerator_tables)


@pytest.fixture
def checks(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import device_checks

    return device_checks


def test_quick_checks_the_core_and_measures(tmp_path):
    command = [sys.executable, str(BENCHMARKS / "accelerator.py"), "--quick", "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "accelerator.json").read_text())
    rows = report["results"]
    assert rows["device"][0]["platform"] == "cpu"
    assert report["hardware"]["devices"] == rows["device"][0]["devices"]
    found = {row["check"]: row for row in rows["core"]}
    assert {"reference update, all on", "memory, lru", "bfloat16 products", "resume, bit for bit"} <= set(found)
    assert all(row["passed"] for row in found.values())
    assert 0 < found["reference update, all on"]["value"] < 2e-6  # as in the tests of the reference
    assert rows["w1"][0]["systems"]["ppax"]["steps_per_second"] > 0
    assert rows["rules"][0]["now"] is False  # of a CPU: no parallel scans
    assert (tmp_path / "accelerator.png").stat().st_size > 0
    page = (tmp_path / "accelerator.md").read_text()
    assert "| reference update, all on | passed |" in page
    assert all(f"\n## {title}\n" in page for title in ("Correctness", "Rules of the platform"))


# ---------------------------------------------------------------- time


def rows_of(tmp_path, modules, code, seconds):
    """Rows of a process that runs `code`."""
    with open(tmp_path / "log", "w") as errors:
        yield from modules.parent.rows_of([sys.executable, "-c", code], seconds, errors)


WORKER = """
import sys, time
from pathlib import Path
while True:
    Path(sys.argv[1]).write_text(str(time.time()))
    time.sleep(0.05)
"""


def test_a_stage_that_ends_early_leaves_no_worker(tmp_path, modules):
    alive = tmp_path / "alive"
    code = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {WORKER!r}, {str(alive)!r}])
print('{{"check": "first"}}', flush=True)
time.sleep(600)
"""
    rows = rows_of(tmp_path, modules, code, 600.0)
    assert next(rows) == {"check": "first"}
    while not alive.exists():
        time.sleep(0.1)
    rows.close()
    time.sleep(0.5)
    before = alive.read_text()
    time.sleep(0.5)
    assert alive.read_text() == before


def test_a_stage_that_takes_too_long_is_killed(tmp_path, modules):
    assert list(rows_of(tmp_path, modules, "import time; time.sleep(600)", 1.0)) == [{"note": "killed after 1 s"}]


def test_a_stage_that_fails_says_why(tmp_path, modules):
    rows = list(rows_of(tmp_path, modules, "print('{}', flush=True); raise ValueError('no such device')", 60.0))
    assert rows == [{}, {"failed": "ended with code 1: ValueError: no such device"}]


def test_a_stage_without_time_is_left_out_and_written(tmp_path, modules, monkeypatch):
    monkeypatch.setattr(modules.parent, "rows_of", lambda command, seconds, errors: iter([{"note": f"{seconds:.0f}"}]))
    report = modules.parent.Report("accelerator", "", {}, tmp_path)
    options = argparse.Namespace(minutes=1.0, stages=["core", "ant"], quick=False)  # 50 s are for the stages
    modules.parent.measure_all(options, report, None)
    written = json.loads((tmp_path / "accelerator.json").read_text())["results"]
    assert written["core"] == [{"note": "29"}]  # of a minute, 0.28 of 0.28 + 0.3, the shares of both stages
    assert written["ant"] == [{"note": "left out: 50 s are left, it takes 75"}]


def test_sizes_that_do_not_fit_are_left_out(modules, monkeypatch):
    monkeypatch.setattr(modules.stages, "measured", lambda *_: {"systems": {"ppax": {"iteration_seconds": 2.0}}})
    rows = list(modules.stages.sizes_of("W1", lambda _: ["ppax"], (10, 20, 1000), 100.0, False))
    assert [row.get("num_envs") for row in rows] == [10, 20, None]
    # of 1000: 8 runs of 50 * 2 - 1 seconds
    assert rows[-1]["note"].startswith("left out: 1,000 environments take 792 s or more")


# ---------------------------------------------------------------- systems and checks that fail


def test_a_system_whose_process_ends_is_left_out_with_a_note(modules, monkeypatch):
    def measure(systems, work, repeats, seconds):
        if "ppax" in systems:
            raise SystemExit("the ppax worker ended early with code -9")
        runs = [{"valid_steps": 8 * i, "seconds": 1.0} for i in (1, 2, 3)]
        return {"iterations": 2, **{name: {"steps_per_second": 5.0, "runs": runs} for name in systems}}

    monkeypatch.setattr(modules.stages, "measure", measure)
    row = modules.stages.measured(["ppax", "ppax-chunks", "rejax"], 64, 1.0)
    assert row["note"] == "the ppax worker ended early with code -9"
    assert row["systems"]["ppax-chunks"] == {"steps_per_second": 5.0, "iteration_seconds": 0.5}
    assert row["systems"]["rejax"]["ratio"] == {"median": 1.0, "min": 1.0, "max": 1.0}


def test_a_program_that_compiles_for_too_long_is_left_out_with_a_note(modules):
    def worker(system):
        found = object.__new__(interleave.Worker)
        found.system, found.prepared = system, {}
        found.process = subprocess.Popen([sys.executable, "-c", programs[system]], stdin=-1, stdout=-1, text=True)
        return found

    interleave = sys.modules["interleave"]
    answer = 'print(\'{"valid_steps": 8, "rows": 8, "seconds": 2.0}\', flush=True)'
    programs = {"quick": f"{answer}\nwhile input(): {answer}", "slow": "import time; time.sleep(60)"}
    work = modules.stages.Work(4, 1, 2, 0)
    result, notes = interleave.measure_at_once({name: worker(name) for name in programs}, work, 2, patience=2.0)
    assert result["quick"]["steps_per_second"] == 4.0
    assert "slow" not in result
    assert notes == ["the slow worker was still compiling when its time was over"]


def test_a_check_fails_if_its_deviation_is_too_large_or_nan_or_it_raises(checks):
    def broken():
        raise ValueError("no memory")

    outcomes = [checks.within(x, 1.0) for x in (0.5, 1.5, np.nan)]
    found = [checks.Check(str(i), lambda outcome=outcome: outcome) for i, outcome in enumerate(outcomes)]
    rows = list(checks.run_all([*found, checks.Check("broken", broken)], 60.0))
    assert [row["passed"] for row in rows] == [True, False, False, False]
    assert rows[-1]["note"] == "no memory"
    assert next(checks.run_all(found, -1.0))["note"].startswith("left out")


def test_the_core_fails_on_a_wrong_reference_and_on_other_bits(checks, monkeypatch):
    cases = checks.reference_cases
    assert checks.check_reference(cases.CASES[0]).passed
    hyper = cases.hyper_of(cases.CASES[0])._replace(gae_lambda=0.92)
    monkeypatch.setattr(cases, "hyper_of", lambda case: hyper)
    assert not checks.check_reference(cases.CASES[0]).passed
    assert checks._same_bits({"a": np.float32(1.0)}, {"a": np.float32(1.0)}, "").passed
    assert not checks._same_bits(
        {"a": np.float32(1.0)}, {"a": np.nextafter(np.float32(1.0), np.float32(2.0))}, ""
    ).passed


def test_rules_are_measured_with_changed_entries_and_restored(modules):
    from ppax.devices import platforms

    before = platforms.rules()
    with modules.stages.ruled(parallel_scans=True):
        assert platforms.rules() == before._replace(parallel_scans=True)
    assert platforms.rules() == before
    boolean = {name for name in modules.stages.RULES if isinstance(getattr(before, name), bool)}
    assert boolean == set(modules.stages.RULES)


def test_lines_of_the_console_say_what_to_change(modules):
    ratio = {"median": 1.5, "min": 1.4, "max": 1.6}
    row = {"rule": "branches", "now": True, "seconds": 3.0, "other_seconds": 2.0, "ratio": ratio}
    assert modules.tables.line("rules", row).startswith("branches: False is 1.50 times as fast as True: change")
    slower = row | {"ratio": {"median": 0.9, "min": 0.8, "max": 1.1}}
    assert "True stays; False has 0.90 of its speed (0.80 .. 1.10)" in modules.tables.line("rules", slower)
    failed = {
        "check": "ratio",
        "passed": False,
        "value": 0.1,
        "allowed": 1e-5,
        "note": "deviation from 1",
        "seconds": 1.0,
    }
    assert modules.tables.line("core", failed) == "FAILED  ratio: 0.1 (limit 1e-05) deviation from 1 (1.0 s)"
