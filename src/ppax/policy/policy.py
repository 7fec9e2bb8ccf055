"""Policy: a trained agent with what acting needs, for use outside of its run."""

from __future__ import annotations

from typing import Any

import jax
from jax import Array

from ppax.arrays import masks
from ppax.envs import Env
from ppax.evaluation import Evaluation, evaluate, evaluation_key
from ppax.policy.acting import acting
from ppax.policy.spec import PolicySpec
from ppax.policy.step import Stepped, step
from ppax.protocols import Agent
from ppax.types import ConfigError, Key, PyTree


class Policy:
    """Trained policy: `act` for observations in NumPy, `step` for compiled programs, `evaluate` on environments.

    `agent` is PPO, Independent or Groups; `learner` is the part of its learner that acting reads (parameters,
    observation statistics), NumPy arrays on the host; `spec` describes inputs and outputs.
    """

    def __init__(self, agent: Agent, learner: Any, spec: PolicySpec):
        """Keep the parts that acting needs of `agent` and `learner` (a whole learner, or one stripped already)."""
        self.agent, learner = acting(agent, learner)
        self.learner = jax.device_get(learner)
        self.spec = spec

    def step(
        self, carry: PyTree, obs: PyTree, first: Array, mask: PyTree | None = None, key: Key | None = None
    ) -> Stepped:
        """Act for B streams: a pure function, for use inside `jax.jit`, `jax.vmap` and `jax.lax.scan`.

        `carry` is that of the step before, at the start `initial_carry(B)`; `obs` [B, ...]; `first` [B] is True where
        an episode begins, and the memory starts anew; `mask` [B, n] as the environment gives it. Without `key` the
        action is the mode of the distribution; with a key, [] or [B], it is sampled.
        """
        if mask is None and self.spec.masked:
            raise ConfigError("mask: this policy was trained with action masks: pass one, True where allowed")
        return step(self.agent, self.learner, carry, obs, first, self._complete(mask, first.shape[0]), key)

    def initial_carry(self, batch: int) -> PyTree:
        """Return the memory of `batch` streams at the start of an episode, [B, ...]; () without memory."""
        return self.agent.initial_carry(batch)

    def evaluate(
        self, env: Env, episodes: int = 128, deterministic: bool = True, seed: int = 0, **options: Any
    ) -> Evaluation:
        """Play whole episodes in `env` and return their returns and lengths; see `ppax.evaluate`."""
        key = evaluation_key(seed)
        return evaluate(self.agent, env, self.learner, key, episodes, deterministic, **options)

    def _complete(self, mask: PyTree | None, streams: int) -> PyTree | None:
        """Return masks [B, n] in the layout of arrays/masks.py."""
        if mask is None or not self.spec.sizes:
            return masks.complete(self.spec.action_space, mask, streams, "mask")
        envs = streams // self.spec.num_agents
        return {
            name: masks.complete(group.action_space, mask.get(name), envs * group.num_agents, f"mask[{name!r}]")
            for name, group in self.spec.groups.items()
        }
