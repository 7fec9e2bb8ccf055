"""Scene of an environment on the host: act, step and render, for `ppax play`."""

from __future__ import annotations

import numpy as np

from ppax.core.types import StepResult
from ppax.envs.hosting.rendering import RenderedEnv
from ppax.training.host.episodes import HostActor, counted


class HostScene:
    """Scene of an environment on the host."""

    def __init__(self, host_actor: HostActor, one: RenderedEnv):
        self._host_actor, self._one = host_actor, one
        self._ended = np.zeros(one.env.num_streams, bool)

    def picture(self) -> np.ndarray:
        """Render the current state."""
        return self._one.picture()

    def move(self, t: int) -> StepResult:
        """Act and step."""
        if self._ended.all():
            self._ended[:] = False
        self._host_actor.send(0)
        step = self._host_actor.receive(0)
        reward, ended = counted(step, self._one.env.host.spec.turns)
        self._ended = self._ended | ended
        return StepResult(np.array(reward), bool(step.valid.any()), bool(self._ended.all()))
