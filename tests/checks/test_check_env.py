"""`check_env`: healthy environments pass, each fault is named in plain words, and training refuses what cannot work."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax.checks import environment, require_sound
from ppax.cli import main
from ppax.core.types import EnvReset, EnvStep, part
from ppax.envs import VectorEnv
from support import broken
from support.worlds import Counter, Masked, Team


@pytest.mark.parametrize("world", [Masked(), Team()])
def test_healthy_environments_pass(world):
    report = ppax.check_env(world)
    assert report.passed, str(report)


def test_a_name_is_enough():
    assert ppax.check_env("CueCorridor-10").passed
    with pytest.raises(ppax.ConfigError, match="did you mean"):
        ppax.check_env("Pendolum-v1")


def test_groups_are_checked_each_in_its_own_spaces():
    report = ppax.check_env(ppax.envs.grouped(ppax.make("Pursuit-3", 8), {"prey": [0], "hunters": [1, 2]}))
    assert report.passed, str(report)
    for name in ("finite", "magnitude", "spaces"):
        assert [report[f"{name}/{group}"].passed for group in ("prey", "hunters")] == [True, True]
    assert "the agents are in groups" in report["alignment"].text


def test_a_fault_of_one_group_is_named_with_the_group():
    inner = ppax.envs.grouped(ppax.make("Pursuit-3", 8), {"prey": [0], "hunters": [1, 2]}).env

    @part
    class Declared(type(inner)):
        @property
        def observation_space(self):
            declared = super().observation_space
            return spaces.Dict({**declared.spaces, "prey": spaces.Box(50.0, 60.0, declared["prey"].shape)})

    report = ppax.check_env(VectorEnv(Declared(inner.env, inner.players), 8))
    assert report["spaces/prey"].passed is False
    assert "is outside [50, 60]" in report["spaces/prey"].text
    assert report["spaces/hunters"].passed


# ---------------------------------------------------------------- one fault each


class NoPart:
    """A plain class."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)
    num_agents = None

    def reset(self, key):
        return EnvReset(jnp.int32(0), jnp.zeros(2))

    def step(self, state, action, key):
        return EnvStep(state, jnp.zeros(2), jnp.float32(0), jnp.bool_(False), jnp.bool_(False))


@part
class NoAgents(Counter):
    num_agents = 0


@part
class ListSpace(Counter):
    observation_space = (2,)


@part
class TupleStep(Counter):
    def step(self, state, action, key):
        return tuple(super().step(state, action, key))


@part
class Unreadable(Counter):
    action_space = spaces.Text(3)


@part
class OneValue(Counter):
    action_space = spaces.Box(np.array([0, -1], np.float32), np.array([0, 1], np.float32))


@part
class Weak(Counter):
    def reset(self, key):
        begin = super().reset(key)
        return begin._replace(state=begin.state._replace(episode=0.5))


@part
class Chosen(Counter):
    """An array that is made from Python numbers."""

    def reset(self, key):
        begin = super().reset(key)
        return begin._replace(obs=jnp.where(begin.state.episode > 0, 1.0, -1.0)[None])


@part
class Counts(Counter):
    """Changes itself while it is traced."""

    def step(self, state, action, key):
        object.__setattr__(self, "length", self.length + 1)
        return super().step(state, action, key)


@part
class Keeps(Counter):
    """Appends to a list while it is traced."""

    def __post_init__(self):
        object.__setattr__(self, "seen", [7] * self.length)

    def step(self, state, action, key):
        self.seen.append(0)
        return super().step(state, action, key)


@pytest.mark.parametrize(
    ("world", "check", "said"),
    [
        (NoPart(), environment.check_protocol, "the class is no part: decorate it with @ppax.part"),
        (NoAgents(), environment.check_protocol, "num_agents = 0: must be None"),
        (ListSpace(), environment.check_protocol, "observation_space is a tuple, not one of gymnasium.spaces"),
        (TupleStep(), environment.check_protocol, "step returns a tuple, not an EnvStep"),
        (Unreadable(), environment.check_declared, "supported are Box, Discrete"),
        (OneValue(), environment.check_declared, "a number with one value only"),
        (Weak(), environment.check_types, "state.episode of reset is weakly typed float32: made from Python"),
        (
            Chosen(),
            environment.check_types,
            "obs of reset is weakly typed float32: made from Python numbers; give a dtype",
        ),
        (Counts(), environment.check_side_effects, "length was 3, is 4"),
        (Keeps(2), environment.check_side_effects, "seen was [7, 7], is [7, 7, 0]"),
        (Keeps(40), environment.check_side_effects, "7, 7], is ... 7, 7, 7, 7, 7, 7, 7, 0]"),
    ],
    ids=lambda x: type(x).__name__ if not isinstance(x, str) else "",
)
def test_a_fault_is_named(world, check, said):
    env, key = VectorEnv(world), (jax.random.key(0),)
    found = check(env, *(key if check is not environment.check_declared else ()))
    assert found.passed is False
    assert said in found.text
    assert found.advice


@pytest.mark.parametrize(
    ("world", "name"),
    [
        (NoPart(), "protocol"),
        (broken.WholeNumbers(), "shapes"),
        (broken.KeyTwice(), "keys"),
        (broken.OwnKey(), "resets"),
        (broken.SelfResetting(), "final obs"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_the_report_has_it_under_its_name(world, name):
    report = ppax.check_env(world)
    failed = [check.name for check in report.checks if check.passed is False]
    assert failed == [name], str(report)


@part
class Sized(Counter):
    """An environment whose constructor needs an argument."""

    def __init__(self, size):
        super().__init__(size)


@pytest.mark.parametrize("world", [Counter, Sized])
def test_a_class_in_the_place_of_an_instance_is_named(world):
    said = rf"{world.__name__} is a class with reset and step .* pass an instance, {world.__name__}\(\)"
    for call in (ppax.check_env, ppax.envs.host):
        with pytest.raises(ppax.ConfigError, match=said):
            call(world)


# ---------------------------------------------------------------- before anything compiles


@pytest.mark.parametrize("world", [broken.WholeNumbers(), ListSpace(), Unreadable()])
def test_training_refuses_before_it_compiles(world, monkeypatch):
    env = VectorEnv(world, 4)
    with pytest.raises(ppax.ConfigError, match=f"environment {type(world).__name__}"):
        require_sound(env)
    good = VectorEnv(Counter(3, True), 4)
    agent = ppax.PPO(ppax.networks.mlp(good, hidden=(8,)))
    monkeypatch.setattr("ppax.training.backends.compile", lambda *_: pytest.fail("it compiled"))
    with pytest.raises(ppax.ConfigError, match=f"environment {type(world).__name__}"):
        ppax.fit(agent, env, 64, num_steps=8)


def test_command_line(capsys, monkeypatch):
    monkeypatch.setitem(ppax.envs.BUILTIN, "Outside", lambda: broken.Outside())
    assert main.main(["check-env", "Outside", "--json", "--no-cache"]) == 1
    out, said = capsys.readouterr()
    assert "obs[0] = 3 is outside [0, 2]" in said
    assert [check["name"] for check in json.loads(out)["checks"] if check["passed"] is False] == ["spaces"]


def test_checks_that_were_not_tried_are_one_line_and_are_counted_as_such():
    report = ppax.check_env(broken.WholeNumbers())
    text = str(report)
    assert "FAIL shapes" in text
    waiting = [check.name for check in report.checks if check.text.startswith("not tried")]
    assert len(waiting) == 11
    assert f"-    not tried    {', '.join(waiting)}: an earlier check failed" in text
    assert text.count("not tried") == 2
    assert f"2 passed, 1 failed, 0 do not apply, {len(waiting)} not tried, in" in text
    assert "not tried" not in str(ppax.check_env(Masked()))
