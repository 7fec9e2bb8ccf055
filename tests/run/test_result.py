"""`TrainedRun`: counts of steps and their text."""

import re
from functools import partial

import gymnasium
import gymnasium.envs.classic_control
import pytest

import ppax
from ppax.config import Log
from ppax.envs import VectorEnv
from support.worlds import Counter, Team


def trained(env):
    agent = ppax.PPO(ppax.networks.mlp(env, (4,)), num_epochs=1)
    return ppax.fit(agent, env, 1, num_steps=8, log=Log(console=False))


def test_steps_done_counts_as_the_option_total_steps_does():
    """Episodes of three steps and an autoreset step: two of 8 rows of each environment only reset it."""
    run = trained(VectorEnv(Counter(3), 2))
    assert (run.env_steps, run.total_steps) == (12, 16)
    assert run.steps_done() == "16 steps"


def test_steps_done_names_the_number_of_agents():
    """Agents with 2, 3, 4 steps an episode, reset in the fifth: 8 rows have 2 + 2, 3 + 3, 4 + 3 valid steps."""
    run = trained(VectorEnv(Team(), 2))
    assert (run.env_steps, run.total_steps) == (2 * (4 + 6 + 7), 48)
    assert run.steps_done() == "48 steps of 3 agents"


def test_the_last_known_return_is_in_the_text():
    """The last row may have no episode that ended."""
    run = trained(VectorEnv(Counter(3), 2))
    run.history.append(run.history[-1] | {"episode_return": float("nan"), "reward_mean": 0.5})
    assert f"last episode_return {run.history[0]['episode_return']:.2f}" in repr(run)


def test_the_text_names_the_class_of_the_environment_last_evaluation_and_best_value():
    env = VectorEnv(Counter(3), 2)
    agent = ppax.PPO(ppax.networks.mlp(env, (4,)), num_epochs=1)
    own = {"evaluation": ppax.EvalSettings(every=1, episodes=3), "best": ppax.BestSettings("eval_return")}
    text = repr(ppax.fit(agent, env, 16, num_steps=8, log=Log(console=False), **own))
    assert text.startswith("TrainedRun(Counter: ")
    assert re.search(r"last evaluation \d+\.\d\d \(3 episodes\), best eval_return \d+\.\d\d", text)
    bounded = VectorEnv(ppax.envs.TimeLimit(Counter(3), 2), 2)
    assert repr(trained(bounded)).startswith("TrainedRun(Counter: ")


@pytest.mark.parametrize(
    ("source", "name", "shown"),
    [
        (gymnasium.envs.classic_control.CartPoleEnv, "", "CartPoleEnv"),
        (partial(gymnasium.envs.classic_control.CartPoleEnv, sutton_barto_reward=True), "", "CartPoleEnv"),
        (lambda: gymnasium.make("CartPole-v1"), "", "own"),
        (lambda: gymnasium.make("CartPole-v1"), "poles", "poles"),
    ],
    ids=["class", "partial", "lambda", "named"],
)
def test_the_text_names_the_class_or_function_of_an_environment_on_the_host(source, name, shown):
    with ppax.envs.host(source, 2, name) as env:
        assert repr(trained(env)).startswith(f"TrainedRun({shown}: ")


def test_a_record_in_memory_has_seed_and_steps_of_its_run():
    env = VectorEnv(Counter(3), 2)
    run = ppax.fit(ppax.PPO(ppax.networks.mlp(env, (4,)), num_epochs=1), env, 16, num_steps=8, seed=5)
    assert (run.record().config["seed"], run.record().config["total_steps"]) == (5, 16)
    run.seed = None
    assert "seed" not in run.record().config
