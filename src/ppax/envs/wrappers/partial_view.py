"""Partial observability: a wrapper that hides entries of a vector observation, so that the task requires memory."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from ppax.core.types import EnvReset, EnvStep, Key, PyTree, part, static
from ppax.envs.wrappers.wrapper import Wrapper


@part
class PartialView(Wrapper):
    """Wrapper of `env` that returns only the observation entries at the indices `seen`."""

    seen: tuple[int, ...] = static("indices of the observation entries that the agent sees", low=0)

    @property
    def observation_space(self) -> spaces.Space:
        """Space of observations: a Box of the visible entries."""
        space = self.env.observation_space
        assert isinstance(space, spaces.Box)
        seen = list(self.seen)
        return spaces.Box(space.low[..., seen], space.high[..., seen], dtype=np.float32)

    def reset(self, key: Key) -> EnvReset:
        """Return a new episode of the inner environment, with the visible entries of its observation."""
        start = self.env.reset(key)
        return start._replace(obs=start.obs[..., np.array(self.seen)])

    def step(self, state: PyTree, action: PyTree, key: Key) -> EnvStep:
        """Return the result of a step of the inner environment, with the visible entries of its observation."""
        step = self.env.step(state, action, key)
        return step._replace(obs=step.obs[..., np.array(self.seen)])
