"""`env_params.seen`: the wrapper `PartialView` by name, recorded with the run."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import config
from ppax.cli import main
from ppax.config import Log
from ppax.core.types import ConfigError, part, static
from ppax.envs import ActionFilter, PartialView, TimeLimit, VectorEnv, builtin
from ppax.envs.wrappers.params import parameter_value
from ppax.envs.wrappers.views import partial_view


@part
class SeesItself(builtin.CartPole):
    """Environment with a field of its own called `seen`."""

    seen: int = static("own", default=7)


def observed(env):
    _, obs, _ = env.reset(jax.random.key(3))
    return np.asarray(obs)


def test_the_agent_sees_the_chosen_entries_in_their_order():
    whole = observed(ppax.make("CartPole-v1", 3))
    env = ppax.make("CartPole-v1", 3, env_params={"seen": [2, 0], "gravity": 12.0})
    np.testing.assert_array_equal(observed(env), whole[:, [2, 0]])
    assert env.observation_space.shape == (2,)
    assert parameter_value(env.env, "gravity") == 12.0
    masked = ppax.make("CartPole-v1-masked", 3)
    np.testing.assert_array_equal(observed(ppax.make("CartPole-v1", 3, env_params={"seen": [0, 2]})), observed(masked))


@part
class Bytes(builtin.CartPole):
    """Environment of observations of bytes."""

    observation_space = spaces.Box(np.uint8([0, 1, 2]), np.uint8([7, 8, 9]), dtype=np.uint8)


def test_the_visible_entries_have_the_dtype_of_the_whole_vector():
    assert PartialView(Bytes(), (2, 0)).observation_space == spaces.Box(
        np.uint8([2, 0]), np.uint8([9, 7]), dtype="uint8"
    )


def test_the_filtered_action_is_seen_too():
    env = ppax.make("Pendulum-v1", 2, env_params={"seen": [0, 1], "action_filter": 0.5, "max_steps": 9})
    assert env.observation_space.shape == (3,)
    assert isinstance(env.env, ActionFilter)
    assert isinstance(env.env.env, PartialView)


@pytest.mark.parametrize("seen", [[], [4], [-1], [0, 0], [0.5], [True], "0", 4, {"low": 0, "high": 1}])
def test_other_indices_are_refused(seen):
    with pytest.raises(ConfigError, match=r"env_params\.seen = .* must be different indices from 0 to 3, as \[0, 1\]"):
        ppax.make("CartPole-v1", 2, env_params={"seen": seen})


VECTOR = spaces.Box(-1.0, 1.0, (4,))


@pytest.mark.parametrize(
    ("space", "agents"),
    [(spaces.Dict({"a": VECTOR}), None), (spaces.Box(0, 1, (4, 4)), None), (VECTOR, {"prey": 2})],
    ids=["Dict", "image", "groups"],
)
def test_observations_that_are_no_vector_are_refused(space, agents):
    env = SimpleNamespace(observation_space=space, num_agents=agents)
    with pytest.raises(ConfigError, match=r"env_params\.seen: chooses entries of an observation that is one vector"):
        partial_view(env, [0], "River")


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (PartialView(TimeLimit(builtin.CartPole(), 500), (0, 2)), ("CartPole-v1", {"seen": [0, 2]})),
        (PartialView(ppax.make("CartPole-v1-masked").env, (1,)), ("CartPole-v1-masked", {"seen": [1]})),
    ],
    ids=["built in", "view of a view"],
)
def test_a_wrapper_around_a_built_in_environment_is_recorded_and_built_again(env, expected, tmp_path, capsys):
    env = VectorEnv(env, 4)
    agent = ppax.build(env, agent={"network": {"hidden": [8]}}).agent
    run = ppax.fit(agent, env, 64, run_dir=tmp_path / "run", num_steps=8, log=Log(console=False))
    recorded = config.read(tmp_path / "run" / "run.toml")
    assert (recorded["env"], recorded["env_params"]) == expected
    assert "objects" not in recorded
    assert main.main(["evaluate", str(tmp_path / "run"), "--episodes", "4", "--json"]) == 0
    assert f'"mean_return": {run.evaluate(4).mean_return}' in capsys.readouterr().out


def test_an_environment_with_a_field_of_this_name_is_not_recorded_with_the_wrapper():
    """Its run file could not tell the field from the wrapper."""
    assert config.own_environment(VectorEnv(PartialView(SeesItself(), (0,)), 2)) == {}


def test_the_command_line_trains_with_it(tmp_path, capsys):
    options = ["--num-envs", "4", "--num-steps", "8", "--total-steps", "32", "--agent.network.hidden", "8"]
    options += ["--eval.episodes", "2", "--run-dir", str(tmp_path / "run")]
    assert main.main(["train", "Pendulum-v1", "--env-params.seen", "[0, 1]", *options]) == 0
    assert ppax.load(tmp_path / "run").spec.observation_space.shape == (2,)
    assert main.main(["play", str(tmp_path / "run"), "--max-steps", "3"]) == 0
    assert main.main(["train", "Pendulum-v1", "--env-params.seen", "[0, 3]", *options[:-2]]) == main.USAGE
    assert "indices from 0 to 2" in capsys.readouterr().err
