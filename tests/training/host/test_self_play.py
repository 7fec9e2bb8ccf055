"""Self-play on the host: who plays in which environment, what is learned, ratings, resume and evaluation."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.agents.self_play import Pool, SelfPlay
from ppax.envs import grouped, host
from ppax.networks import network
from ppax.ppo.minibatches import Shuffle
from ppax.training.host import Rollouts
from support.crowds import Duel

pytestmark = pytest.mark.usefixtures("cached_programs")
NUM_ENVS, NUM_STEPS, ITERATIONS = 8, 20, 24
PLAYERS = {"left": [0], "right": [1]}
POOL = Pool(every=4, size=3, share=0.5, opponents=2)
# the last half of the environments: in 4 and 5 past selves play left, in 6 and 7 right
PAST = np.array([[False, False]] * 4 + [[True, False]] * 2 + [[False, True]] * 2)
LOG = ppax.config.Log(every=1, console=False)


def duels(how="sync"):
    return grouped(host(Duel, NUM_ENVS, name="duel", vectorization=how), PLAYERS)


def agent_of(env):
    agents = {
        name: ppax.PPO(
            network(group, hidden=()), minibatch=Shuffle(1), num_epochs=4, learning_rate=0.1, gamma=0.0, ent_coef=0.0
        )
        for name, group in env.groups.items()
    }
    return SelfPlay(ppax.Groups(agents, env.sizes), POOL, NUM_ENVS)


@pytest.fixture(scope="module")
def trained():
    """A run in which both players learn to name the number that they see."""
    with duels() as env:
        agent = agent_of(env)
        run = ppax.fit(agent, env, ITERATIONS * NUM_ENVS * 2 * NUM_STEPS, num_steps=NUM_STEPS, log=LOG)
        start = ppax.start(agent, env, num_steps=NUM_STEPS, key=jax.random.key(0))
        return env, agent, run, start


def left_wins(env, agent, learner):
    """Mean return of the left player over 64 duels; 4 wins of 4 rounds are at most 4."""
    result = ppax.evaluate(agent, env, learner, jax.random.key(5), 128, deterministic=False)
    assert result.finished.all()
    return float(result.by_agent["left"].mean_return)


def test_a_trained_player_beats_its_first_self(trained):
    """Who always names the number wins 3 of 4 rounds against chance, on average 3 points a duel."""
    env, agent, run, start = trained
    now, first = run.state.learner, start.learner
    mixed = first._replace(current={"left": now.current["left"], "right": first.current["right"]})
    assert abs(left_wins(env, agent, first)) < 1.0
    assert left_wins(env, agent, mixed) > 2.0
    assert abs(left_wins(env, agent, now)) < 0.5  # both know it
    ignorant = now._replace(pool=first.pool)  # no past self plays in an evaluation
    result = ppax.evaluate(agent, env, ignorant, jax.random.key(5), 128, deterministic=False)
    assert np.abs(result.returns).mean() < 0.3
    assert run.history[-1]["ratio_first_max_dev"] < 1e-4


def test_ratings_follow_from_the_games(trained):
    _, _, run, _ = trained
    table = run.history[-1]
    assert {f"elo/{name}{past}" for name in PLAYERS for past in ("", "_past_0", "_past_2")} <= set(table)
    assert max(table["elo/left"], table["elo/right"]) > 1000.0
    games = [row["episodes/left"] for row in run.history]
    assert 20 <= min(games) <= max(games) <= 24  # of 6 environments, 4 episodes each in 20 steps


@pytest.mark.parametrize("how", ["sync", "async"])
def test_past_selves_play_in_their_environments_alone(trained, how):
    """Past selves are made to name number 0 always; all others name what they see, in one batch or in two."""
    _, agent, run, _ = trained
    learner = run.state.learner
    ignorant = jax.tree.map(jnp.zeros_like, {name: one.params for name, one in learner.pool.items()})
    learner = learner._replace(pool={name: one._replace(params=ignorant[name]) for name, one in learner.pool.items()})
    with duels(how) as env:
        state = ppax.start(agent, env, num_steps=NUM_STEPS, key=jax.random.key(3))
        steps = Rollouts(agent, env, state)(learner, state.actor, jax.random.key(4)).collected.rollout.steps
    valid = np.asarray(steps.valid).reshape(NUM_STEPS, NUM_ENVS, 2)
    right = np.stack([np.asarray(steps.obs[name]).argmax(-1) == np.asarray(steps.action[name]) for name in PLAYERS], 2)
    share = (right & valid).sum(axis=0) / valid.sum(axis=0)
    assert share[~PAST].min() > 0.9
    assert share[PAST].max() < 0.7  # of uniform policies: 1 in 4


def test_a_resumed_run_knows_its_past_selves(tmp_path):
    with duels() as env:
        agent, total = agent_of(env), 4 * NUM_ENVS * 2 * NUM_STEPS
        agent = dataclasses.replace(agent, pool=dataclasses.replace(POOL, every=1))
        options = {"num_steps": NUM_STEPS, "log": LOG, "iterations_per_env_reset": 1}
        whole = ppax.fit(agent, env, total, run_dir=tmp_path / "whole", **options)
        halt = [lambda _, row: row["iteration"] == 2]
        ppax.fit(agent, env, total, run_dir=tmp_path / "half", callbacks=halt, **options)
        resumed = ppax.resume(tmp_path / "half", env=env, console=False)
    for a, b in zip(*map(jax.tree.leaves, (whole.state.learner, resumed.state.learner)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert "[self_play]" in (tmp_path / "half" / "run.toml").read_text()
