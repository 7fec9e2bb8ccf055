"""Hosted CI tests the Pythons and systems that pyproject.toml names; only the step that publishes may publish."""

import re
import tomllib
from pathlib import Path

import yaml

import matrix

ROOT = Path(__file__).parents[2]
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").glob("*.yml")}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RUNNERS = {"Operating System :: MacOS": "macos", "Operating System :: Microsoft :: Windows": "windows"}


def test_every_declared_python_and_system_has_a_job():
    declared = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d", name)]
    jobs = WORKFLOWS["ci"]["jobs"]
    assert jobs["everything"]["strategy"]["matrix"]["python"] == declared
    assert PROJECT["requires-python"] == f">={declared[0]}"
    assert set(declared) <= set(matrix.VERSIONS)
    systems = {runner.partition("-")[0] for runner in jobs["elsewhere"]["strategy"]["matrix"]["system"]}
    assert systems == {RUNNERS[name] for name in PROJECT["classifiers"] if name in RUNNERS}


def test_a_job_that_may_write_runs_no_code_of_the_repository():
    writing = {}
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] == {"contents": "read"}
        for title, job in workflow["jobs"].items():
            if "write" in job.get("permissions", {}).values():
                writing[name, title] = job
                assert [step for step in job["steps"] if "run" in step or "checkout" in step["uses"]] == []
    assert set(writing) == {("publish", "publish"), ("docs", "deploy")}


def test_the_files_that_are_published_are_those_that_were_tried():
    build, publish = (WORKFLOWS["publish"]["jobs"][name]["steps"] for name in ("build", "publish"))
    (tried,) = (step["run"] for step in build if "matrix.py" in step.get("run", ""))
    assert "--dist dist" in tried
    assert "--kind plain" in tried
    assert build[-1]["with"]["path"] == publish[0]["with"]["path"] == "dist"
    assert WORKFLOWS["publish"]["jobs"]["publish"]["needs"] == "build"
    assert list(WORKFLOWS["publish"][True]["push"]) == ["tags"]  # `on` is a truth value in YAML 1.1
