"""Learning tests on the host, with the settings of `ppax train`; each needs the extra of its suite and some minutes.

pytest -m nightly tests/system/test_learning_host.py
"""

import dataclasses

import numpy as np
import pytest
from scipy import stats

import ppax
from ppax import config
from ppax.config import Log
from ppax.envs import HostEnv
from ppax.run.fit import fit_run
from ppax.scores.suite import read_suite

ROWS = {row.target.removeprefix("gymnasium/"): row for row in read_suite() if row.name in ("L6", "L14", "L15", "L16")}
BARS = {name: row.threshold for name, row in ROWS.items()}
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]


def built_from(name):
    try:
        return config.build(config.completed({"env": f"gymnasium/{name}", "total_steps": ROWS[name].steps}).config)
    except ImportError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", BARS)
def test_two_seeds_of_three_reach_the_threshold(name, tmp_path):
    agent, env, run = built_from(name)
    log = dataclasses.replace(run.log, console=False)
    scores = []
    with env:
        for seed in range(3):
            trained = fit_run(agent, env, dataclasses.replace(run, seed=seed, log=log), tmp_path / str(seed))
            scores.append(trained.evaluate(128).mean_return)
    assert sorted(scores)[1] >= BARS[name], scores


@pytest.mark.parametrize("name", BARS)
def test_every_threshold_is_missed_without_learning(name):
    """Negative control: learning rate 0; one iteration suffices."""
    agent, env, run = built_from(name)
    agent = dataclasses.replace(agent, learning_rate=0.0)
    log = dataclasses.replace(run.log, console=False)
    with env:
        short = dataclasses.replace(run, total_steps=run.num_envs * run.num_steps, log=log)
        assert fit_run(agent, env, short).evaluate(16).mean_return < BARS[name]


def learning_curves(env_name, seeds):
    """Return the mean episode return over training and the final greedy return of CartPole, [seeds] each."""
    agent, _, run = config.build(config.completed({"env": "CartPole-v1"}).config)
    areas, finals = [], []
    env = ppax.make(env_name, run.num_envs)
    for seed in range(seeds):
        trained = ppax.fit(agent, env, run.total_steps, seed, num_steps=run.num_steps, log=Log(console=False))
        areas.append(np.nanmean([row["episode_return"] for row in trained.history]))
        finals.append(trained.evaluate(128).mean_return)
    if isinstance(env, HostEnv):
        env.close()
    return np.array(areas), np.array(finals)


def test_cartpole_is_learned_alike_natively_and_on_gymnasium():
    """Five seeds each: the areas under the curves do not differ significantly (95 %); all seeds solve it."""
    native, on_host = learning_curves("CartPole-v1", 5), learning_curves("gymnasium/CartPole-v1", 5)
    print(*(f"area {x.mean():.0f} +- {2.78 * x.std(ddof=1) / 5**0.5:.0f}, final {y}" for x, y in (native, on_host)))
    assert stats.ttest_ind(native[0], on_host[0], equal_var=False).pvalue > 0.05
    assert min(*native[1], *on_host[1]) >= 475


LARGER = {"num_epochs": 4, "learning_rate": 2.5e-4, "loss": {"clip_eps": 0.1}, "minibatch": {"num_minibatches": 4}}


@pytest.mark.parametrize(("agent", "learned"), [({}, True), (LARGER, False)])
def test_small_images_are_learned_by_the_defaults_and_not_by_those_of_larger_ones(agent, learned):
    """A door and its key in MiniGrid after 100,000 steps: the score published for RL Baselines3 Zoo is 0.964."""
    pytest.importorskip("minigrid")
    options = {"preset": "none", "total_steps": 100_000, "agent": agent}
    scores = ppax.score("minigrid/MiniGrid-DoorKey-5x5-v0", seeds=range(2), options=options).scores
    assert (min(scores) >= 0.94) == learned, scores
