"""Policies by hand. That of CartPole pushes towards the side to which the pole falls, and balances it for 500 steps."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

import ppax
from ppax.core.types import EnvReset, EnvStep, part
from ppax.networks.memories import GRU
from ppax.policy.spec import spec_of

WEIGHTS = np.array([0.1, 0.3, 3.0, 1.0], np.float32)  # of position, velocity, angle, angular velocity


def teacher_of(env, weights=WEIGHTS, **options) -> ppax.Policy:
    """Policy with one hidden layer, so small that tanh is linear, whose logits are -+ 20 * weights . observation."""
    agent = ppax.PPO(ppax.networks.mlp(env, hidden=(4,), **options))
    learner = jax.device_get(agent.init(env.observation_space, jax.random.key(0)))
    params = learner.params
    params["actor"]["0"] = {"kernel": 0.01 * np.eye(4, dtype=np.float32), "bias": np.zeros(4, np.float32)}
    kernel = 2000.0 * np.stack([-np.asarray(weights), weights], axis=1).astype(np.float32)
    params["policy"] = {"kernel": kernel, "bias": np.zeros(2, np.float32)}
    return ppax.Policy(agent, learner._replace(params=params), spec_of(agent, env, None, {}))


def latch_of(env) -> ppax.Policy:
    """Policy for two inputs that remembers which of them was 1 last, by hand: one GRU unit, -1 or 1."""
    agent = ppax.PPO(ppax.networks.network(env, hidden=(), memory=GRU(1)))
    learner = jax.device_get(agent.init(env.observation_space, jax.random.key(0)))
    memory = jax.tree.map(np.zeros_like, learner.params["actor"]["memory"])
    # columns: reset gate, update gate (closed after an input), candidate
    memory["input"] = {
        "kernel": np.array([[0.0, -16.0, -5.0], [0.0, -16.0, 5.0]], np.float32),
        "bias": np.array([0.0, 8.0, 0.0], np.float32),
    }
    learner.params["actor"]["memory"] = memory
    learner.params["policy"] = {"kernel": np.array([[-10.0, 10.0]], np.float32), "bias": np.zeros(2, np.float32)}
    return ppax.Policy(agent, learner, spec_of(agent, env, None, {}))


def table_of(env, actions) -> ppax.Policy:
    """Policy for one-hot observations: the action of each place has a logit of 40, all others 0."""
    agent = ppax.PPO(ppax.networks.mlp(env, hidden=()))
    learner = jax.device_get(agent.init(env.observation_space, jax.random.key(0)))
    kernel = 40.0 * np.eye(int(env.action_space.n), dtype=np.float32)[np.asarray(actions)]
    learner.params["policy"] = {"kernel": kernel, "bias": np.zeros(kernel.shape[1], np.float32)}
    return ppax.Policy(agent, learner, spec_of(agent, env, None, {}))


@part
class Recall:
    """Cue that is seen in the first of four steps; the reward is 1 in each step whose action equals it."""

    observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)
    num_agents = None

    def reset(self, key):
        cue = jax.random.randint(key, (), 0, 2)
        return EnvReset((jnp.int32(0), cue), jax.nn.one_hot(cue, 2))

    def step(self, state, action, key):
        time, cue = state
        reward = (action == cue).astype(jnp.float32)
        return EnvStep((time + 1, cue), jnp.zeros(2), reward, time >= 3, jnp.bool_(False))


class HostRecall(gymnasium.Env):
    """Recall in Python."""

    observation_space, action_space = Recall.observation_space, Recall.action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.cue = 0, int(self.np_random.integers(2))
        return np.eye(2, dtype=np.float32)[self.cue], {}

    def step(self, action):
        self.time += 1
        return np.zeros(2, np.float32), float(action == self.cue), self.time >= 4, False, {}
