"""Small environments and networks that only tests need."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from gymnasium import spaces
from jax import Array

from ppax.arrays import masks
from ppax.core.types import EnvReset, EnvStep, Memory, number, part, static
from ppax.networks import Composed
from ppax.ppo.optimizers import Optax

# Compiles in half the time; for tests that need neither speed nor the last bit
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}

SGD = functools.partial(Optax, optax.sgd)
AdamW = functools.partial(Optax, optax.adamw)


class Count(NamedTuple):
    time: Array
    episode: Array  # random number drawn at reset


def _obs(state):
    return jnp.stack([state.time.astype(jnp.float32), state.episode])


@part
class Counter:
    """Counter: ends after `length` steps by `terminated` or `truncated`; the reward is the time."""

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
    """Four actions, one of which is forbidden, changing with time; its reward is -100."""

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


SPACES = {
    "two": spaces.Discrete(2, start=1),
    "ragged": spaces.MultiDiscrete([3, 2, 4], start=[0, 5, -1]),
    "grid": spaces.MultiDiscrete(np.array([[2, 3], [2, 2]])),
    "bits": spaces.MultiBinary((2, 2)),
    "box": spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([1.0, 3.0], np.float32)),
    "half": spaces.Box(np.array([0.0, -np.inf], np.float32), np.array([np.inf, 1.0], np.float32)),
    "wide": spaces.Box(-0.1, 0.1, (2, 2), np.float64),
    "hybrid": spaces.Dict({"kind": spaces.Discrete(3, start=1), "where": spaces.Box(-2.0, 2.0, (2,))}),
    "nested": spaces.Dict(
        {
            "pair": spaces.Tuple((spaces.Discrete(2), spaces.Box(-1.0, 1.0, (1,)))),
            "bits": spaces.MultiBinary(2),
            "many": spaces.MultiDiscrete([2, 3]),
        }
    ),
}


@part
class HybridBandit:
    """Bandit with a hybrid action: a kind, with reward 0, 0.5 or 1 by the observation's sign, and a number.

    The best number is half of the observation. The mask forbids kinds at random, never all.
    """

    masked: bool = static(default=False)

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Dict({"kind": spaces.Discrete(3, start=4), "where": spaces.Box(-1.0, 1.0, (1,))})
    num_agents = None

    def best(self):
        """Return the best mean reward, by enumerating the masks."""
        allowed = [np.array(m) for m in np.ndindex(2, 2, 2) if any(m)] if self.masked else [np.ones(3)]
        return np.mean([np.max(m * np.array([0.0, 0.5, 1.0])) for m in allowed])

    def reset(self, key):
        sign_key, size_key, mask_key = jax.random.split(key, 3)
        obs = jax.random.rademacher(sign_key, (1,), jnp.float32) * jax.random.uniform(size_key, (1,), minval=0.2)
        bits = jax.random.randint(mask_key, (), 1, 8) >> jnp.arange(3) & 1 == 1
        return EnvReset(obs, obs, {"kind": bits} if self.masked else None)

    def step(self, state, action, key):
        kind = action["kind"] - 4
        value = 0.5 * jnp.where(state[0] > 0.0, kind, 2 - kind)
        reward = value - jnp.square(action["where"][0] - 0.5 * state[0])
        mask = {"kind": jnp.ones(3, bool)} if self.masked else None
        return EnvStep(state, state, reward, jnp.bool_(True), jnp.bool_(False), mask)


def no_mask(time):
    """Return no mask: every action is allowed."""


@part
class Spaced:
    """Four steps with the action space SPACES[name]; the reward is the bounded sum of all entries of the action.

    `mask(time)` returns the action mask. The state stores the received action.
    """

    name: str = static()
    mask: Callable = static(default=no_mask)

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    num_agents = None

    @property
    def action_space(self):
        return SPACES[self.name]

    def _obs(self, time):
        return jnp.stack([jnp.sin(time * 1.0), jnp.cos(time * 2.0)])

    def reset(self, key):
        sample = jax.tree.map(lambda x: jnp.zeros(np.shape(x), received(x)), dict_as_dict(self.action_space.sample()))
        return EnvReset((jnp.int32(0), sample), self._obs(jnp.int32(0)), self.mask(jnp.int32(0)))

    def step(self, state, action, key):
        time = state[0] + 1
        reward = jnp.stack([jnp.tanh(x.astype(jnp.float32)).sum() for x in jax.tree.leaves(action)]).sum()
        over = time >= 4
        return EnvStep((time, action), self._obs(time), reward, over, ~over & False, self.mask(time))


def received(x):
    """Return the dtype of received actions."""
    return jnp.int32 if np.issubdtype(np.asarray(x).dtype, np.integer) else jnp.float32


def dict_as_dict(action):
    """Convert ordered dicts, which Gymnasium samples, to dicts: they are different pytrees."""
    if isinstance(action, dict):
        return {name: dict_as_dict(x) for name, x in action.items()}
    return tuple(map(dict_as_dict, action)) if isinstance(action, tuple) else action


def random_mask(name):
    """Return a mask function of SPACES[name] that changes with time; sometimes it allows no action."""
    space = SPACES[name]

    def mask(time):
        def of(space, key):
            if isinstance(space, spaces.Dict):
                names = sorted(space.spaces)
                parts = zip(names, jax.random.split(key, len(names)), strict=True)
                return {name: of(space[name], key) for name, key in parts}
            if isinstance(space, spaces.Tuple):
                return tuple(of(s, k) for s, k in zip(space.spaces, jax.random.split(key, len(space)), strict=True))
            size = masks.size_of(space)
            return None if isinstance(space, spaces.Box) else jax.random.bernoulli(key, 0.6, (size,))

        return of(space, jax.random.fold_in(jax.random.key(3), time))

    return mask


RANDOM_MASKS = {name: random_mask(name) for name in SPACES}  # created once, because they are static fields


@part
class Leaky:
    """MLP over a leaky sum of its observations: a minimal memory."""

    inner: Composed = static()
    leak: float = static(default=0.9)

    def init(self, key, num_values=1):
        return self.inner.init(key, num_values)

    def rescale_value(self, params, scale, shift):
        return self.inner.rescale_value(params, scale, shift)

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
