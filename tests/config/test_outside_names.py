"""Options that name something outside: all are in the table of docs/security.md, and only trust lets them act."""

import dataclasses
import fnmatch
import re
from pathlib import Path

import pytest

import ppax
from ppax import config
from ppax.cli import main
from ppax.cli.options import add_train, parse_run
from ppax.cli.sweep import parse_sweep
from ppax.config.catalogue import PARTS
from ppax.config.run_settings import Run
from ppax.config.validation import is_section
from ppax.core import imports
from ppax.core.imports import Untrusted
from ppax.core.options import hints_of, options_of
from ppax.core.parts import ADDRESS, PATH
from ppax.core.types import part, static
from ppax.ppo.ppo import PPO
from ppax.sweeps.placing import settings as placing
from ppax.sweeps.search import SEARCHES

SECURITY = Path(__file__).parents[2] / "docs" / "security.md"
# Places of the parts of each kind that has a text among its options
SLOTS = {"logger": "log.to", "search": "search", "schedule": "agent.schedule"}


@pytest.fixture(autouse=True)
def no_trust(monkeypatch, tmp_path):
    for name in ("_trusted", "_beside", "_holding"):
        monkeypatch.setattr(imports, name, set())
    monkeypatch.setenv("PPAX_SETTINGS", str(tmp_path / "settings.toml"))


def texts(cls, place=""):
    """Yield path and option of each text that is not one of several choices, in a class and its sections."""
    for name, option in options_of(cls).items():
        if option.kind is str and "choices" not in option.limits:
            yield place + name, option
    for field in dataclasses.fields(cls):
        if is_section(hints_of(cls)[field.name]) and "slot" not in field.metadata:
            yield from texts(hints_of(cls)[field.name], f"{place}{field.name}.")


def every_text():
    found = dict([*texts(Run), *texts(PPO, "agent.")])
    for kind, parts in (PARTS | {"search": dict(SEARCHES)}).items():
        for cls in parts.values():
            found |= dict(texts(cls, f"{SLOTS.get(kind, f'agent.{kind}')}.")) if kind != "extension" else {}
    for name, cls in PARTS["extension"].items():
        found |= dict(texts(cls, f"agent.extensions.{name}."))
    return found | {"ray.address": placing.OPTIONS["address"]}


def tables():
    """Return the fields of the two tables of docs/security.md: those that are asked for, and the others."""
    section = SECURITY.read_text().partition("## What a file names outside of itself")[2].partition("\n## ")[0]
    found = [block for block in section.split("\n\n") if block.startswith("| field |")]
    named = [
        {name for row in block.splitlines()[2:] for name in re.findall(r"`([\w.*]+)`", row.split("|")[1])}
        for block in found
    ]
    return [{one for name in names for one in each_extension(name)} for names in named]


def each_extension(name):
    """Return the options of all extensions that a name with `*` stands for."""
    if not name.startswith("agent.extensions.*"):
        return [name]
    return [one for one in every_text() if fnmatch.fnmatchcase(one, name)]


def test_every_text_is_in_the_table_of_what_is_asked_for_or_of_what_is_not():
    """A new option that is a path or an address is asked for only if it declares it: a new text has to be decided."""
    asked, others = tables()
    found = every_text()
    assert not asked & others
    assert {name for name, option in found.items() if "outside" in option.limits} == (asked & found.keys())
    assert {name for name, option in found.items() if "outside" not in option.limits} == (others & found.keys())
    assert asked - found.keys() == {
        *("env_params.*", "eval.env_params.*", "agent.network.arguments.*"),
        *("mlflow", "wandb"),
    }
    assert others - found.keys() == set()


def test_options_with_choices_name_nothing_outside():
    """Each choice of an option is a word of ppax's own."""
    parts = [Run, PPO, *(cls for kind in PARTS.values() for cls in kind.values()), *SEARCHES.values()]
    for cls in parts:
        for option in options_of(cls).values():
            assert all(re.fullmatch(r"[a-z0-9_]+", word) for word in option.limits.get("choices", ()))


def test_presets_name_nothing_outside():
    for path in config.presets().values():
        assert config.outside(config.read(path)) == {}


@part
class Reading:
    """Part of a user's own that reads files."""

    table: str = static("file that is read", default="", outside=PATH)
    server: tuple[str, ...] = static("servers that are asked", default=(), outside=ADDRESS)
    note: str = static("text", default="")


def test_parts_of_the_users_own_declare_it():
    values = {"x.table": "data", "x.server": ["a", "b/c"], "x.note": "/etc/passwd"}
    known = [option._replace(path=f"x.{name}") for name, option in options_of(Reading).items()]
    found = config.outside_values(values, known)
    assert {place: one.name for place, one in found.items()} == {
        "x.table": "./data",
        "x.server.0": "//a",
        "x.server.1": "b/c",
    }


def test_a_checksum_stands_for_trust_in_a_local_file_alone():
    known = list(config.options({"agent": {"extensions": {"distillation": {}}}}))
    place = "agent.extensions.distillation.teacher"
    for source, asked in (("/runs/x", False), ("hf://me/x", True), (r"\\host\x", True), ("//host/x", True)):
        found = config.outside_values({place: source, "agent.extensions.distillation.checksum": "0" * 64}, known)
        assert (place in found) == asked, source
        assert place in config.outside_values({place: source, "agent.extensions.distillation.checksum": ""}, known)
        several = {f"{place}s": ["/runs/y", source], "agent.extensions.distillation.checksum": "0 1"}
        assert (f"{place}s.1" in config.outside_values(several, known)) == asked, source


@pytest.mark.parametrize("text", ["a/b", r"a\b", "~", "here.xml", "http://x"])
def test_arguments_of_an_environment_that_may_name_a_file(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.xml").write_text("")
    for table in ({"env_params": {"deep": {"er": [1, text]}}}, {"eval": {"env_params": {"file": text}}}):
        with pytest.raises(Untrusted, match="env_params"):
            config.build_env({"env": "gymnasium/CartPole-v1", "num_envs": 1} | table)


def test_other_arguments_of_an_environment_are_not_asked_for():
    plain = {"env_params": {"render_mode": "rgb_array", "sutton_barto_reward": True, "x": 3.0, "y": "a\0b"}}
    assert config.outside({"env": "gymnasium/CartPole-v1"} | plain) == {}


def test_tables_that_are_not_needed_need_no_trust():
    plan = {"agent": {"loss": {"part": "canary:Loss"}}, "log": {"to": [{"part": "wandb", "entity": "x"}]}}
    config.require_asked_options(plan, "init_from")
    with pytest.raises(Untrusted, match="entity") as raised:
        config.require_asked_options(plan, "log")
    assert raised.value.names == ("//x",)


# ---------------------------------------------------------------- the user's own


FILE = """
env = "CartPole-v1"
[agent.extensions.behaviour_cloning]
demonstrations = "{place}"
[sweep]
"agent.gamma" = [0.9, 0.99]
[search]
part = "optuna"
storage = "sqlite:///mine.db"
"""


def test_typed_options_need_no_trust(tmp_path):
    """Each option of the table, given on a command line: as a value, a swept value, of a search, of a cluster."""
    (tmp_path / "run.toml").write_text('env = "CartPole-v1"\n')
    line = ["Pendulum-v1", "--init-from", "runs", "--log.to", "mlflow", "wandb", "--log.to.0.tracking-uri", "x"]
    line += ["--log.to.1.entity", "me", "--agent.extensions", "behaviour_cloning"]
    line += ["--agent.extensions.behaviour_cloning.demonstrations", "d.npz"]
    with imports.trusting():
        _, run_config = parse_run("train", [*line, "--env-params.file", "a/b"], add_train)
        config.require_asked_options(run_config)
        assert imports.places() == {"./runs", "//x", "//me", "./d.npz", "a/b"}
    with imports.trusting():
        swept = [
            "--agent.extensions",
            "distillation",
            "--agent.extensions.distillation.teacher",
            "a,b/c",
            "--ray",
            "head:1",
        ]
        search = ["--search", "optuna", "--search.storage", "sqlite:///x.db"]
        options, _, table = parse_sweep(["CartPole-v1", *swept, *search])
        assert imports.places() == {"./a", "b/c", "//head:1", "sqlite:///x.db"}
        assert options.cluster.address == "head:1"
        assert table["search"]["storage"] == "sqlite:///x.db"
    assert imports.places() == set()


def test_a_file_of_the_users_with_demonstrations_beside_it(tmp_path, monkeypatch):
    """They are read without being asked for, here up to the error that there are none."""
    monkeypatch.chdir(tmp_path)
    for place in ("data/demos.npz", str(tmp_path / "data" / "demos.npz")):
        (tmp_path / "run.toml").write_text(FILE.partition("[sweep]")[0].format(place=place))
        with imports.trusting():
            _, run_config = parse_run("train", ["run.toml"], add_train)
            with pytest.raises(ppax.ConfigError, match=r"demos\.npz") as raised:
                config.build(run_config)
            assert not isinstance(raised.value, Untrusted)


def test_trust_on_the_command_line(tmp_path, monkeypatch, capsys):
    """The line that an error prints gets further: to the error that there is no such file."""
    (tmp_path / "files").mkdir()
    monkeypatch.chdir(tmp_path / "files")
    (tmp_path / "files" / "run.toml").write_text(FILE.partition("[sweep]")[0].format(place="../demos.npz"))
    assert main.main(["train", "run.toml"]) == 2
    error, line, *_ = capsys.readouterr().err.splitlines()
    assert "agent.extensions.behaviour_cloning.demonstrations = '../demos.npz'" in error
    assert line == "  ppax train run.toml --trust ../demos.npz"
    assert main.main(line.split()[1:]) == 2
    assert "--trust" not in capsys.readouterr().err


def test_arguments_of_python_need_no_trust():
    options = {"agent": {"extensions": {"behaviour_cloning": {"demonstrations": "/nowhere.npz"}}}}
    for name in ("CartPole-v1", "Pendulum-v1"):  # without a preset and with one
        with pytest.raises(ppax.ConfigError, match="nowhere") as raised:
            ppax.build(name, **options)
        assert not isinstance(raised.value, Untrusted)
    with pytest.raises(Untrusted, match="nowhere"):
        config.build({"env": "CartPole-v1"} | options)
    assert imports.places() == set()
