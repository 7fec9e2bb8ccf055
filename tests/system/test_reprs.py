"""Reprs of public objects: short and informative."""

import jax
import numpy as np
import pytest

import ppax
from ppax.config import Log
from ppax.training.evaluation import Evaluation


@pytest.fixture(scope="module")
def run():
    env = ppax.make("probe/Constant", 4)
    agent = ppax.PPO(ppax.networks.mlp(env, (4,)), learning_rate=0.5, num_epochs=1)
    return ppax.fit(agent, env, 32, num_steps=4, log=Log(console=False))


def test_reprs_are_short(run):
    for thing in (run, run.agent, run.env, run.state, run.evaluate(4), run.history[-1]["loss"]):
        assert len(repr(thing)) < 500, type(thing)


def test_agent_repr_shows_changed_options_only(run):
    text = repr(run.agent)  # the run has resolved compute_dtype="auto"
    assert text == "PPO(network=Composed(hidden=(4,)), learning_rate=0.5, num_epochs=1, compute_dtype='float32')"
    traced = []
    jax.jit(lambda agent: traced.append(repr(agent)) or 0)(run.agent)
    assert traced[0].startswith("PPO(")


def test_run_repr_shows_progress(run):
    assert f"{run.env_steps:,} env-steps" in repr(run)
    assert "2 iterations" in repr(run)
    assert "probe/Constant" in repr(run)
    assert "probe/Constant: 4 environments" in repr(run.env)


def test_an_evaluation_prints_its_mean():
    finished, numbers = np.array([True, True, False]), np.array([1.0, 3.0, 9.0])
    seen = Evaluation(numbers, np.array([4, 6, 8]), finished, finished, numbers)
    text = "Evaluation(mean_return=4.33, std_return=3.40, mean_length=6.0, episodes=3, cut=1)"
    assert repr(seen) == text


def test_help_of_an_agent_describes_its_fields():
    for text in (
        "learning_rate = 0.0003: learning rate of the optimiser",
        "advantage = GAE(",
        "num_epochs = 4: passes",
    ):
        assert text in ppax.PPO.__doc__
    assert "clip_eps = 0.2: clip range" in ppax.losses.ClippedSurrogate.__doc__
