"""`check_env` on the host: healthy environments pass, each fault is found under its name, and training refuses some."""

import itertools
import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import ppax
from ppax.cli import main
from ppax.envs import EnvError, host
from ppax.networks import mlp
from support.host_worlds import BOX, FEATURES, Maze, Spaces

MASK = np.array([0, 1, 1], np.int8)
EVERYTHING = spaces.Dict(a=spaces.Discrete(3, start=-1), b=spaces.Tuple([BOX, spaces.MultiBinary(2)]))
MODES = [SyncVectorEnv([Maze] * 3, autoreset_mode=mode) for mode in AutoresetMode]


@pytest.mark.parametrize(
    "env",
    [
        "gymnasium/CartPole-v1",
        "gymnasium/Taxi-v4",
        Maze(),
        Maze,
        host([Maze, Maze]),
        *MODES,
        lambda: Spaces(EVERYTHING, spaces.MultiDiscrete([2, 3])),
    ],
    ids=lambda env: env if isinstance(env, str) else "",
)
def test_healthy_environments_pass(env):
    report = ppax.check_env(env)
    assert not [check.name for check in report.checks if check.passed is False and check.name != "seeds"], str(report)
    assert report["interface"].number > 900


class Changed(Maze):
    """A maze of which one thing is changed: what `reset` and `step` give goes through `change`."""

    def __init__(self, change=lambda env, out: out, **spaces):
        self.change = change
        vars(self).update(spaces)

    def reset(self, *, seed=None, options=None):
        return self.change(self, super().reset(seed=seed))

    def step(self, action):
        return self.change(self, super().step(action))


def only_step(index, value):
    """Another value at one place of what `step` returns."""

    def change(env, out):
        return out if len(out) == 2 else (*out[:index], value(out[index]), *out[index + 1 :])

    return change


def obs(value):
    return lambda env, out: (value(out[0]), *out[1:])


class Deaf(Changed):
    """Does not listen to its seed."""

    COUNT = itertools.count()

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=next(Deaf.COUNT))


class Frozen(Changed):
    """Starts its generator anew at every reset."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=7 if seed is None else seed)


class Stale(Changed):
    """Does not set its clock back."""

    time = 0

    def reset(self, *, seed=None, options=None):
        before = self.time
        out = super().reset(seed=seed)
        self.time = before
        return out


class Resetting(Changed):
    """Resets itself."""

    last = None

    def reset(self, *, seed=None, options=None):
        out, self.last = self.last or super().reset(seed=seed), None
        return out if seed is None else super().reset(seed=seed)

    def step(self, action):
        out = super().step(action)
        if out[2] or out[3]:
            self.last = super().reset()
            return (self.last[0], *out[1:])
        return out


def moody(env, out):
    """Another reward than the last time."""
    return out if len(out) == 2 else (out[0], float(np.random.default_rng().random()), *out[2:])


FAULTS = {
    "no info": (
        lambda: Changed(lambda env, out: out[0] if len(out) == 2 else out),
        "interface",
        "reset returns a ndarray",
    ),
    "old step": (
        lambda: Changed(lambda env, out: out[:4] if len(out) == 5 else out),
        "interface",
        "a tuple of 4: ndarray",
    ),
    "raises": (lambda: Changed(only_step(0, lambda x: x / "0")), "interface", "raised"),
    "space": (lambda: Changed(action_space=spaces.Text(3)), "declared", "supported are Box"),
    "broadcast": (lambda: Changed(obs(lambda x: x[:1])), "shapes", "the shape [1], its space [5]"),
    "kind": (
        lambda: Changed(observation_space=spaces.Box(-9, 9, (FEATURES + 1,), np.int32)),
        "shapes",
        "obs is float32, which cannot be cast to int32",
    ),
    "entries": (lambda: Changed(obs(lambda x: {"a": x})), "shapes", "obs is a dict, not an array"),
    "no array": (lambda: Changed(obs(lambda x: None)), "shapes", "obs is a NoneType, not an array"),
    "reward array": (lambda: Changed(only_step(1, lambda x: np.array([x]))), "shapes", "reward has the shape [1]"),
    "no flag": (lambda: Changed(only_step(3, lambda x: None)), "shapes", "truncated is None, a NoneType"),
    "precision": (lambda: Changed(obs(lambda x: x.astype(np.float64))), "types", "obs is float64 after reset"),
    "whole flag": (lambda: Changed(only_step(2, int)), "types", "terminated is int64, not a bool"),
    "reward bool": (lambda: Changed(only_step(1, bool)), "types", "reward is True, not a number"),
    "nan obs": (lambda: Changed(only_step(0, lambda x: x * np.nan)), "finite", "obs[0] is nan after step"),
    "nan reward": (lambda: Changed(only_step(1, lambda x: np.nan)), "finite", "the reward is nan"),
    "outside": (
        lambda: Changed(observation_space=spaces.Box(-9, 0, (FEATURES + 1,), np.float32)),
        "spaces",
        "is outside [-9, 0]",
    ),
    "category": (
        lambda: Changed(obs(lambda x: np.int64(3)), observation_space=spaces.Discrete(3)),
        "spaces",
        "obs = 3 is outside [0, 2]",
    ),
    "mask size": (
        lambda: Spaces(BOX, spaces.Discrete(4), MASK),
        "masks",
        "has the shape [3]; the masks of Discrete(4) are [4]",
    ),
    "mask empty": (lambda: Spaces(BOX, spaces.Discrete(3), 0 * MASK), "masks", "it allows nothing after reset"),
    "deaf": (Deaf, "seeds", "the first observation differs when it is reset with the same seed again"),
    "moody": (lambda: Changed(moody), "seeds", "step 1 differs when the same seed and actions are given again"),
    "frozen": (Frozen, "resets", "8 resets without seed 1"),
    "stale": (Stale, "episodes", "the first step ends all others"),
    "resetting": (Resetting, "episodes", "is the first of the next one"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_in_the_report(fault):
    make, name, said = FAULTS[fault]
    report = ppax.check_env(make())
    check = report[name]
    assert check.passed is False, str(report)
    assert said in check.text
    assert check.advice
    assert not report.passed


def test_the_second_of_several_is_looked_at_too():
    report = ppax.check_env(host([Maze, lambda: Changed(obs(lambda x: x.astype(np.float64)))]))
    assert "obs is float64" in report["types"].text
    for makers in ([Stale, Maze], [Maze, Stale]):
        assert "the first step ends all others" in ppax.check_env(host(makers))["episodes"].text
    one, other = Maze, lambda: Changed(only_step(3, lambda x: None))
    assert "truncated is None" in ppax.check_env(host([one, other]))["shapes"].text


# ---------------------------------------------------------------- before training

REFUSED = ["no info", "broadcast", "kind", "entries", "no flag", "space"]


@pytest.mark.parametrize("fault", REFUSED)
def test_training_refuses_what_cannot_work_before_it_compiles(fault, monkeypatch):
    make, name, _ = FAULTS[fault]
    good = host(Maze, 2)
    agent = ppax.PPO(mlp(good, hidden=(8,)))
    monkeypatch.setattr("ppax.training.backends.compile", lambda *_: pytest.fail("it compiled"))
    bad = host([Maze, make], name="bad")  # the first one is healthy: making the environments says nothing yet
    with pytest.raises(ppax.ConfigError, match=f"environment bad: {name}"):
        ppax.fit(agent, bad, 32, num_steps=8)


def test_an_environment_that_raises_at_once_is_a_fault_of_the_environment():
    env = host([Maze, FAULTS["raises"][0]])
    with pytest.raises(EnvError, match=r"(?s)first reset or step.*test_check_host.*TypeError"):
        ppax.fit(ppax.PPO(mlp(env, hidden=(8,))), env, 32, num_steps=8)


def test_every_environment_is_compared_with_its_spaces_when_it_first_steps():
    """Also one that stands behind those that are looked at before training."""
    late = [Maze] * 4 + [FAULTS["broadcast"][0]]
    env = host([lambda f=f: f() for f in late])
    with pytest.raises(EnvError, match=r"environment 4 failed in reset\n.*shape \[1\], its space \[5\]"):
        ppax.fit(ppax.PPO(mlp(env, hidden=(8,))), env, 40, num_steps=8)


def test_command_line(capsys):
    gymnasium.register("Bad-v0", lambda: Changed(only_step(2, int)), disable_env_checker=True)
    try:
        assert main.main(["check-env", "gymnasium/Bad-v0", "--json"]) == 1
    finally:
        del gymnasium.registry["Bad-v0"]
    out, said = capsys.readouterr()
    assert "terminated is int64, not a bool" in said
    assert [check["name"] for check in json.loads(out)["checks"] if check["passed"] is False] == ["types"]
    assert main.main(["check-env", "gymnasium/Pendulum-v1"]) == 0


def test_parameters_of_a_named_environment(capsys):
    assert main.main(["check-env", "gymnasium/CartPole-v1", "--env-params.max_episode_steps", "5"]) == 0
    assert "episodes ended, after 5 to 5 steps" in capsys.readouterr().out
    with pytest.raises(ppax.ConfigError, match="env_params of gymnasium/CartPole-v1: size = 5"):
        ppax.check_env("gymnasium/CartPole-v1", env_params={"size": 5})
    with pytest.raises(ppax.ConfigError, match=r"are for an environment that is named, .* this one, .*Maze"):
        ppax.check_env(Maze, env_params={"size": 5})


@pytest.mark.parametrize(("factor", "passed"), [(1.1, False), (1.0, True)])
def test_observations_that_grow_by_orders_of_magnitude_fail(factor, passed):
    def grow(env, out):
        env.steps = 0 if len(out) == 2 else env.steps + 1
        return (np.full(3, factor**env.steps, np.float32), *out[1:])

    def flat(env, out):
        changed = grow(env, out)
        return (*changed[:2], False, False, changed[4]) if len(changed) == 5 else changed

    space = spaces.Box(-np.inf, np.inf, (3,))
    report = ppax.check_env(lambda: Changed(flat, observation_space=space))
    assert report["magnitude"].passed is passed
    assert ("observations grow within an episode" in str(report)) is not passed
    assert report["finite"].passed
