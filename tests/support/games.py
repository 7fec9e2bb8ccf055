"""Games with known solutions for multi-agent tests."""

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from ppax.core.types import EnvReset, EnvStep, number, part

NOTHING = spaces.Box(0.0, 1.0, (1,), np.float32)


@part
class Matrix:
    """Matrix game: two players choose a row and a column; `payoff` [2, n, n] is the reward of each. Never ends."""

    payoff: jax.Array = number(default=())

    num_agents = 2
    observation_space = NOTHING

    @property
    def action_space(self):
        return spaces.Discrete(np.shape(self.payoff)[1])

    def reset(self, key):
        return EnvReset((), jnp.ones((2, 1)))

    def step(self, state, action, key):
        never = jnp.zeros(2, bool)
        return EnvStep(state, jnp.ones((2, 1)), jnp.asarray(self.payoff)[:, action[0], action[1]], never, never)


@part
class Credit:
    """Credit assignment: each agent observes a sign, which it should choose, and a random number.

    The common reward is the fraction of right choices plus `luck` times the sum of all numbers. To a critic with only
    its own number, the other numbers are noise that hides the effect of a choice; a central critic observes all.
    """

    luck: float = number(default=100.0)

    num_agents = 4
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def _draw(self, key):
        sign_key, luck_key = jax.random.split(key)
        sign = jnp.where(jax.random.bernoulli(sign_key, 0.5, (4,)), 1.0, -1.0)
        return jnp.stack([sign, jax.random.normal(luck_key, (4,))], axis=1)

    def reset(self, key):
        obs = self._draw(key)
        return EnvReset(obs, obs)

    def step(self, state, action, key):
        right = (action == (state[:, 0] > 0.0)).mean(dtype=jnp.float32)
        reward = jnp.broadcast_to(right + self.luck * state[:, 1].sum(), (4,))
        obs, never = self._draw(key), jnp.zeros(4, bool)
        return EnvStep(obs, obs, reward, never, never)
