"""Host environments whose parameters are drawn at every reset: domain randomisation, as in envs/wrappers/params.py.

Tobin et al. 2017, https://arxiv.org/abs/1703.06907. This file imports nothing of ppax: worker processes load it too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np


class DomainRandomisation(gymnasium.Wrapper):  # type: ignore[type-arg]
    """Environment with parameters drawn uniformly from `ranges`, (low, high) by name, at every reset.

    If both ends of a range are of type int, whole numbers are drawn, both ends included.

    `set_params(env, numbers)` puts the drawn numbers into the environment; without that function each episode has a new
    environment, `make(**numbers)`. Equal seeds of `reset` give equal numbers, also in the episodes that follow without
    a seed.
    """

    env: gymnasium.Env[Any, Any]

    def __init__(
        self,
        make: Callable[..., gymnasium.Env[Any, Any]],
        ranges: Mapping[str, tuple[float, float]],
        set_params: Callable[[Any, dict[str, float]], None] | None = None,
        /,
        **arguments: Any,
    ):
        self._make, self._ranges, self._set_params, self._arguments = make, dict(ranges), set_params, arguments
        self._rng = np.random.default_rng()
        first = {} if set_params else {name: low for name, (low, _) in self._ranges.items()}
        env = make(**first, **arguments)
        if not isinstance(env, gymnasium.Env):
            raise TypeError(f"{type(env).__name__} is no gymnasium.Env, of which parameters can be drawn")
        super().__init__(env)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Return observation and info of a new episode, whose parameters are drawn first."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        numbers = {name: self._draw(low, high) for name, (low, high) in self._ranges.items()}
        if self._set_params is not None:
            self._set_params(self.env, numbers)
        else:
            self.env.close()  # first: of an environment with a port or a licence there may be one at a time
            self.env = self._make(**numbers, **self._arguments)
            # a new environment would draw its seed from the operating system
            seed = int(self._rng.integers(2**31)) if seed is None else seed
        return self.env.reset(seed=seed, options=options)

    def _draw(self, low: float, high: float) -> float:
        if isinstance(low, int) and isinstance(high, int):
            return int(self._rng.integers(low, high, endpoint=True))
        return float(self._rng.uniform(low, high))
