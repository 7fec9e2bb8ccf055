"""`ppax envs`: installed environments, extras, description of one environment."""

import json

import pytest

import ppax
from ppax.cli import envs, main
from ppax.envs import BUILTIN, ActionRepeat, TimeLimit, builtin
from ppax.envs.suites import registry


def listed(capsys, *arguments):
    assert main.main(["envs", *arguments]) == 0
    return capsys.readouterr().out


def test_lists_installed_environments_and_extras(capsys, monkeypatch):
    ids = registry.ids
    own = {"gymnax": ["CartPole-v1", "Catch-bsuite"], "envpool": [f"Game-{i}" for i in range(400)]}
    monkeypatch.setattr(registry, "installed", lambda suite: suite in own or suite == "gymnasium")
    monkeypatch.setattr(registry, "ids", lambda suite: own[suite] if suite in own else ids(suite))
    text = listed(capsys)
    assert all(f"\n  {name:<24}  Environment " in text for name in BUILTIN)
    assert "  gymnax/Catch-bsuite\n" in text
    assert 'brax/ID          pip install "ppax[brax]"' in text
    found = json.loads(listed(capsys, "--json"))
    host = found["installed"].pop("gymnasium")
    assert found["installed"] == own
    assert "  envpool/Game-19\n  and 380 more: --json\n" in text
    assert {"CartPole-v1", "HalfCheetah-v5"} <= set(host)
    assert not {"CartPole-v0", "HalfCheetah-v4"} & set(host)  # newest versions only
    assert "jumanji" in found["extras"]
    assert "atari" in found["extras"]
    assert not {"gymnax", "gymnasium"} & set(found["extras"])


def test_a_suite_that_fails_to_import_is_reported_and_others_are_listed(capsys, monkeypatch):
    def ids(suite):
        if suite == "brax":
            raise AttributeError("module 'jax' has no attribute 'old'")
        return [f"{suite}-v0"]

    monkeypatch.setattr(registry, "installed", lambda suite: suite in ("brax", "navix"))
    monkeypatch.setattr(registry, "ids", ids)
    text = listed(capsys)
    assert "brax is installed and cannot be imported: AttributeError: module 'jax' has no attribute 'old'" in text
    assert "navix/navix-v0" in text


def test_what_an_environment_has_none_of_is_no_line(capsys, monkeypatch):
    about = {"agents": 2, "time_limit": None, "env_params": {}, "can_be_drawn": []}
    monkeypatch.setattr(envs, "describe_env", lambda name: about)
    assert listed(capsys, "Any-v0") == "agents      2\ntime_limit  none\n"
    assert json.loads(listed(capsys, "Any-v0", "--json")) == about


def test_describes_one_environment(capsys):
    about = json.loads(listed(capsys, "Pursuit-3", "--json"))
    assert about["agents"] == 3
    assert about["time_limit"] == 200
    assert about["action_space"] == "Box(-3.1415927, 3.1415927, (1,), float32)"
    assert about["task"].startswith("Environment in which a prey flees from predators")
    text = listed(capsys, "CartPole-v1-masked")
    assert "time_limit         500" in text
    assert "\ntask               Environment CartPole: a pole is kept upright on a cart" in text


def test_an_unknown_environment_id_is_refused(capsys):
    assert main.main(["envs", "CartPole-v2"]) == 2
    assert "did you mean 'CartPole-v1'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("LunarLander-v3", "did you mean 'gymnasium/LunarLander-v3'"),
        ("gym/LunarLander-v3", "did you mean 'gymnasium/LunarLander-v3'"),
        ("CartPole", "did you mean 'CartPole-v1'"),
        ("LunarLander-v3", "`ppax train gymnasium/LunarLander-v3`"),
        ("nothing", "no environment 'nothing'; `ppax envs` lists"),
        ("nothing/Here", "no suite 'nothing': must be one of .*gymnasium"),
    ],
)
def test_suggestions_are_similar_names_of_ppax_and_gymnasium(name, text):
    with pytest.raises(ppax.ConfigError, match=text) as error:
        ppax.make(name, 2)
    assert len(str(error.value)) < 250


@pytest.mark.parametrize(
    ("env", "limit"),
    [
        (builtin.CartPole(), None),
        (TimeLimit(builtin.CartPole(), 10), 10),
        (ActionRepeat(TimeLimit(builtin.CartPole(), 10), 4), 3),  # repeated steps
        (TimeLimit(ActionRepeat(builtin.CartPole(), 4), 10), 10),
    ],
)
def test_time_limits_count_steps_of_the_agent(env, limit):
    assert envs.time_limit(env) == limit


def test_a_module_in_place_of_its_class_is_recognised(tmp_path, monkeypatch):
    (tmp_path / "river.py").write_text("raise SystemExit('was imported')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ppax.ConfigError, match=r"no environment 'river'; river.py is here: write river:NAME"):
        ppax.make("river")
