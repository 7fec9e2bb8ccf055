"""Small environments and networks that only tests need."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.networks import Composed
from ppax.types import EnvReset, EnvStep, Memory, number, part, static

# Compiles in half the time; for tests of structure, where neither speed nor the last bit matters
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


class Count(NamedTuple):
    time: Array
    episode: Array  # a random number drawn at reset


def _obs(state):
    return jnp.stack([state.time.astype(jnp.float32), state.episode])


@part
class Counter:
    """Counts its steps; ends after `length` steps by `terminated` or `truncated`; the reward is the time."""

    length: int = number(default=3)
    terminates: bool = static(default=True)

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)
    num_agents = None

    def reset(self, key):
        state = Count(jnp.int32(0), jax.random.uniform(key))
        return EnvReset(state, _obs(state))

    def step(self, state, action, key):
        state = Count(state.time + 1, state.episode)
        over = state.time >= self.length
        flags = (over, ~over & False) if self.terminates else (~over & False, over)
        return EnvStep(state, _obs(state), state.time.astype(jnp.float32), *flags)


@part
class Team:
    """Three agents; agent i's episode ends after 2 + i steps, the last one's by truncation."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)
    num_agents = 3

    def _obs(self, time):
        return jnp.stack([jnp.full(3, time.astype(jnp.float32)), jnp.arange(3.0)], axis=1)

    def reset(self, key):
        return EnvReset(jnp.int32(0), self._obs(jnp.int32(0)))

    def step(self, state, action, key):
        state = state + 1
        over = state >= 2 + jnp.arange(3)
        last = jnp.arange(3) == 2
        return EnvStep(state, self._obs(state), jnp.ones(3), over & ~last, over & last)


@part
class Masked:
    """Four actions, of which one, changing with time, is forbidden; choosing it would give -100."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(4)
    num_agents = None

    def _mask(self, time):
        return jnp.arange(4) != time % 4

    def reset(self, key):
        return EnvReset(jnp.int32(0), jnp.zeros(1), self._mask(jnp.int32(0)))

    def step(self, state, action, key):
        reward = jnp.where(action == state % 4, -100.0, 1.0)
        state = state + 1
        over = state >= 10
        return EnvStep(state, jnp.zeros(1), reward, over, ~over & False, self._mask(state))


@part
class Leaky:
    """An MLP over a leaky sum of its observations: the smallest memory there is."""

    inner: Composed = static()
    leak: float = static(default=0.9)

    def init(self, key, num_values=1):
        return self.inner.init(key, num_values)

    def initial_carry(self):
        return jnp.zeros(self.inner.actor_readers[0].entries[0].shape)

    def encode(self, params, obs):
        return obs

    def remember(self, params, carry, features, first):
        def step(carry, now):
            x, first = now
            carry = jnp.where(first, self.initial_carry(), carry) * self.leak + x
            return carry, carry

        return Memory(*jax.lax.scan(step, carry, (features, first)))

    def decide(self, params, features, action_mask):
        return self.inner.decide(params, self.inner.encode(params, features), action_mask)
