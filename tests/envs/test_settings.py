"""Settings of an environment: kept where it is made, equal for one program, changed for evaluation; the timeout."""

import dataclasses
import functools
import tomllib

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import ConfigError, config
from ppax.cli import options
from ppax.cli.main import main
from ppax.config import Log
from ppax.core.types import EnvReset, EnvStep, Scalar, number, part
from ppax.envs import ActionRepeat, PartialView, TimeLimit, VectorEnv, builtin, grouped, host
from ppax.envs.wrappers.params import Randomised
from ppax.networks import mlp
from ppax.run.fit import fit_run
from ppax.training.backends import backend_of

DRAWN = {"low": 2.0, "high": 3.0}
HOSTED = "gymnasium/CartPole-v1"


@part
class Slope:
    """Position that rises by `slope` a step, which is also the reward."""

    slope: Scalar = number("rise per step", default=1.0, low=0.0)
    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)
    num_agents = None

    def reset(self, key):
        return EnvReset(jnp.zeros(()), jnp.zeros(1))

    def step(self, state, action, key):
        state = state + self.slope
        off = jnp.zeros((), bool)
        return EnvStep(state, state[None], jnp.float32(self.slope), off, off)


class Bare:
    """Environment that is no part."""

    observation_space, action_space, num_agents = Slope.observation_space, Slope.action_space, None


def own(repeats=1):
    env = TimeLimit(Slope(), 10)
    return VectorEnv(env if repeats == 1 else ActionRepeat(env, repeats), 4, "mine")


def made(**settings):
    return ppax.make(settings.pop("env", "CartPole-v1"), settings.pop("num_envs", 4), **settings)


# ---------------------------------------------------------------- kept, compared, recorded


@pytest.mark.parametrize("name", ["CueCorridor-10", "probe/Constant", "CartPole-v1", "pgx/tic_tac_toe"])
def test_a_time_limit_can_be_given_to_any_compiled_environment(name):
    if "/" in name and "probe" not in name:
        pytest.importorskip(name.partition("/")[0])
    env = ppax.make(name, 2, env_params={"max_steps": 3})
    assert backend_of(env).time_limit == 3


def test_an_environment_has_the_settings_that_it_was_made_with():
    drawn = {"gravity": {"low": 8.0, "high": 9.0}}
    env = made(action_repeat=2, env_params=drawn)
    expected = dict.fromkeys(("agent_ids", "central_critic"), False) | {
        "env": "CartPole-v1",
        "num_envs": 4,
        "action_repeat": 2,
        "vectorization": "sync",
        "timeout": 60.0,
        "info_metrics": None,
        "env_params": drawn,
        "clip_actions": None,
        "stagger": False,
    }
    assert env.settings.run_fields() == expected
    assert env.settings.by_name
    assert dataclasses.replace(env, num_envs=7).settings.num_envs == 7
    other = made(env=HOSTED, vectorization="async", timeout=5.0).settings
    assert (other.env, other.num_envs, other.vectorization, other.timeout) == (HOSTED, 4, "async", 5.0)
    team = grouped(made(env="Pursuit-2", agent_ids=True), {"prey": [0], "hunter": [1]})
    assert (dict(team.settings.players), team.settings.agent_ids) == ({"prey": (0,), "hunter": (1,)}, True)


def test_an_environment_made_by_hand_says_so():
    for env in (own(), host(lambda: gymnasium.make("CartPole-v1"), 2)):
        assert not env.settings.by_name
        assert env.settings.env == env.name


def test_settings_that_change_no_program_compile_none_again():
    """Numbers of an environment are leaves; the timeout of worker processes is no part of a program."""
    traced = []
    step = jax.jit(lambda env: traced.append(1) or jnp.zeros(()))
    for gravity in (9.0, 10.0):
        step(made(env_params={"gravity": gravity}))
    assert len(traced) == 1
    for timeout in (5.0, 50.0):
        step(made(env=HOSTED, vectorization="async", timeout=timeout))
    assert len(traced) == 2
    step(made(env_params={"max_x": 1.0}))  # static
    assert len(traced) == 3


def test_groups_of_one_agent_on_the_host_are_refused():
    with pytest.raises(ConfigError, match="CartPole-v1 has one agent and no others; leave `players` out"):
        grouped(made(env=HOSTED), {"a": [0]})


# ---------------------------------------------------------------- timeout


def test_timeout_of_run_file_and_command_line():
    plan = {"env": HOSTED, "num_envs": 2, "vectorization": "async", "timeout": 120}
    built = config.build(plan)
    assert built.env.settings.timeout == built.run.timeout == 120.0
    assert config.resolve({})["timeout"] == 60.0
    words = f"{HOSTED} --vectorization async --timeout 120"
    assert options.parse_run("train", words.split(), options.add_train)[1]["timeout"] == 120.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"timeout": 5.0}, "timeout = 5.0: CartPole-v1 is stepped inside the compiled program; leave it out"),
        ({"env": HOSTED, "timeout": 5.0}, 'vectorization = "async" starts; leave it out'),
        ({"env": HOSTED, "vectorization": "async", "timeout": 0}, "timeout = 0.0: must be above 0"),
        (
            {"env": HOSTED, "vectorization": "async", "timeout": float("nan")},
            "must be a finite number",
        ),
        ({"env": HOSTED, "vectorization": "async", "timeout": "5"}, "must be of type float"),
    ],
)
def test_a_timeout_out_of_range_or_without_effect_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        made(**settings)


def test_the_command_line_refuses_a_timeout_that_does_nothing(capsys):
    assert main(["train", "CartPole-v1", "--timeout", "120"]) == 2
    assert "timeout = 120.0: CartPole-v1 is stepped inside" in capsys.readouterr().err


# ---------------------------------------------------------------- parameters of an environment of one's own


@pytest.mark.parametrize("repeats", [1, 2])
def test_build_sets_parameters_of_an_environment_of_ones_own(repeats):
    env = config.build({"env_params": {"slope": 2.0, "max_steps": 5}}, env=own(repeats)).env
    inner = env.env.env if repeats == 2 else env.env
    assert inner == TimeLimit(Slope(2.0), 5)
    assert env.settings.env_params == {"slope": 2.0, "max_steps": 5}
    assert config.build({"env_params": {"slope": 2.0}}, env=env).env is env


def test_sampled_parameters_can_be_set_again():
    env = config.build({"env_params": {"slope": DRAWN}}, env=own(2)).env
    assert isinstance(env.env, ActionRepeat)
    assert isinstance(env.env.env, Randomised)
    assert ppax.envs.other_params(env, {"max_steps": 3}).env.env.low == {"slope": 2.0}
    fixed = ppax.envs.other_params(env, {"slope": 4.0})
    assert fixed.env == ActionRepeat(TimeLimit(Slope(4.0), 10), 2)


def test_evaluation_has_parameters_of_its_own(tmp_path):
    plan = {
        "num_steps": 8,
        "total_steps": 64,
        "env_params": {"slope": 2.0},
        "eval": {"episodes": 4, "env_params": {"max_steps": 3}},
        "log": {"console": False},
        "agent": {"network": {"hidden": [4]}, "num_epochs": 1},
    }
    agent, env, run = config.build(plan, env=own())
    trained = fit_run(agent, env, run, tmp_path / "run")
    assert trained.history[-1]["episode_return"] == 20.0  # 10 steps, each 2
    assert trained.evaluate(4).returns.tolist() == [6.0] * 4  # 3 steps
    again = ppax.resume(tmp_path / "run", env=own(), console=False)  # gets the run's parameters
    assert again.evaluate(4).returns.tolist() == [6.0] * 4


def test_a_changed_environment_made_by_name_stays_changed():
    env = made()
    viewed = dataclasses.replace(env, env=PartialView(env.env, (0, 2)))
    assert ppax.envs.other_params(viewed, {"gravity": 3.0}).env == PartialView(
        TimeLimit(builtin.CartPole(gravity=3.0), 500), (0, 2)
    )


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (own, "unknown option 'env_params.slop'; did you mean 'slope'"),
        (lambda: VectorEnv(Bare(), 4), "this environment has no parameters; .* declared with ppax.number"),
        (lambda: host(lambda: gymnasium.make("CartPole-v1"), 2), r"ppax.envs.host\(MyEnv, 8, env_params="),
    ],
)
def test_parameters_that_cannot_be_set_are_refused_with_the_remedy(env, message):
    with pytest.raises(ConfigError, match=message):
        ppax.envs.other_params(env(), {"slop": 1.0})


def test_evaluation_parameters_of_a_host_environment_of_ones_own_are_refused_before_training():
    env = host(functools.partial(gymnasium.make, "CartPole-v1"), 2)
    agent = ppax.PPO(mlp(env, (4,)))
    run = config.Run(**env.settings.run_fields(), log=Log(console=False))
    run = dataclasses.replace(run, eval=config.EvalSettings(env_params={"gravity": 1.0}))
    with pytest.raises(ConfigError, match=r"functools\.partial"):
        fit_run(agent, env, run)


def test_a_function_in_the_place_of_an_id_is_refused_with_the_call_for_own_environments():
    with pytest.raises(ConfigError, match=r"must be a string.*ppax\.envs\.host\(MyEnv"):
        ppax.make(builtin.CartPole)


@pytest.mark.parametrize(
    ("name", "given", "recorded"),
    [
        ("CartPole-v1", {"gravity": np.float32(9.5), "max_steps": np.int64(7)}, {"gravity": 9.5, "max_steps": 7}),
        ("CartPole-v1", {"gravity": {"low": jnp.float32(9.5), "high": np.array(10.5)}}, None),
        ("gymnasium/FrozenLake-v1", {"desc": np.array(["SF", "FG"])}, {"desc": ["SF", "FG"]}),
        ("gymnasium/FrozenLake-v1", {"desc": None, "map_name": "4x4"}, {"map_name": "4x4"}),  # Gymnasium's own example
    ],
)
def test_a_run_file_has_parameters_as_python_values(name, given, recorded):
    env = ppax.make(name, 2, env_params=given)
    recorded = {"gravity": {"low": 9.5, "high": 10.5}} if recorded is None else recorded
    run_config = config.describe_run(ppax.PPO(mlp(env, hidden=(4,))), env, config.Run(**env.settings.run_fields()))
    read = tomllib.loads(config.to_toml(run_config))["env_params"]
    assert read == recorded == env.settings.env_params
    assert config.build_env(run_config | {"env_params": read}).settings.env_params == recorded


def test_numpy_values_can_be_set_afterwards():
    env = ppax.envs.other_params(ppax.make("CartPole-v1", 2), {"gravity": np.float32(9.5)})
    assert env.settings.env_params == {"gravity": 9.5}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"map_name": None, "desc": ["SF", "FG"]}, "env_params.map_name = None: a run file has no None"),
        ({"desc": gymnasium.spaces.Discrete(2)}, "env_params.desc = .*: a run file cannot hold a Discrete"),
        ({"reward_schedule": {"a": [1, None]}}, "env_params.reward_schedule.a.1 = None"),
    ],
)
def test_parameters_that_no_run_file_holds_are_refused_before_there_is_a_directory(given, message, tmp_path):
    env = ppax.make("gymnasium/FrozenLake-v1", 2)
    env = dataclasses.replace(env, made=dataclasses.replace(env.made, env_params=given))
    agent = ppax.PPO(mlp(env, hidden=(4,)), num_epochs=1)
    with pytest.raises(ConfigError, match=message):
        ppax.fit(agent, env, 16, run_dir=tmp_path / "run", num_steps=8, log=Log(console=False))
    assert not (tmp_path / "run").exists()
