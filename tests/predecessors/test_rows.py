"""The capabilities of the systems that ppax follows, rows.toml: each names tests that exist, options that are valid."""

import ast
import collections
import functools
import shlex
import tomllib
from operator import attrgetter
from pathlib import Path

import pytest

import ppax
from ppax import config
from ppax.cli import main, options, sweep
from ppax.cli.arguments import DEVICE, without
from ppax.scores.suite import choose

ROOT = Path(__file__).parents[2]
TABLE = tomllib.loads(Path(__file__).with_name("rows.toml").read_text(encoding="utf-8"))
SYSTEMS = ("JaxDEM", "jaxagents", "PPO-JAX", "rl8")
KEYS = {"name", "options", "python", "command", "tests", "otherwise", "missing"}

# What ppax does not have: pairs of system and row. A row that is built loses its `missing` and its pair here
MISSING: set[tuple[str, str]] = set()


# Without an option, name or command: how ppax is made
QUALITY = [
    "JaxDEM: pages of the API and a gallery",
    "rl8: tests of algorithm, conditions, functions, policies, schedules, views",
    "rl8: strict types and lint in CI",
    "rl8: pages of the API",
]


def rows(kind, key=None):
    """Return pairs of system and row, of those that have `key`."""
    return [(system, row) for system in SYSTEMS for row in TABLE[system][kind] if key is None or key in row]


def named(pair):
    system, row = pair
    return f"{system}: {row['name']}"


CAPABILITIES = rows("capability")
ALL = CAPABILITIES + rows("mistake")


@functools.cache
def functions_of(file):
    """Return the names of the functions of a file, without importing it; none where there is no such file."""
    path = ROOT / file
    tree = ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else ast.Module([], [])
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_table_has_its_systems_and_keys_and_no_row_twice():
    assert set(TABLE) == {"systems", *SYSTEMS}
    assert set(TABLE["systems"]) == set(SYSTEMS)
    for system in SYSTEMS:
        assert set(TABLE[system]) == {"capability", "mistake"}
    for system, row in ALL:
        assert row.keys() <= KEYS, (system, row)
        assert all(row.values()), (system, row)  # no empty text
    for kind in ("capability", "mistake"):
        names = collections.Counter(map(named, rows(kind)))
        assert [name for name, count in names.items() if count > 1] == []


def test_every_row_has_a_test_or_a_reason():
    assert [named(pair) for pair in ALL if not pair[1].keys() & {"tests", "otherwise", "missing"}] == []


def test_every_capability_that_is_there_says_how_it_is_written():
    """A row whose name begins with "test:" is a test of that system's own."""
    silent = [
        named((system, row))
        for system, row in CAPABILITIES
        if not row.keys() & {"options", "python", "command", "missing", "otherwise"}
    ]
    assert [name for name in silent if ": test: " not in name] == QUALITY


def test_every_named_test_exists():
    tests = sorted({test for _, row in ALL for test in row.get("tests", ())})
    assert len(tests) > 300
    assert [test for test in tests if not is_there(*test.split("::"))] == []


def is_there(file, name):
    return name.startswith("test_") and name in functions_of(file)


def test_a_test_that_is_not_there_would_be_seen():
    assert is_there("tests/ppo/advantages/test_gae.py", "test_two_steps_by_hand")
    assert not is_there("tests/ppo/advantages/test_gae.py", "test_three_steps_by_hand")
    assert not is_there("tests/ppo/advantages/test_gae.py", "targets")
    assert not is_there("tests/ppo/advantages/test_nothing.py", "test_two_steps_by_hand")


@pytest.mark.parametrize("pair", rows("capability", "options"), ids=named)
def test_options_are_those_of_a_run_file(pair):
    ppax.trust("my_package")  # of the rows; nothing of it is imported
    plan = tomllib.loads(pair[1]["options"])
    resolved = dict(config.flatten(config.resolve(plan)))
    assert resolved.items() >= dict(config.flatten(plan)).items()
    if plan.keys() & {"env", "env_params"}:
        try:
            config.build_env(config.resolve({"num_envs": 1} | plan)).close()
        except ImportError as error:
            pytest.skip(str(error))


@pytest.mark.parametrize("pair", rows("capability", "python"), ids=named)
def test_names_are_public(pair):
    for name in pair[1]["python"]:
        package, first, *rest = name.split(".")
        assert package == "ppax"
        assert first in ppax.__all__, name
        attrgetter(".".join([first, *rest]))(ppax)
        assert not any(part.startswith("_") for part in rest)


@pytest.mark.parametrize("pair", rows("capability", "command"), ids=named)
def test_commands_parse(pair):
    program, command, *words = shlex.split(pair[1]["command"])
    words, _ = without(DEVICE, words)
    assert program == "ppax"
    if command == "train":
        options.parse_run("train", words, options.add_train)
    elif command == "sweep":
        sweep.parse_sweep(words)
    elif command in ("bench", "selftest"):
        options.parse_run(command, words, main.add_bench if command == "bench" else None)
    else:
        main._parser().parse_args([command, *words])
    if command == "score":
        assert choose(words)[0].threshold is not None


def test_what_is_missing_is_known():
    assert {(system, row["name"]) for system, row in rows("capability", "missing")} == MISSING
    # a row is there or missing
    assert [named(pair) for pair in rows("capability", "missing") if pair[1].keys() & {"tests", "otherwise"}] == []


def test_ci_runs_lint_types_and_tests():
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert {"ruff check .", "ruff format --check .", "mypy", 'pytest -m "slow and not nightly"'} <= set(lines)
    assert any(line.endswith("&& pytest") for line in lines)
    assert "bash .ci/run" in (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
