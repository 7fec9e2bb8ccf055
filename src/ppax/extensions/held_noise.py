"""Exploration noise that is held for several steps: generalised state-dependent exploration (gSDE). Raffin et al. 2021,
https://arxiv.org/abs/2005.05719

The noise of an action is theta^T z, with features z and a matrix theta that stays for `steps` steps; equations are in
distributions/normal.py. The density of an action does not depend on theta, so rollouts do not store it.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from gymnasium import spaces
from jax import Array

from ppax.arrays.sequences import where_rows
from ppax.core.types import ConfigError, ExtensionState, Key, part, static
from ppax.distributions.normal import standard_noise
from ppax.ppo.extension import Acted, Choice, Extension, name_of


class Noise(NamedTuple):
    """State of the held noise in every stream (one agent in one environment): the noise matrix, and a count of steps.

    `HeldNoise.act` draws a stream's matrix anew whenever the stream's count is a multiple of `HeldNoise.steps`.
    """

    matrix: Array  # [B, F, d] standard normal
    age: Array  # [B] int32, steps since the rollouts began


@part
class HeldNoise(Extension):
    """Exploration noise held for several steps (gSDE), for networks made with `gsde=True`. Raffin et al. 2021,
    https://arxiv.org/abs/2005.05719
    """

    steps: int = static("steps between two draws of the noise", default=8, low=1)

    def init(self, agent: Any, observation_space: spaces.Space, key: Key) -> ExtensionState:
        """Return an empty state and no parameters: held noise is kept for each stream, not in the learner.

        A stream is one agent in one environment.
        """
        return ExtensionState()

    def init_acting(self, agent: Any, num_streams: int) -> Noise:
        """Return the noise that each stream begins with: zeros [B, ...], which the first step replaces by a draw.

        A stream is one agent in one environment. Raises ConfigError for a network without gSDE, whose noise does not
        depend on features, and where an extension before this one acts, whose action would be lost.
        """
        before = itertools.takewhile(lambda one: one is not self, agent.extensions)
        acts = next((name_of(one) for one in before if jax.tree.leaves(one.init_acting(agent, num_streams))), None)
        if acts is not None:
            raise ConfigError(
                f"extensions: held_noise would replace the action of {acts}; must be the first extension that acts: "
                f"put it before {acts}"
            )
        if not getattr(agent.network, "gsde", False):
            raise ConfigError(
                "held_noise: needs a network whose noise depends on features: write network.gsde = true, in Python "
                "ppax.networks.network(env, gsde=True)"
            )
        matrix = jnp.zeros((num_streams, *agent.network.noise_shape()), jnp.float32)
        return Noise(matrix, jnp.zeros(num_streams, jnp.int32))

    def act(self, agent: Any, acting: Noise, choice: Choice, key: Key) -> Acted:
        """Return the action of every stream: the policy's mean plus noise theta^T z; and the next state of the noise.

        A stream is one agent in one environment. A stream's matrix theta is drawn anew every `steps` steps and held in
        between; z are the features of the current observation.
        """
        matrix, age = acting
        due = age % self.steps == 0  # [B], mostly all streams at once: they begin together
        # key data, not keys: under vmap the branch becomes a select, which JAX's key-reuse check refuses for keys
        data, impl = jax.random.key_data(key), jax.random.key_impl(key)

        def fresh() -> Array:
            keys = jax.random.wrap_key_data(data, impl=impl)
            drawn = jax.vmap(lambda one: jax.random.normal(one, matrix.shape[1:], jnp.float32))(keys)
            renewed: Array = where_rows(due, drawn, matrix)
            return renewed

        matrix = jax.lax.cond(due.any(), fresh, lambda: matrix)
        noise = jax.vmap(standard_noise)(choice.policy.noise_basis, matrix)
        return Acted(Noise(matrix, age + 1), choice.policy.distribution.from_noise(noise))
