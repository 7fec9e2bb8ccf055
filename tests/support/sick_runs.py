"""Runs that cannot learn, each by known faults of its configuration or environment, and runs that learn."""

import dataclasses
import functools
import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

import ppax
from ppax.core.protocols import Environment
from ppax.core.types import EnvReset, number, part
from ppax.envs import VectorEnv, builtin
from ppax.networks import Composed


class Elapsed(NamedTuple):
    inner: object
    steps: Array


@part
class Changed:
    """Environment with scaled rewards and observations, and a time limit, which may be reported as an end of the task.

    All changes are leaves: runs on it share one compiled program.
    """

    env: Environment
    reward: float = number(default=1.0)
    obs: float = number(default=1.0)
    growth: float = number(default=1.0)  # of observations, in each step of an episode
    limit: int = number(default=2**30)
    terminates: bool = number(default=False)

    num_agents = None

    @property
    def observation_space(self):
        return spaces.Box(-np.inf, np.inf, self.env.observation_space.shape, np.float32)

    @property
    def action_space(self):
        return self.env.action_space

    def reset(self, key):
        state, obs, *_ = self.env.reset(key)
        return EnvReset(Elapsed(state, jnp.int32(0)), self.obs * obs)

    def step(self, state, action, key):
        out, steps = self.env.step(state.inner, action, key), state.steps + 1
        over = steps >= self.limit
        return out._replace(
            state=Elapsed(out.state, steps),
            obs=self.obs * self.growth**steps * out.obs,
            reward=self.reward * out.reward,
            terminated=out.terminated | (over & self.terminates),
            truncated=over & jnp.logical_not(self.terminates),
        )


@part
class InNewtons:
    """Environment whose actions have the range from 0 to 1,000."""

    env: Environment

    num_agents = None
    action_space = spaces.Box(0.0, 1000.0, (1,), np.float32)

    @property
    def observation_space(self):
        return self.env.observation_space

    def reset(self, key):
        return self.env.reset(key)

    def step(self, state, action, key):
        return self.env.step(state, action / 250.0 - 2.0, key)


@part
class PerSequence(Composed):
    """Features times a power of the length of the sequence, which is 1 while acting and `seq_len` while learning."""

    power: float = number(default=0.0)

    def remember(self, params, carry, features, first):
        out = super().remember(params, carry, features, first)
        return out._replace(features=jax.tree.map(lambda x: x * first.shape[0] ** self.power, out.features))


NUM_ENVS, NUM_STEPS = 8, 32


def fit(env, agent, iterations, every=1):
    log = ppax.Log(every=every, console=False)
    return ppax.fit(agent, env, iterations * NUM_ENVS * NUM_STEPS, num_steps=NUM_STEPS, log=log)


def pendulum(iterations, changes, every=1, **options):
    env = VectorEnv(Changed(builtin.Pendulum(), **changes), NUM_ENVS)
    return fit(env, ppax.PPO(ppax.networks.network(env, hidden=(32,)), **options), iterations, every)


def cartpole(iterations, reward, power, learning_rate):
    env = VectorEnv(Changed(builtin.CartPole(), reward=reward), NUM_ENVS)
    usual = ppax.networks.network(env, hidden=(16,))
    network = PerSequence(
        **{field.name: getattr(usual, field.name) for field in dataclasses.fields(usual)}, power=power
    )
    return fit(env, ppax.PPO(network, learning_rate=learning_rate, seq_len=NUM_STEPS), iterations)


def in_newtons():
    env = VectorEnv(InNewtons(Changed(builtin.Pendulum(), reward=0.1, limit=50)), NUM_ENVS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `fit` says it, too
        return fit(env, ppax.PPO(ppax.networks.network(env, hidden=(32,))), 20)


def mountain_car():
    env = ppax.make("MountainCar-v0", NUM_ENVS)
    return fit(env, ppax.PPO(ppax.networks.network(env)), 100)


# By name: the run, and the rules that its faults must show; others may see it too
SICK = {
    "clip range 0.001": (
        lambda: pendulum(
            40, {"reward": 0.1, "limit": 200}, learning_rate=1e-2, loss=ppax.losses.ClippedSurrogate(clip_eps=1e-3)
        ),
        {"clip_fraction_high", "episodes_in_step"},
    ),
    "rewards times 10,000": (
        lambda: pendulum(20, {"reward": 1e4, "limit": 50}),
        {"targets_large", "value_loss_dominates", "explained_variance_low"},
    ),
    "time limit as an end, observations times 100, gamma 0.3": (
        lambda: pendulum(20, {"obs": 100.0, "limit": 50, "terminates": True}, gamma=0.3),
        {"truncation_as_end", "observations_large", "horizon_short"},
    ),
    "observations that grow by half in each step": (
        lambda: pendulum(20, {"growth": 1.5, "limit": 50}, normalize_obs=True),
        {"observations_grow"},
    ),
    "no reward, no end": (
        lambda: pendulum(32, {"reward": 0.0}),
        {"reward_not_reached", "no_episode_ended"},
    ),
    "actions from 0 to 1,000": (in_newtons, {"actions_off_scale"}),
    "ten iterations, a time limit of 20 steps": (
        lambda: pendulum(10, {"limit": 20}),
        {"few_gradient_steps", "horizon_long"},
    ),
    "features depend on the length of the sequence": (
        lambda: cartpole(20, 1.0, -1.0, 3e-4),
        {"ratio_not_one"},
    ),
    "a cost for each step of survival": (lambda: cartpole(40, -1.0, 0.0, 1e-2), {"ending_pays"}),
    # five rows: the first update alone, from near uniform probabilities, is a fifth of them
    "learning rate 0.3": (lambda: cartpole(5, 1.0, 0.0, 0.3), {"kl_large"}),
    "no reward, learning rate 0.3": (lambda: cartpole(40, 0.0, 0.0, 0.3), {"entropy_gone"}),
    "MountainCar-v0 with the defaults": (mountain_car, {"reward_not_reached"}),
}


def by_defaults(name, steps):
    return ppax.build(name, total_steps=steps, log={"console": False}).fit()


def remembering():
    env = ppax.make("CueCorridor-10", 64)
    network = ppax.networks.network(env, hidden=(32,), memory=ppax.networks.memories.GRU(32))
    agent = ppax.PPO(network, learning_rate=3e-3)
    return ppax.fit(agent, env, 64 * 32 * 60, num_steps=32, log=ppax.Log(console=False))


HEALTHY = {
    "Pendulum, rewards times 0.1": lambda: pendulum(
        500, {"reward": 0.1, "limit": 200}, every=10, learning_rate=2e-3, gamma=0.9
    ),
    "CartPole-v1": lambda: by_defaults("CartPole-v1", 150_000),
    "Pendulum-v1": lambda: by_defaults("Pendulum-v1", 500_000),
    "CueCorridor-10 with a GRU": remembering,
}


@functools.cache
def diagnosis_of(name):
    """Diagnosis of a run of SICK or HEALTHY, trained once."""
    run = SICK[name][0] if name in SICK else HEALTHY[name]
    return ppax.doctor(run())
