"""Learning on the host, as the presets have it; each needs the extra of its suite and some minutes.

    pytest -m nightly tests/test_learning_host.py

Bars: LunarLander-v3 200 on two seeds of three, InvertedPendulum-v5 900, Hopper-v5 1900, HalfCheetah-v5 1300.
"""

import dataclasses

import pytest

from ppax import config
from ppax.fit import fit_run

BARS = {"LunarLander-v3": 200, "InvertedPendulum-v5": 900, "Hopper-v5": 1900, "HalfCheetah-v5": 1300}
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]


def built_from(name):
    try:
        return config.build(config.find(f"gymnasium/{name}"))
    except ImportError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", BARS)
def test_two_seeds_of_three_reach_the_bar(name, tmp_path):
    agent, env, run = built_from(name)
    log = dataclasses.replace(run.log, console=False)
    scores = []
    with env:
        for seed in range(3):
            trained = fit_run(agent, env, dataclasses.replace(run, seed=seed, log=log), tmp_path / str(seed))
            scores.append(trained.evaluate(128).mean_return)
    assert sorted(scores)[1] >= BARS[name], scores


@pytest.mark.parametrize("name", BARS)
def test_without_learning_every_bar_is_missed(name):
    """Negative control: learning rate 0; an iteration is as good as all."""
    agent, env, run = built_from(name)
    agent = dataclasses.replace(agent, learning_rate=0.0)
    log = dataclasses.replace(run.log, console=False)
    with env:
        short = dataclasses.replace(run, total_steps=run.num_envs * run.num_steps, log=log)
        assert fit_run(agent, env, short).evaluate(16).mean_return < BARS[name]
