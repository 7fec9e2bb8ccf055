"""Environments that fail when they are created, reset or stepped for the first time: training and `check_env`."""

from functools import partial

import gymnasium
import pytest
from gymnasium.vector import SyncVectorEnv

import ppax
from ppax.cli import main
from ppax.envs import EnvError, host
from ppax.networks import mlp
from support.host_worlds import Maze, Quits


def fit(env):
    return ppax.fit(ppax.PPO(mlp(env, hidden=(8,))), env, 32, num_steps=8, log=ppax.config.Log(console=False))


class OldStep(Maze):
    """Maze with the four results of a step that Gym had before 0.26."""

    def step(self, action):
        return super().step(action)[:4]


class NoInfo(Maze):
    """Maze whose step returns None in the place of the info."""

    def step(self, action):
        return (*super().step(action)[:4], None)


@pytest.mark.parametrize(("world", "said"), [(OldStep, "a tuple of 4: ndarray"), (NoInfo, "bool, NoneType")])
def test_a_step_without_info_is_explained(world, said):
    for given in (world, world()):
        check = ppax.check_env(given)["interface"]
        assert check.passed is False
        assert said in check.text
    with pytest.raises(ppax.ConfigError, match=rf"interface: step returns .*{said}.*step returns five values"):
        fit(host(world, 2))


class Fails(Maze):
    """Maze that raises an exception in its constructor or its first reset; `after` calls of that kind succeed."""

    calls = 0

    def __init__(self, where, error, after=0):
        self.where, self.error, self.after = where, error, after
        self._fail("constructor")

    def reset(self, **options):
        self._fail("first reset")
        return super().reset(**options)

    def _fail(self, where):
        Fails.calls += where == self.where
        if where == self.where and Fails.calls > self.after:
            raise self.error("no map.txt")


ERRORS = [OSError, RuntimeError, TypeError, SystemExit]


@pytest.fixture
def registered():
    """Register an environment as Fails-v0; `registered(where, error)` says how it fails."""

    def register(where, error):
        Fails.calls = 0
        gymnasium.registry.pop("Fails-v0", None)
        gymnasium.register("Fails-v0", partial(Fails, where, error), disable_env_checker=True)

    yield register
    gymnasium.registry.pop("Fails-v0", None)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("where", ["constructor", "first reset"])
def test_a_failure_before_the_first_step_is_an_error_of_the_environment(where, error, registered, capsys):
    """It has the name of the environment, the call and the traceback; the exit code is 3."""
    registered(where, error)
    said = rf"(?s)gymnasium/Fails-v0 failed in its {where}\n.*test_first_calls.*{error.__name__}: no map\.txt"
    for options in ({}, {"vectorization": "async"}):
        with pytest.raises(EnvError, match=said):
            ppax.make("gymnasium/Fails-v0", 2, **options)
    assert main.main(["train", "gymnasium/Fails-v0", "--no-cache"]) == 3
    assert f"ppax: gymnasium/Fails-v0 failed in its {where}\n" in capsys.readouterr().err
    assert main.main(["check-env", "gymnasium/Fails-v0", "--no-cache"]) == 1
    out = capsys.readouterr()
    line = f"FAIL interface    gymnasium/Fails-v0 failed in its {where}: {error.__name__}: no map.txt"
    assert line in out.out + out.err
    assert "Traceback" not in out.out + out.err


@pytest.mark.parametrize("where", ["constructor", "first reset"])
def test_functions_and_vectors_are_named(where):
    for after in range(3):  # creations and resets before training, one after the other
        Fails.calls = 0
        with pytest.raises(EnvError, match=r"no map\.txt"):
            fit(host(partial(Fails, where, OSError, after), 2))
    Fails.calls = 0
    named = lambda: Fails(where, ValueError)  # noqa: E731
    named.__name__ = "river"
    with pytest.raises(EnvError, match=f"river failed in its {where}\n"):
        host(named, 2)
    report = ppax.check_env(host([Maze, partial(Fails, "constructor", ValueError)]))
    assert "ValueError: no map.txt" in report["interface"].text
    with pytest.raises(EnvError, match=r"SyncVectorEnv.* failed in its first reset\n"):
        host(SyncVectorEnv([partial(Fails, "first reset", OSError)]))


def test_a_constructor_that_fails_later_names_the_environment():
    for how in ("sync", "async"):
        env = host([Maze, partial(Quits, "make")], vectorization=how)
        with pytest.raises(EnvError, match="environment 1 failed in its constructor\n"):
            env.host.reset([0, 1])


def test_own_errors_and_missing_libraries_keep_their_messages(registered):
    """A missing library is an ImportError, a wrong argument of the constructor a ConfigError."""
    registered("constructor", partial(gymnasium.error.DependencyNotInstalled))
    with pytest.raises(ImportError, match=r"gymnasium/Fails-v0: no map\.txt"):
        ppax.make("gymnasium/Fails-v0", 2)
    registered("constructor", ppax.ConfigError)
    with pytest.raises(ppax.ConfigError, match=r"^no map\.txt"):
        ppax.make("gymnasium/Fails-v0", 2)
    registered("constructor", ImportError)
    with pytest.raises(ImportError, match=r"gymnasium/Fails-v0: no map\.txt"):
        ppax.make("gymnasium/Fails-v0", 2)
    with pytest.raises(ppax.ConfigError, match=r"env_params of gymnasium/Fails-v0: winds = 3: .*'winds'"):
        ppax.make("gymnasium/Fails-v0", 2, env_params={"winds": 3})
    with pytest.raises(ppax.ConfigError, match=r"env_params winds: .*no arguments"):
        host(Maze, 2, env_params={"winds": 3})
    with pytest.raises(ppax.ConfigError, match="did you mean 'gymnasium/Fails-v0'"):
        ppax.make("gymnasium/Failz-v0", 2)
