"""RND finds a reward that PPO alone does not find with the same budget; bands of five seeds do not overlap.

Benchmark: exploration.py, with the same seeds and a longer budget, in which one seed without RND finds it, too.
"""

import jax
import numpy as np
import pytest

import ppax
from ppax.extensions import RND

SEEDS, ITERATIONS = 5, 50


def shares_at_goal(*extensions):
    """Share of episodes that reach the goal in the last fifth of training, for each seed."""
    env = ppax.make("Maze-9", 32)
    agent = ppax.PPO(ppax.networks.mlp(env), extensions=extensions, learning_rate=2.5e-3, ent_coef=0.02)
    states = ppax.start_sweep(agent, env, 128, jax.random.split(jax.random.key(1000), SEEDS))
    run = jax.jit(ppax.sweep)
    for _ in range(5):
        states, metrics = run(agent, env, states, ITERATIONS // 5, ITERATIONS)
    return np.nan_to_num(np.asarray(metrics["episode_return"]))


@pytest.mark.nightly
def test_rnd_reaches_the_end_of_a_maze_that_is_out_of_reach_without_it():
    without, with_it = shares_at_goal(), shares_at_goal(RND(coef=0.2))
    print(without, with_it)
    assert without.max() < 0.1
    assert with_it.min() > 0.5
