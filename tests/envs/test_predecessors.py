"""Environments of the predecessors: rewards, masks, observations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.envs import builtin
from ppax.envs.builtin.algo_trading import BUY, HOLD, SELL
from ppax.envs.builtin.cartpole import CartPoleState
from ppax.envs.builtin.mountain_car import CarState
from ppax.envs.builtin.navigator import NavigatorState
from ppax.envs.builtin.pursuit import PursuitState


def key():
    return jax.random.key(0)


def numbers(*x):
    return [jnp.float32(one) for one in x]


# ---------------------------------------------------------------- rl8


def test_endless_cartpole_rewards_upright_and_never_ends():
    env = builtin.EndlessCartPole()
    state = CartPoleState(*numbers(0.5, -0.2, 0.3, 1.0))
    out = env.step(state, 1, key())  # no push
    moved = builtin.CartPole().move(state, 0.0)
    x, x_dot, theta, theta_dot = (float(v) for v in moved)
    expected = -(abs(x) + abs(x_dot) + abs(np.cos(theta) - 1) + abs(np.sin(theta)) + abs(theta_dot))
    np.testing.assert_allclose(out.reward, expected, rtol=1e-6)
    np.testing.assert_allclose(out.obs, [x, x_dot, np.cos(theta), np.sin(theta), theta_dot], rtol=1e-6)
    far = env.step(CartPoleState(*numbers(50.0, 0.0, 3.0, 0.0)), 0, key())
    assert not far.terminated
    left, right = (env.step(state, action, key()).obs[1] - moved.x_dot for action in (0, 2))
    np.testing.assert_allclose(left, -right, rtol=1e-3)
    assert left < 0 < right


def test_endless_cartpole_starts_close_to_upright():
    states = jax.vmap(builtin.EndlessCartPole().reset)(jax.random.split(key(), 500)).state
    np.testing.assert_allclose([np.std(x) for x in states], 0.01, rtol=0.1)


def test_endless_mountain_car_rewards_the_goal():
    env = builtin.EndlessMountainCar()
    down = env.step(CarState(*numbers(-0.5, 0.0)), 1, key())
    np.testing.assert_allclose(down.reward, -abs(float(down.state.position) - 0.5))
    arrives, rolls_back = (env.step(CarState(*numbers(0.55, v)), 1, key()) for v in (0.02, -0.02))
    assert arrives.reward == 1
    assert not arrives.terminated
    assert rolls_back.reward < 0
    assert [bool(out.metrics["at_goal"]) for out in (down, arrives, rolls_back)] == [False, True, False]


def trade(actions, state=None):
    env = builtin.AlgoTrading()
    state = env.reset(key()).state if state is None else state
    steps = []
    for action in actions:
        steps.append(env.step(state, action, key()))
        state = steps[-1].state
    return steps


def test_trading_masks_depend_on_the_position():
    env = builtin.AlgoTrading()
    assert env.reset(key()).action_mask.tolist() == [True, True, False]
    bought, held, sold = trade([BUY, HOLD, SELL])
    assert bought.action_mask.tolist() == held.action_mask.tolist() == [True, False, True]
    assert [int(x.obs["invested"]) for x in (bought, held, sold)] == [1, 1, 0]
    assert sold.action_mask.tolist() == [True, True, False]


def test_trading_rewards_are_gains():
    begin = builtin.AlgoTrading().reset(key()).state
    hold, bought, held, sold, idle = trade([HOLD, BUY, HOLD, SELL, HOLD], begin)
    prices = [float(s.log_price) for s in (begin, hold.state, bought.state, held.state)]
    assert hold.reward == bought.reward == 0  # bought at the second price
    # holding earns the last observed change
    np.testing.assert_allclose(held.reward, prices[2] - prices[1], atol=1e-5)
    np.testing.assert_allclose(sold.reward, prices[3] - prices[1], atol=1e-5)
    np.testing.assert_allclose(held.obs["gain"][0], prices[3] - prices[1], atol=1e-5)
    assert idle.reward == 0
    np.testing.assert_allclose(idle.obs["gain"], idle.obs["change"], atol=1e-5)  # no position: the last change


def test_trading_prices_follow_their_formula():
    begin = builtin.AlgoTrading().reset(jax.random.key(5)).state
    state, price = begin, np.exp(np.float64(begin.log_price))
    for out in trade([HOLD] * 20, begin):
        state = out.state
        wave = np.sin(float(begin.frequency) * float(state.time))
        price *= (1 + float(begin.drift)) * (1 + float(begin.swing) * wave)
        np.testing.assert_allclose(np.exp(np.float64(state.log_price)), price, rtol=1e-4)
        np.testing.assert_allclose(out.obs["change"], state.log_change)


# ---------------------------------------------------------------- jaxagents


def pursue(position, headings, **numbers):
    env = builtin.Pursuit(num_predators=len(position) - 1, **numbers)
    position = jnp.array(position, jnp.float32)
    state = PursuitState(jnp.float32(0.0), position, jnp.zeros(len(position)))
    return env.step(state, jnp.array(headings, jnp.float32)[:, None], key())


def test_pursuit_moves_along_headings_and_rewards_survival():
    out = pursue([(0.1, 0.5), (0.9, 0.5)], [np.pi / 2, np.pi], predator_speed=3.0)
    np.testing.assert_allclose(out.state.position, [(0.1, 0.51), (0.87, 0.5)], atol=1e-6)
    assert out.reward.tolist() == [1, -1]
    assert not out.terminated.any()
    assert not out.metrics["caught"]
    np.testing.assert_allclose(out.obs[0, :7], [0.01, 0.1, 0.51, 0.87, 0.5, np.pi / 2, np.pi], atol=1e-6)
    assert out.obs[:, 7:].tolist() == [[1, 0], [0, 1]]  # identity of the agent


def test_pursuit_capture_terminates_all_agents():
    out = pursue([(0.5, 0.5), (0.6, 0.5), (0.9, 0.9)], [0.0, np.pi, 0.0], radius=0.1)
    assert out.reward.tolist() == [-100, 100, 50]
    assert out.terminated.tolist() == [True] * 3
    assert out.metrics["caught"]
    assert not out.truncated.any()


def test_pursuit_walls_stop():
    out = pursue([(0.999, 0.001), (0.5, 0.5)], [-np.pi / 4, 0.0])
    assert out.state.position[0].tolist() == [1.0, 0.0]


# ---------------------------------------------------------------- JaxDEM's crowds


def crowd(position, **options):
    env = builtin.Navigator(num_agents=len(position), num_rays=4, **options)
    position = jnp.array(position, jnp.float32)
    state = NavigatorState(position, jnp.zeros_like(position), jnp.zeros_like(position))
    return env, state


def test_lidar_meets_walls_and_discs_at_their_edges():
    env, state = crowd([(0.0, 0.0), (0.5, 0.05), (0.0, -0.3)], radius=0.1, ray_length=1.0)
    right, up, left, down = np.asarray(env._observe(state))[0, 6:]
    # to the right a disc 0.5 ahead and 0.05 aside: its edge is at 0.5 - sqrt(0.1^2 - 0.05^2)
    np.testing.assert_allclose(right, 1 - (0.5 - np.sqrt(0.0075) - 0.1), atol=1e-5)
    np.testing.assert_allclose([up, left], 1 - 0.9, atol=1e-5)  # walls at 1, own radius 0.1
    np.testing.assert_allclose(down, 1 - 0.1, atol=1e-5)
    assert np.asarray(env._observe(state))[1, 6 + 2] > 0.5  # the second sees the first to its left


def test_lidar_equals_ray_marching():
    env = builtin.Navigator(num_agents=5, num_rays=16, radius=0.15, ray_length=0.7)
    state = env.reset(jax.random.key(4)).state
    position = np.asarray(state.position, np.float64)
    seen = np.asarray(env._observe(state))[:, 6:]
    steps = np.linspace(0, 2.5, 25_001)
    for agent in range(5):
        for k in range(16):
            angle = 2 * np.pi * k / 16
            points = position[agent] + steps[:, None] * np.array([np.cos(angle), np.sin(angle)])
            hit = (abs(points) >= 1).any(axis=1)
            for other in range(5):
                # a disc that overlaps the agent's own centre is entered from inside: the ray starts in it
                if other != agent and np.linalg.norm(position[other] - position[agent]) > 0.15:
                    hit |= np.linalg.norm(points - position[other], axis=1) <= 0.15
            free = steps[np.argmax(hit)] - 0.15
            np.testing.assert_allclose(seen[agent, k], 1 - np.clip(free / 0.7, 0, 1), atol=2e-3)


def test_crowd_shares_its_reward_and_rewards_arrival():
    env, state = crowd([(0.0, 0.0), (0.8, 0.8)], goal_bonus=0.5, energy_cost=0.0)
    alone = env.step(state, jnp.zeros((2, 2)), key())
    np.testing.assert_allclose(alone.reward, [0.5, 0.0], atol=1e-6)  # the first stands on its target
    assert alone.metrics["arrived"].tolist() == [True, False]
    env, state = crowd([(0.0, 0.0), (0.8, 0.8)], goal_bonus=0.5, energy_cost=0.0, shared=1.0)
    np.testing.assert_allclose(env.step(state, jnp.zeros((2, 2)), key()).reward, [0.25, 0.25], atol=1e-6)


def test_evaluations_count_captures_and_arrivals():
    """The share of prey caught is that of episodes that terminate; `arrived` is by agent, as it is by distance."""
    hunt, crowd = ppax.make("Pursuit-3", 4), ppax.make("Navigator-8", 2, env_params={"radius": 0.3})
    agent = ppax.PPO(ppax.networks.mlp(hunt, hidden=(4,)))
    learner = agent.init(hunt.observation_space, key())
    out = ppax.evaluate(agent, hunt, learner, key(), 60, deterministic=False)
    np.testing.assert_array_equal(out.metrics["caught"], out.terminated)
    assert 0.0 < out.mean_metrics["caught"] < 1.0
    agent = ppax.PPO(ppax.networks.mlp(crowd, hidden=(4,)))
    learner = agent.init(crowd.observation_space, key())
    played = ppax.trajectory(agent, crowd, learner, 201, key())
    last = jax.tree.map(lambda x: np.asarray(x)[-1], played.env_state)
    near = np.linalg.norm(last.target - last.position, axis=-1) < 0.3
    out = ppax.evaluate(agent, crowd, learner, key(), 16)
    np.testing.assert_array_equal(out.metrics["arrived"], near.ravel())
    assert 0.0 < near.mean() < 1.0


@pytest.mark.parametrize("agents", [1, 64])
def test_crowds_of_any_size_stay_in_their_box(agents):
    env = builtin.Navigator(num_agents=agents, num_rays=8, radius=0.04)
    state = env.reset(key()).state

    def scan(state, now):
        out = env.step(state, jax.random.uniform(now, (agents, 2), minval=-1.0), key())
        return out.state, (out.state.position, out.obs)

    position, obs = jax.jit(lambda s: jax.lax.scan(scan, s, jax.random.split(key(), 100)))(state)[1]
    assert abs(position).max() < 1
    assert np.isfinite(obs).all()
    assert obs[..., 6:].min() >= 0
    assert obs[..., 6:].max() <= 1
