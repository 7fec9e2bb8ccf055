"""Schedules of an environment's numbers: exact values, ranges, whole numbers, evaluation, records and refusals."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import config
from ppax.cli import options
from ppax.core.types import EnvReset, EnvStep
from ppax.envs import TimeLimit, VectorEnv, other_params
from ppax.envs.curriculum import scheduled
from ppax.ppo.schedules import Both, Cosine, Interpolated, Linear, Steps
from ppax.run.fit import fit_run

ITERATIONS = 4


@ppax.part
class Gust:
    """Part inside the environment."""

    speed: float = ppax.number("speed of the wind", default=2.0, low=0.0, high=100.0)


@ppax.part
class Windy:
    """Every step's reward is the wind's speed; actions do nothing."""

    wind: Gust = Gust()
    size: int = ppax.static("size", default=1)
    num_agents = None

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, key):
        return EnvReset(jnp.zeros(()), jnp.zeros(1))

    def step(self, state, action, key):
        return EnvStep(state, jnp.zeros(1), jnp.float32(self.wind.speed), jnp.bool_(False), jnp.bool_(False))


def windy(schedule, **env_params):
    env = VectorEnv(TimeLimit(Windy(), 4), 4)
    return dataclasses.replace(other_params(env, env_params), schedule=schedule)


def rows(env, num_steps=8):
    """Metrics of each of four iterations."""
    agent = ppax.PPO(ppax.networks.mlp(env, hidden=(4,)), num_epochs=1)
    state = ppax.start(agent, env, num_steps, jax.random.key(0))
    train, found = jax.jit(ppax.train), []
    for _ in range(ITERATIONS):
        state, metrics = train(agent, env, state, 1, ITERATIONS)
        found.append({name: float(metrics[name]) for name in metrics})
    return found


COURSES = {
    "linear": (Linear(("env.wind.speed",), end=3.0), [2.0, 3.0, 4.0, 5.0]),
    "a short name": (Linear(("env.speed",), end=0.0), [2.0, 1.5, 1.0, 0.5]),
    "cosine": (Cosine(("env.speed",)), [2.0 * 0.5 * (1 + np.cos(np.pi * i / 4)) for i in range(4)]),
    "steps": (Steps(("env.speed",), at=(0.0, 0.5), values=(7.0, 9.0)), [7.0, 7.0, 9.0, 9.0]),
    "by env_steps": (
        Interpolated(("env.speed",), at=(0.0, 52.0), values=(0.0, 26.0), by="env_steps"),
        # of 32 rows in an iteration, every fifth step of a stream of the four resets
        [0.0, 14.0, 26.0, 26.0],
    ),
    "both": (Both(Linear(("env.speed",), end=3.0), Linear(("env.speed",), end=0.0)), [2.0, 2.25, 2.0, 1.25]),
}


@pytest.mark.parametrize("name", COURSES)
def test_rewards_follow_the_course(name):
    schedule, speeds = COURSES[name]
    found = rows(windy(schedule))
    path = "env.wind.speed" if name == "linear" else "env.speed"
    np.testing.assert_allclose([row[path] for row in found], speeds, rtol=1e-6)
    if name == "steps":  # episodes of four steps, two of which span iterations of the same speed
        np.testing.assert_allclose(found[1]["episode_return"], 28.0, rtol=1e-6)
        np.testing.assert_allclose(found[3]["episode_return_max"], 36.0, rtol=1e-6)


def test_whole_numbers_are_rounded():
    env = windy(Linear(("env.max_steps",), end=0.4))  # 4, 3.4, 2.8, 2.2
    assert [row["env.max_steps"] for row in rows(env)] == [4.0, 3.0, 3.0, 2.0]
    assert env.schedule is not None


def test_the_ends_of_a_range_are_annealed():
    env = windy(Linear(("env.speed.low", "env.speed.high"), end=11.0), speed={"low": 1.0, "high": 2.0})
    now, numbers = scheduled(env, 0.5, 0.0)
    assert {name: float(x) for name, x in numbers.items()} == {"env.speed.low": 6.0, "env.speed.high": 12.0}
    drawn = np.asarray(now.reset(jax.random.key(0))[0].env.numbers["speed"])
    assert ((drawn >= 6.0) & (drawn <= 12.0)).all()
    assert len(set(drawn)) == 4


def test_training_equals_that_of_environments_with_the_values_by_hand():
    agent, env = None, ppax.make("CartPole-v1", 4, schedule=Linear(("env.gravity",), end=2.0))
    agent = ppax.PPO(ppax.networks.mlp(env, hidden=(4,)), num_epochs=1)
    train = jax.jit(ppax.train)
    state, one = (ppax.start(agent, env, 8, jax.random.key(0)) for _ in range(2))
    for i in range(3):
        state = train(agent, env, state, 1, 3).state
        by_hand = ppax.make("CartPole-v1", 4, env_params={"gravity": 9.8 * (1 + i / 3)})
        one = train(agent, by_hand, one, 1, 3).state
    for x, y in zip(
        jax.tree.leaves((state.learner, state.actor)), jax.tree.leaves((one.learner, one.actor)), strict=True
    ):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_evaluation_has_the_end_of_the_course():
    env = windy(Linear(("env.speed",), end=3.0))
    run = ppax.fit(
        ppax.PPO(ppax.networks.mlp(env, hidden=(4,))), env, total_steps=64, num_steps=8, log=ppax.Log(console=False)
    )
    assert run.evaluate(4).mean_return == 24.0
    learner = run.state.learner
    assert ppax.evaluate(run.agent, env, learner, jax.random.key(0), 4).mean_return == 24.0
    own = dataclasses.replace(run, eval_settings=ppax.EvalSettings(env_params={"wind": {"speed": 1.0}}))
    assert own.evaluate(4).mean_return == 4.0
    assert run.history[0]["env.speed"] == 2.0


REFUSED = [
    ("learning_rate", "'learning_rate' is not a number of the environment; it has env.max_steps, env.speed"),
    ("sped", "'sped' is not a number of the environment; did you mean 'env.speed'"),
    ("env.sped", r"'env\.sped' is not a number of the environment; did you mean 'env.speed'"),
    ("env.wind", r"'env\.wind' is not a number of the environment; it has env.max_steps, env.speed, env.wind.speed"),
    ("env.wind.sped", r"'env\.wind\.sped' is not a number of the environment; did you mean 'env.wind.speed'"),
    ("env.size", r"'env\.size' is not a number"),
]


@pytest.mark.parametrize(("leaf", "message"), REFUSED)
def test_what_is_no_number_of_the_environment_is_refused(leaf, message):
    env = windy(Linear((leaf,), end=2.0))
    with pytest.raises(ppax.ConfigError, match=message):
        ppax.fit(ppax.PPO(ppax.networks.mlp(env)), env, total_steps=64)


def test_ends_out_of_range_and_environments_on_the_host_are_refused():
    with pytest.raises(ppax.ConfigError, match=r"half_length = -0\.5: must be above 0"):
        ppax.make("CartPole-v1", 4, schedule=Linear(("env.half_length",), end=-1.0))
    with pytest.raises(ppax.ConfigError, match=r"schedule = .*is stepped on the host"):
        ppax.make("gymnasium/CartPole-v1", 2, schedule=Linear(("env.gravity",)))


WORDS = (
    "CartPole-v1 --schedule linear --schedule.leaves env.gravity env.half_length.high --schedule.end 2 --num-envs 4 "
    "--env-params.half-length.low 0.5 --env-params.half-length.high 0.6 --num-steps 8 --total-steps 96 --log.every 1 "
    "--no-log.console --eval.episodes 4"
)


def test_a_run_with_a_schedule_is_recorded_and_resumed_bit_for_bit(tmp_path):
    plan = options.parse_run("train", WORDS.split(), options.add_train)[1]
    built = config.build(plan)
    whole = fit_run(*built, tmp_path / "whole")
    assert [row["env.gravity"] for row in whole.history] == pytest.approx([9.8, 9.8 * 4 / 3, 9.8 * 5 / 3])
    again = config.read(tmp_path / "whole" / "run.toml")
    assert again["schedule"] == plan["schedule"]
    assert "objects" not in again

    def after_two(state, row):
        return row["iteration"] == 2

    fit_run(*built, tmp_path / "cut", [after_two])
    resumed = ppax.resume(tmp_path / "cut", console=False)
    assert int(resumed.state.iteration) == 3
    for x, y in zip(jax.tree.leaves(whole.state.learner), jax.tree.leaves(resumed.state.learner), strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_schedule_of_a_configuration_is_set_in_an_environment_of_ones_own():
    env = windy(None)
    table = {"part": "linear", "leaves": ["env.speed"], "end": 3.0}
    built = config.build({"schedule": table}, env)
    assert built.env.schedule == Linear(("env.speed",), end=3.0)
    assert config.describe_run(*built)["schedule"] == table


def test_values_in_the_middle_of_a_schedule_count_for_limits_and_spaces():
    """Also those at a number of steps, and those of the second of two schedules."""
    for by, at in (("progress", (0.0, 0.5, 1.0)), ("env_steps", (0.0, 100.0, 200.0))):
        peak = Interpolated(("env.max_torque",), at=at, values=(2.0, 8.0, 2.0), by=by)
        for schedule in (peak, Both(Linear(("env.g",), end=0.5), peak)):
            env = ppax.make("gymnax/Pendulum-v1", 4, schedule=schedule)
            assert float(env.action_space.high[0]) == 8.0
        with pytest.raises(ppax.ConfigError, match=r"half_length.*must be"):
            ppax.make(
                "CartPole-v1", 4, schedule=Interpolated(("env.half_length",), at=at, values=(0.5, -1.0, 0.5), by=by)
            )
