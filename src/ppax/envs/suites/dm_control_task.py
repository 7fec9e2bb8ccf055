"""Tasks of the DeepMind Control Suite as environments of Gymnasium, https://github.com/google-deepmind/dm_control.

Tassa et al., "DeepMind Control Suite", 2018, https://arxiv.org/abs/1801.00690. This file imports nothing of ppax: it is
pickled by value for worker processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class ControlTask(gymnasium.Env):
    """Task of the DeepMind Control Suite, with observations that are a Dict of vectors.

    At the end of an episode dm_control's discount is 1 at the time limit, which is a truncation, and 0 at a
    termination. `task_kwargs` and `environment_kwargs` are those of `dm_control.suite.load`.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012

    def __init__(
        self,
        domain: str,
        task: str,
        task_kwargs: Mapping[str, Any] | None = None,
        environment_kwargs: Mapping[str, Any] | None = None,
        height: int = 240,
        width: int = 320,
        camera_id: int | str = 0,
        render_mode: str | None = None,
    ):
        from dm_control import suite

        self.render_mode = render_mode
        self._picture = {"height": height, "width": width, "camera_id": camera_id}
        arguments = {"task_kwargs": dict(task_kwargs or {}), "environment_kwargs": dict(environment_kwargs or {})}
        self.env: Any = suite.load(domain, task, **arguments)
        action = self.env.action_spec()
        self.action_space = spaces.Box(
            *(np.broadcast_to(bound, action.shape).astype(np.float32) for bound in (action.minimum, action.maximum))
        )
        seen = self.env.observation_spec().items()
        self.observation_space = spaces.Dict(
            {name: spaces.Box(-np.inf, np.inf, spec.shape or (1,), np.float32) for name, spec in seen}
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Return the first observation of an episode; with `seed` the task's random numbers begin anew."""
        super().reset(seed=seed)
        if seed is not None:
            self.env.task.random.seed(seed)
        return _floats(self.env.reset().observation), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return the result of one control step."""
        now = self.env.step(np.asarray(action, np.float64))
        terminated = bool(now.last() and now.discount == 0.0)
        return _floats(now.observation), float(now.reward or 0.0), terminated, bool(now.last() and not terminated), {}

    def render(self) -> Any:
        """Return a picture [H, W, 3] of the task's camera."""
        return self.env.physics.render(**self._picture)

    def close(self) -> None:
        """Free the simulator's memory."""
        self.env.close()


def _floats(observation: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the arrays of an observation as float32; a number becomes a vector of one."""
    return {name: np.atleast_1d(np.asarray(value, np.float32)) for name, value in observation.items()}
