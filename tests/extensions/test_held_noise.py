"""Noise that stays: drawn every so many steps, in collection only, kept over iterations, saves and many agents."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import config
from ppax.core.types import EnvReset, EnvStep
from ppax.envs import TimeLimit, VectorEnv
from ppax.extensions import HeldNoise
from ppax.ppo.extension import Acted
from ppax.run.fit import fit_run
from ppax.training.collection import collect
from support.worlds import QUICK, Leaky

EVERY = 3


@ppax.part
class Still:
    """Observation constant: with noise that stays, equal steps have equal actions."""

    agents: int | None = ppax.static("agents", default=None)
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (3,), np.float32)

    @property
    def num_agents(self):
        return self.agents

    def _obs(self):
        return jnp.ones((2,) if self.agents is None else (self.agents, 2))

    def reset(self, key):
        return EnvReset(jnp.zeros(()), self._obs())

    def step(self, state, action, key):
        reward = action.sum(axis=-1)
        return EnvStep(state, self._obs(), reward, jnp.zeros(reward.shape, bool), jnp.zeros(reward.shape, bool))


ENV = VectorEnv(TimeLimit(Still(), 7), 4)


def agent_of(env=ENV, **options):
    network = ppax.networks.network(env, hidden=(6,), gsde=True, **options)
    return ppax.PPO(network, extensions=(HeldNoise(EVERY),), num_epochs=2, learning_rate=3e-3)


def noise_of(actor):
    """Noise of each stream."""
    return actor.carry.extensions["held_noise"]


def rollout_of(agent, env=ENV, num_steps=10):
    state = ppax.start(agent, env, num_steps, jax.random.key(0))
    run = jax.jit(collect, static_argnums=4, compiler_options=QUICK)
    return state, run(agent, env, state.learner, state.actor, num_steps, jax.random.key(1))


@pytest.mark.parametrize("distribution", ["normal", "squashed", "ball"])
def test_actions_change_every_three_steps(distribution):
    _, collected = rollout_of(agent_of(distribution=distribution))
    action = np.asarray(collected.rollout.steps.action)
    for t in range(1, 10):
        same = (action[t] == action[t - 1]).all(axis=-1)
        assert same.all() if t % EVERY else not same.any(), t
    assert len(np.unique(action[:, :, 0])) == 4 * 4  # each stream and each draw has its own noise
    assert collected.rollout.steps.carry == ()  # learning does not need the noise, nor is it stored
    assert int(noise_of(collected.actor).age[0]) == 10


def test_the_ratio_is_1_and_iterations_go_on_with_the_noise():
    agent = agent_of()
    state = ppax.start(agent, ENV, 8, jax.random.key(0))
    train = jax.jit(ppax.train, compiler_options=QUICK)
    for i in range(3):
        state, metrics = train(agent, ENV, state, 1, 3)
        assert float(metrics["ratio_first_max_dev"]) < 1e-6
        assert (np.asarray(noise_of(state.actor).age) == 8 * (i + 1)).all()
    assert np.isfinite(metrics["loss"])
    spread = np.asarray(state.learner.params["log_std"])
    assert spread.shape == (6, 3)
    assert (spread != 0.0).all()  # every entry has been trained


def test_deterministic_episodes_and_policies_have_no_noise():
    agent = agent_of()
    state, _ = rollout_of(agent)
    mode = ppax.evaluate(agent, ENV, state.learner, jax.random.key(0), 4)
    assert mode.std_return == 0.0
    sampled = ppax.evaluate(agent, ENV, state.learner, jax.random.key(0), 4, deterministic=False)
    assert sampled.std_return > 0.0


def test_memory_and_noise_are_apart():
    agent = agent_of(memory=ppax.networks.memories.GRU(4))
    state, collected = rollout_of(agent, num_steps=8)
    assert {x.shape for x in jax.tree.leaves(collected.rollout.steps.carry)} == {(1, 4, 4)}
    assert agent.sequence_length(8) == 8
    assert len(jax.tree.leaves(state.actor.carry.memory)) == 2


def test_every_agent_has_noise_of_its_own():
    env = VectorEnv(TimeLimit(Still(2), 7), 2)
    for agent in (agent_of(env), ppax.Independent(agent_of(env), 2)):
        _, collected = rollout_of(agent, env)
        action = np.asarray(collected.rollout.steps.action)
        assert (action[1] == action[0]).all()
        assert (action[3] != action[2]).all()
        assert len(np.unique(action[0, :, 0])) == 4


def test_groups_with_and_without_noise():
    env = ppax.envs.grouped(VectorEnv(TimeLimit(Still(2), 7), 2), {"left": [0], "right": [1]})
    plain = ppax.PPO(ppax.networks.network(env.groups["right"], hidden=(6,)))
    agent = ppax.Groups({"left": agent_of(env.groups["left"]), "right": plain}, env.sizes)
    _, collected = rollout_of(agent, env)
    left, right = (np.asarray(collected.rollout.steps.action[name]) for name in ("left", "right"))
    assert (left[1] == left[0]).all()
    assert (right[1] != right[0]).all()


def test_a_run_is_resumed_bit_for_bit(tmp_path):
    network = {"hidden": [8], "gsde": True, "log_std_init": -1.0}
    agent = {"network": network, "extensions": {"held_noise": {"steps": 5}}, "num_epochs": 2}
    plan = {
        "env": "Pendulum-v1",
        "num_envs": 4,
        "num_steps": 8,
        "total_steps": 128,
        "agent": agent,
        "log": {"console": False, "every": 1},
    }
    built = config.build(plan)
    whole = fit_run(*built, tmp_path / "whole")
    fit_run(*built, tmp_path / "cut", [lambda state, row: row["iteration"] == 2])
    resumed = ppax.resume(tmp_path / "cut", console=False)
    assert int(resumed.state.iteration) == 4
    for x, y in zip(*map(jax.tree.leaves, (whole.state.learner, resumed.state.learner)), strict=True):
        np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(noise_of(whole.state.actor).matrix, noise_of(resumed.state.actor).matrix)
    policy = ppax.load(tmp_path / "whole")
    assert policy.spec.memory == {}
    obs = np.array([1.0, 0.0, 0.5], np.float32)
    np.testing.assert_array_equal(policy.act(obs), policy.act(obs))
    assert (policy.act(obs, deterministic=False) != policy.act(obs, deterministic=False)).any()


def test_on_the_host_the_noise_stays_too():
    env = ppax.make("gymnasium/Pendulum-v1", 2)
    agent = agent_of(env)
    run = ppax.fit(agent, env, total_steps=64, num_steps=16, log=ppax.Log(console=False, every=1))
    assert (np.asarray(noise_of(run.state.actor).age) == 32).all()
    assert run.history[-1]["ratio_first_max_dev"] < 1e-5
    run.evaluate(2)
    run.evaluate(2, deterministic=False)


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        ("CartPole-v1", {}, "gsde = true: gSDE is for one Box"),
        ("Pendulum-v1", {"distribution": "beta"}, "not for a BetaHead"),
        ("Pendulum-v1", {"state_std": True}, "set state_std to false"),
    ],
)
def test_what_has_no_such_noise_is_refused(env, options, message):
    with pytest.raises(ppax.ConfigError, match=message):
        ppax.networks.mlp(ppax.make(env, 4), gsde=True, **options)
    with pytest.raises(ppax.ConfigError, match=r"held_noise\.steps = 0: must be at least 1"):
        config.build({"env": "Pendulum-v1", "agent": {"extensions": {"held_noise": {"steps": 0}}}})


@ppax.part
class Nines(ppax.Extension):
    """Extension that acts: each action is 9."""

    def init_acting(self, agent, num_streams):
        return jnp.zeros(num_streams)

    def act(self, agent, acting, choice, key):
        return Acted(acting, jnp.full_like(choice.action, 9.0))


def test_an_action_of_an_extension_before_it_is_not_lost():
    def started(*extensions):
        agent = dataclasses.replace(agent_of(), extensions=extensions)
        state = ppax.start(agent, ENV, 10, jax.random.key(0))
        return agent.act(state.learner, state.actor.carry, state.actor.obs, state.actor.first, None, jax.random.key(1))

    with pytest.raises(ppax.ConfigError, match=r"held_noise would replace the action of nines; .* put it before nines"):
        started(ppax.extensions.FeatureNorm(), Nines(), HeldNoise())
    np.testing.assert_array_equal(started(ppax.extensions.FeatureNorm(), HeldNoise(), Nines()).action, 9.0)


@pytest.mark.parametrize("foreign", [False, True])
def test_noise_is_not_held_for_a_network_without_it(foreign):
    network = ppax.networks.network(ENV, hidden=(6,))
    agent = ppax.PPO(Leaky(network) if foreign else network, extensions=(HeldNoise(),))
    with pytest.raises(ppax.ConfigError, match=r"held_noise: needs a network .* network\.gsde = true"):
        ppax.start(agent, ENV, 4, jax.random.key(0))


def test_without_it_the_program_has_no_noise():
    agent = dataclasses.replace(agent_of(), network=ppax.networks.network(ENV, hidden=(6,)), extensions=())
    state = ppax.start(agent, ENV, 4, jax.random.key(0))
    assert state.actor.carry == ()
