"""Maze: the way, walls, the goal by hand; a random walk does not find it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.core.types import ConfigError
from ppax.envs import builtin

UP, DOWN, LEFT, RIGHT = range(4)


def walk(env, actions):
    """Cells, rewards and terminations of a walk from the start."""

    def step(state, action):
        out = env.step(state, action, jax.random.key(0))
        return out.state, (out.obs, out.reward, out.terminated)

    return jax.lax.scan(step, env.reset(jax.random.key(0)).state, jnp.array(actions))[1]


def test_the_shortest_way_winds_through_all_rows():
    way = [*[RIGHT] * 4, DOWN, DOWN, *[LEFT] * 4, DOWN, DOWN, *[RIGHT] * 4]
    cells, reward, over = walk(builtin.Maze(5), way)
    assert len(way) == builtin.Maze(5).shortest
    np.testing.assert_array_equal(np.asarray(cells)[[3, 5, 9, 11, 15]], [4, 14, 10, 20, 24])
    np.testing.assert_array_equal(reward, [*[0.0] * 15, 1.0])
    np.testing.assert_array_equal(over, [*[False] * 15, True])


def test_walls_stop():
    cells, reward, over = walk(builtin.Maze(5), [UP, LEFT, DOWN, RIGHT, DOWN, LEFT])
    np.testing.assert_array_equal(cells, [0, 0, 0, 1, 1, 0])
    assert not reward.any()
    assert not over.any()


@pytest.mark.parametrize(("size", "goal"), [(3, [2, 0]), (5, [4, 4]), (7, [6, 0]), (9, [8, 8])])
def test_the_goal_is_at_the_end_of_the_last_row(size, goal):
    env = builtin.Maze(size)
    assert list(env._goal()) == goal
    assert env.render(env.reset(jax.random.key(0)).state).shape[2] == 3


def test_an_even_size_is_refused():
    with pytest.raises(ConfigError, match="size = 4: must be odd; nearest valid value: 5"):
        builtin.Maze(4).step(*builtin.Maze(5).reset(jax.random.key(0))[:1], 0, None)


def test_random_actions_do_not_reach_the_goal():
    env = ppax.make("Maze-9", 1).env.env
    assert env.shortest == 48

    def found(key):
        def step(state, action):
            out = env.step(state, action, key)
            return out.state, out.terminated

        actions = jax.random.randint(key, (150,), 0, 4)
        return jax.lax.scan(step, env.reset(key).state, actions)[1].any()

    assert not jax.jit(jax.vmap(found))(jax.random.split(jax.random.key(1), 2000)).any()
