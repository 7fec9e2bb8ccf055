"""Run files in YAML: the same content as TOML and JSON, YAML 1.2's scalars, and refusals of all but plain data."""

import json
import sys
import tomllib
from itertools import pairwise

import pytest
import yaml

from ppax import ConfigError, config
from ppax.cli import main
from ppax.core.untrusted import YAML_LIMIT, from_yaml

RUN = """
env: CartPole-v1
num_envs: 4            # a comment
total_steps: 1_000
agent:
  learning_rate: 1e-3
  max_grad_norm: null
  normalize_advantage: off
  network:
    hidden: [8, 8]
    memory: {part: gru, width: 4}
"""
SAME = """
env = "CartPole-v1"
num_envs = 4
total_steps = 1000

[agent]
learning_rate = 1e-3
max_grad_norm = "none"
normalize_advantage = "off"

[agent.network]
hidden = [8, 8]
memory = { part = "gru", width = 4 }
"""


@pytest.mark.parametrize("name", ["run.yaml", "run.yml"])
def test_a_run_file_in_yaml_is_the_run_file_in_toml(name, tmp_path, capsys):
    """For `ppax train`, and in Python; the record is TOML."""
    (tmp_path / name).write_text(RUN)
    (tmp_path / "run.toml").write_text(SAME)
    assert config.resolve(config.find(str(tmp_path / name))) == config.resolve(tomllib.loads(SAME))
    printed = []
    for file in (name, "run.toml"):
        assert main.main(["train", str(tmp_path / file), "--seed", "7", "--dry-run"]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert tomllib.loads(printed[0])["agent"]["learning_rate"] == 1e-3


@pytest.mark.parametrize("name", sorted(config.presets()))
def test_every_preset_is_the_same_in_yaml(name):
    """Written by PyYAML, and as JSON, which is YAML, too."""
    content = config.preset(name)
    assert from_yaml(yaml.safe_dump(content)) == content
    assert from_yaml(json.dumps(content)) == content


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),  # a text in YAML 1.1
        ("5.", 5.0),
        ("-.5", -0.5),
        ("+1_000", 1000),
        ("010", 10),  # 8 in YAML 1.1
        ("0o10", 8),
        ("0x1F", 31),
        ("1:30", "1:30"),  # 90 in YAML 1.1
        ("on", "on"),  # true in YAML 1.1
        ("NO", "NO"),
        ("True", True),
        ("false", False),
        ("~", None),
        ("", None),
        ("-.inf", float("-inf")),
        ("'1e-3'", "1e-3"),
        ('"true"', "true"),
        ("2020-01-01", "2020-01-01"),
        ("<<", "<<"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text, value):
    found = from_yaml(f"x: {text}")["x"]
    assert found == value
    assert type(found) is type(value)


NAMES = "abcdefghi"
BOMB = "a: &a [x, x]\n" + "".join(f"{new}: &{new} [*{old}, *{old}]\n" for old, new in pairwise(NAMES))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOMB, "line 1: an anchor or alias, 'a': write the value where it is used"),
        ("x: *a", "an anchor or alias, 'a'"),
        ("x: &a 1", "an anchor or alias, 'a'"),
        ("x: !!python/object/apply:os.system ['true']", "line 1: a tag, 'tag:yaml.org,2002:python/object/apply:os.sys"),
        ("x: !!binary aGk=", "a tag, 'tag:yaml.org,2002:binary'"),
        ("! x", "a tag, '!'"),
        ("env: a\nenv: b", "line 2: the key 'env' is given twice in one table"),
        ("1: x", "line 1: a key, 1, that is no text; quote it"),
        ("? {a: 1}\n: x", "that is no text"),
        ("a: 1\n---\nb: 2", "several documents"),
        ("x: " + "[" * 1000, "nested more than 100 deep"),
        ("x: " + "9" * 400, "more than 300 digits"),
        ("x: [1", "line 1: expected ',' or ']'"),
        ("x: \0", "unacceptable character"),
        ("#" * (YAML_LIMIT + 1), "must have at most 262,144 in YAML"),
        ("- env", "must be a table of options, not list"),
        ("agnet:\n  gamma: 0.5", "agnet"),
    ],
    ids=lambda text: str(text)[:20],
)
def test_all_but_plain_data_is_refused(text, said, tmp_path, capsys):
    (tmp_path / "run.yaml").write_text(text)
    assert main.main(["train", str(tmp_path / "run.yaml"), "--dry-run"]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert said in error
    assert "Traceback" not in error


def test_without_pyyaml_the_extra_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "yaml", None)
    (tmp_path / "run.yaml").write_text(RUN)
    assert main.main(["train", str(tmp_path / "run.yaml")]) == 2
    assert 'pip install "ppax[yaml]"' in capsys.readouterr().err
    with pytest.raises(ImportError, match=r"ppax\[yaml\]"):
        config.find(str(tmp_path / "run.yaml"))


def test_a_text_in_the_place_of_a_number_is_refused(tmp_path):
    (tmp_path / "run.yaml").write_text("num_envs: 4 or 5")
    with pytest.raises(ConfigError, match=r"num_envs = '4 or 5': must be of type int"):
        config.resolve(config.find(str(tmp_path / "run.yaml")))
