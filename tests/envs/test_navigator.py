"""Navigator: energy, walls, contacts, and the reward as a difference of potentials."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppax.envs.builtin import Navigator
from ppax.envs.builtin.navigator import NavigatorState


def navigate(env, state, actions):
    """Return all states, including the first, [T + 1, A, 2] each, and the rewards [T, A]."""

    def scan(state, action):
        step = env.step(state, action, jax.random.key(0))
        return step.state, (step.state, step.reward)

    _, (states, rewards) = jax.jit(lambda state: jax.lax.scan(scan, state, actions))(state)
    return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), state, states), rewards


def at(position, velocity):
    """Return a navigator's state with the target at the origin."""
    position, velocity = jnp.array(position, jnp.float32), jnp.array(velocity, jnp.float32)
    return NavigatorState(position, velocity, jnp.zeros_like(position))


def test_navigator_without_force_loses_its_energy():
    start = at([[0.0, 0.0]], [[1.5, 0.7]])  # fast enough to bounce off a wall
    states, _ = navigate(Navigator(drag=0.5), start, jnp.zeros((200, 1, 2)))
    energy = 0.5 * (states.velocity**2).sum(axis=(1, 2))
    assert energy.max() <= energy[0]
    assert energy[-1] < 1e-3 * energy[0]
    free = abs(states.position).max(axis=(1, 2)) < 0.9  # no contact
    assert (jnp.diff(energy) < 0)[free[:-1]].all()


@pytest.mark.parametrize("action", [[1.0, 1.0], [-1.0, 0.3], [9.0, -9.0]])
def test_navigator_stays_in_its_box(action):
    start = at([[0.0, 0.0]], [[0.0, 0.0]])
    actions = jnp.broadcast_to(jnp.array(action), (200, 1, 2))
    states, _ = navigate(Navigator(), start, actions)
    assert abs(states.position).max() < 1.0
    # at rest the wall's spring carries the full force: 200 * overlap = 2
    np.testing.assert_allclose(abs(states.position[-1, 0, 0]), 0.9 + 0.01, atol=1e-3)


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_navigator_walls_push_back(side):
    start = at([[side * 0.95, 0.0]], [[0.0, 0.0]])
    states, _ = navigate(Navigator(), start, jnp.zeros((1, 1, 2)))
    assert states.velocity[1, 0, 0] * side < 0
    assert states.velocity[1, 0, 1] == 0


def test_navigator_rewards_telescope():
    env = Navigator()
    start = env.reset(jax.random.key(9)).state
    actions = jax.random.uniform(jax.random.key(10), (50, 1, 2), minval=-1.0)
    states, rewards = navigate(env, start, actions)
    distance = np.linalg.norm(states.target - states.position, axis=-1)
    energy = 0.5 * (np.asarray(states.velocity) ** 2).sum(axis=-1)
    gained = np.exp(-2 * distance[-1]) - np.exp(-2 * distance[0]) - 0.1 * (energy[-1] - energy[0])
    np.testing.assert_allclose(rewards.sum(axis=0), gained, atol=1e-5)


def test_navigator_observes_the_vector_to_its_target():
    env = Navigator()
    state = at([[0.6, -0.8]], [[0.1, 0.2]])
    obs = env.step(state, jnp.zeros((1, 2)), jax.random.key(0)).obs[0]
    np.testing.assert_allclose(obs[:2], [-0.6, 0.8], atol=0.01)  # it moved a little in this step
    np.testing.assert_allclose(obs[2:4], [-0.5, 0.5])  # the vector to the target, clipped
    np.testing.assert_allclose(obs[4:], np.array([0.1, 0.2]) / 1.1, atol=1e-6)  # drag: v / (1 + 2 * 0.05)


def test_navigators_that_overlap_repel():
    env = Navigator(num_agents=3)
    start = at([[-0.05, 0.0], [0.05, 0.0], [0.0, 0.5]], [[0.0, 0.0]] * 3)
    states, _ = navigate(env, start, jnp.zeros((60, 3, 2)))
    assert states.velocity[1, 0, 0] < 0 < states.velocity[1, 1, 0]
    np.testing.assert_allclose(states.velocity.sum(axis=1), 0, atol=1e-6)  # momentum
    assert abs(states.position[-1, 0, 0] - states.position[-1, 1, 0]) >= 0.2
    np.testing.assert_array_equal(states.position[:, 2], np.broadcast_to([0.0, 0.5], (61, 2)))
