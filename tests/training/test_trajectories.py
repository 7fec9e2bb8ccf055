"""Trajectories: each step is the environment's own, with the action of `Policy.act`; frames are those of every step."""

import dataclasses

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ppax.types import ConfigError

import ppax
from ppax.envs import TimeLimit, VectorEnv, builtin, grouped
from ppax.networks.memories import GRU
from support.trained import policy_of, random_learner

STEPS, ENVS = 24, 3
GROUPS = {"prey": [0], "hunters": [2, 1]}


def cartpole():
    return VectorEnv(TimeLimit(builtin.CartPole(), 7), ENVS)


def navigators(limit=9):
    return VectorEnv(TimeLimit(builtin.Navigator(num_agents=2, num_rays=4), limit), ENVS)


def hunt():
    return grouped(VectorEnv(TimeLimit(builtin.Pursuit(num_predators=2), 9), ENVS), GROUPS)


def agent_of(env, **options):
    if getattr(env, "sizes", ()):
        return ppax.Groups({name: agent_of(group, **options) for name, group in env.groups.items()}, env.sizes)
    return ppax.PPO(ppax.networks.network(env, hidden=(8,), **options))


MAKE = {
    "one agent": (cartpole, {}),
    "memory": (cartpole, {"memory": GRU(width=8)}),
    "agents": (navigators, {"memory": GRU(width=8)}),
    "groups": (hunt, {}),
}


@pytest.fixture(scope="module", params=MAKE)
def played(request):
    make, options = MAKE[request.param]
    env = make()
    agent = agent_of(env, **options)
    learner = learner_of(agent, env)
    return env, agent, learner, ppax.trajectory(agent, env, learner, STEPS, jax.random.key(1))


def learner_of(agent, env):
    if not env.sizes:
        return random_learner(agent, env)
    return ppax.start(agent, env, 8, jax.random.key(3)).learner


def at(tree, *index):
    return jax.tree.map(lambda x: np.asarray(x)[index], tree)


def equal(one, other):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), one, other)


def test_states_and_rewards_are_those_of_the_environment(played):
    env, _, _, out = played
    agents = env.num_agents
    order = [i for own in GROUPS.values() for i in own] if env.sizes else list(range(agents))  # of the streams
    actions = out.action
    if env.sizes:
        actions = np.concatenate([actions[name].reshape(STEPS, ENVS, -1, 1) for name in GROUPS], axis=2)
    actions = np.reshape(actions, (STEPS, ENVS, agents, -1))[:, :, np.argsort(order)]
    valid, reward, terminated = (np.asarray(x) for x in (out.valid, out.reward, out.terminated))
    ends = 0
    for t in range(STEPS - 1):
        for e in range(ENVS):
            own = slice(e * agents, (e + 1) * agents)
            action = actions[t, e] if env.env.num_agents else actions[t, e, 0, 0]
            step = env.unwrapped.step(at(out.env_state, t, e), action, jax.random.key(0))
            if not valid[t, own].any():
                ends += 1
                assert not np.any(reward[t, own])
                continue
            equal(at(out.env_state, t + 1, e), step.state)
            equal(reward[t, own], np.atleast_1d(step.reward)[order])
            equal(terminated[t, own], np.atleast_1d(step.terminated)[order])
    assert ends >= ENVS


def test_actions_are_those_of_the_policy(played):
    env, agent, learner, out = played
    policy = policy_of(agent, env, learner)
    for t in range(STEPS):
        if t and not env.sizes:
            policy.reset(~np.asarray(out.valid[t - 1]))  # the autoreset step, whose result begins an episode
        obs = at(out.obs, t)
        if env.sizes:
            obs = {name: x.reshape(ENVS, -1, x.shape[-1]) for name, x in obs.items()}
        equal(jax.tree.map(np.ravel, policy.act(obs)), jax.tree.map(np.ravel, at(out.action, t)))


def test_frames_are_every_nth_of_all(played):
    env, agent, learner, out = played
    few = ppax.trajectory(agent, env, learner, STEPS, jax.random.key(1), every=6)
    equal(few[:3], jax.tree.map(lambda x: x[::6], out[:3]))
    equal(few[3:7], out[3:7])
    assert few.reward.shape == (STEPS, env.num_streams)


def test_a_trajectory_goes_on_from_its_actor():
    env = navigators(limit=100)
    agent = agent_of(env, memory=GRU(width=8))
    learner = random_learner(agent, env)
    whole = ppax.trajectory(agent, env, learner, 20, jax.random.key(0), every=2)
    first = ppax.trajectory(agent, env, learner, 12, jax.random.key(0), every=2)
    rest = ppax.trajectory(agent, env, learner, 8, jax.random.key(9), every=2, actor=first.actor)
    equal(rest.env_state, jax.tree.map(lambda x: x[6:], whole.env_state))
    equal(rest.reward, whole.reward[12:])


def test_sampled_actions_have_the_spread_of_the_policy():
    env = VectorEnv(builtin.Navigator(num_agents=4), 8)
    agent = agent_of(env, log_std_init=-2.0)
    learner = ppax.start(agent, env, 8, jax.random.key(0)).learner
    options = {"every": 5, "deterministic": False}
    sampled = ppax.trajectory(agent, env, learner, 100, jax.random.key(2), **options)
    mode = policy_of(agent, env, learner).act(np.asarray(sampled.obs).reshape(-1, 6))
    noise = np.asarray(sampled.action).reshape(-1, 2) - mode
    assert abs(noise.std() / np.exp(-2.0) - 1.0) < 0.1
    again = ppax.trajectory(agent, env, learner, 100, jax.random.key(2), **options)
    np.testing.assert_array_equal(again.action, sampled.action)


@pytest.mark.usefixtures("vmapped_keys")
def test_it_is_pure_under_jit_and_vmap():
    env = cartpole()
    agent = agent_of(env)
    learner = random_learner(agent, env)
    keys = jax.random.split(jax.random.key(0), 2)
    alone = [ppax.trajectory(agent, env, learner, 8, key, every=2) for key in keys]
    both = jax.jit(jax.vmap(lambda key: ppax.trajectory(agent, env, learner, 8, key, every=2)))(keys)
    equal(both[:7], jax.tree.map(lambda *x: jnp.stack(x), *(one[:7] for one in alone)))
    given = jax.jit(ppax.trajectory, static_argnums=3)(agent, env, learner, 8, keys[0])
    equal(given.reward, alone[0].reward)


def test_states_between_frames_take_no_memory():
    env = VectorEnv(builtin.Navigator(num_agents=64), 1)
    agent = agent_of(env)
    learner = random_learner(agent, env)

    def size(every):
        play = jax.jit(lambda: ppax.trajectory(agent, env, learner, 2000, jax.random.key(0), every=every)[:3])
        memory = play.lower().compile().memory_analysis()
        return memory.output_size_in_bytes + memory.temp_size_in_bytes

    assert size(1) > 2000 * 64 * 14 * 4  # a state has 6 numbers, an observation 6, an action 2
    assert size(100) < 0.2 * size(1)


def test_parameters_are_those_at_the_end_of_the_schedule():
    env = ppax.make("CartPole-v1", num_envs=1, schedule=ppax.schedules.Linear(("env.gravity",), end=5.0))
    agent = agent_of(env)
    out = ppax.trajectory(agent, env, random_learner(agent, env), 2, jax.random.key(0))
    step = builtin.CartPole(gravity=49.0).step(at(out.env_state, 0, 0), out.action[0, 0], jax.random.key(0))
    equal(at(out.env_state, 1, 0), step.state)


def test_what_does_not_fit_is_refused():
    env = cartpole()
    agent = agent_of(env)
    learner, key = random_learner(agent, env), jax.random.key(0)
    with pytest.raises(ConfigError, match=r"num_steps = 25: must be a multiple of every = 6; nearest valid value: 24"):
        ppax.trajectory(agent, env, learner, 25, key, every=6)
    with pytest.raises(ConfigError, match="every"):
        ppax.trajectory(agent, env, learner, 24, key, every=0)
    actor = ppax.trajectory(agent, env, learner, 2, key).actor
    with pytest.raises(ConfigError, match=r"actor: has 3 streams, the environment has 1"):
        ppax.trajectory(agent, dataclasses.replace(env, num_envs=1), learner, 2, key, actor=actor)
    with pytest.raises(ConfigError, match=r"write ppax\.Groups"):
        ppax.trajectory(agent, hunt(), learner, 2, key)
    host = ppax.envs.host(lambda: gymnasium.make("CartPole-v1"), 2)
    with host, pytest.raises(ConfigError, match=r"is stepped on the host: act with policy\.act\(obs\)"):
        ppax.trajectory(agent, host, learner, 2, key)
