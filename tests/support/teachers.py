"""Policies by hand. That of CartPole pushes towards the side to which the pole falls, and balances it for 500 steps."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

import ppax
from ppax.core.types import EnvReset, EnvStep, part, static
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


@part
class Entries:
    """Random numbers in each entry of a Dict observation; four steps an episode, of which the task stays the same.

    The entry "task" is a number from 5 on, "pixels" an image; the reward is the action that is the task's, from 0.
    """

    names: tuple[str, ...] = static("entries of the observation", default=("seen", "privileged", "task"))
    tasks: int = static("number of tasks", default=2)
    num_agents = None
    action_space = spaces.Discrete(3)

    @property
    def observation_space(self):
        every = {
            "seen": spaces.Box(-9.0, 9.0, (2,), np.float32),
            "privileged": spaces.Box(-9.0, 9.0, (3,), np.float32),
            "secret": spaces.Box(-9.0, 9.0, (1,), np.float32),
            "pixels": spaces.Box(0, 255, (8, 8, 1), np.uint8),
            "task": spaces.Discrete(self.tasks, start=5),
            "onehot": spaces.Box(0.0, 1.0, (self.tasks,), np.float32),
            "vector": spaces.Box(-9.0, 9.0, (2 + self.tasks + 1,), np.float32),
            "inner": spaces.Dict(task=spaces.Discrete(self.tasks)),
        }
        return spaces.Dict({name: every[name] for name in self.names})

    def _observe(self, task, key):
        seen, privileged, secret, pixels = (jax.random.fold_in(key, i) for i in range(4))
        hot = jax.nn.one_hot(task, self.tasks)
        numbers = jax.random.normal(seen, (2,))
        every = {
            "seen": numbers,
            "privileged": jax.random.normal(privileged, (3,)),
            "secret": jax.random.normal(secret, (1,)),
            "pixels": jax.random.randint(pixels, (8, 8, 1), 0, 256).astype(jnp.uint8),
            "task": task + 5,
            "onehot": hot,
            "vector": jnp.concatenate([numbers, hot, task.astype(jnp.float32)[None]]),
            "inner": {"task": task},
        }
        return {name: every[name] for name in self.names}

    def reset(self, key):
        task_key, key = jax.random.split(key)
        task = jax.random.randint(task_key, (), 0, self.tasks)
        return EnvReset((jnp.int32(0), task), self._observe(task, key))

    def step(self, state, action, key):
        time, task = state
        reward = (action == task).astype(jnp.float32)
        return EnvStep((time + 1, task), self._observe(task, key), reward, time >= 3, jnp.bool_(False))


class HostEntries(gymnasium.Env):
    """Entries in Python, with the entries that the student sees, the privileged ones and the task."""

    observation_space, action_space = Entries().observation_space, Entries.action_space

    def _observe(self):
        numbers = self.np_random.normal(size=5).clip(-9.0, 9.0).astype(np.float32)
        return {"seen": numbers[:2], "privileged": numbers[2:], "task": np.int64(self.task + 5)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.task = 0, int(self.np_random.integers(2))
        return self._observe(), {}

    def step(self, action):
        self.time += 1
        return self._observe(), float(action == self.task), self.time >= 4, False, {}


def always(env, action) -> ppax.Policy:
    """Policy with weights of 0 that takes `action` with a logit of 40, whatever it observes; its V is 0."""
    agent = ppax.PPO(ppax.networks.network(env, hidden=()))
    learner = jax.device_get(agent.init(env.observation_space, jax.random.key(0)))
    params = jax.tree.map(np.zeros_like, learner.params)
    params["policy"]["bias"] = 40.0 * np.eye(int(env.action_space.n), dtype=np.float32)[action]
    return ppax.Policy(agent, learner._replace(params=params), spec_of(agent, env, None, {}))
