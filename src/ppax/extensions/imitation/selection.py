"""Selection of a teacher in each step, where a student has several: by the task in its observation, or by value.

By task: distillation of a policy for each task into one policy (Rusu et al. 2016, https://arxiv.org/abs/1511.06295).
By value: the best of several policies in each state, by the largest of their values (Cheng et al. 2020,
https://arxiv.org/abs/2007.00795).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.core.types import ConfigError, PyTree, Scalar, number, part, static
from ppax.extensions.imitation.views import entry_at, follow_path

FIELD = "distillation.select"


class Selection(Protocol):
    """Rule that selects one of K teachers in each step."""

    @property
    def needs_value(self) -> bool:
        """True if the rule reads V, the estimates of the teachers' own critics."""

    def check(self, observation: spaces.Space, teachers: Sequence[Any]) -> None:
        """Raise ConfigError where the rule does not fit the student's observation space or the teachers (policies)."""

    def __call__(self, obs: PyTree, values: Array | None, space: spaces.Space) -> Array:
        """Return the index [] of the teacher for one step, from 0 to K - 1.

        `obs` is the observation of the student's environment, an element of `space`; `values` [K] is V of each
        teacher's critic, or None if the rule does not need it.
        """


@part
class ByTask:
    """Selection by the task: the observation has the task's number, which is the index of its teacher."""

    entry: str = static(
        "entry of a Dict observation that has the task: its number, or a one-hot vector; empty: the observation itself",
        default="",
    )
    columns: tuple[int, ...] = static(
        "columns of a vector that are the one-hot vector of the task, or the one column with its number; empty: all",
        default=(),
    )

    @property
    def needs_value(self) -> bool:
        """False: the task alone selects the teacher."""
        return False

    def check(self, observation: spaces.Space, teachers: Sequence[Any]) -> None:
        """Raise ConfigError where the observation has no entry `entry`, or this entry cannot be the task's number.

        Also raises it where the entry has another number of tasks than there are teachers.
        """
        place, space = entry_at(observation, self.entry, f"{FIELD}.entry")
        where = f"{FIELD}.entry = {self.entry!r}"
        if isinstance(space, spaces.Discrete):
            if self.columns:
                raise ConfigError(f"{FIELD}.columns = {list(self.columns)}: {where} is one number; leave columns out")
            _require_as_many(int(space.n), teachers, where)
            return
        shape = space.shape
        if isinstance(space, spaces.Dict | spaces.Tuple) or shape is None or len(shape) > 1:
            inside = f": {', '.join(space.spaces)}" if isinstance(space, spaces.Dict) else ""
            raise ConfigError(f"{where}: {place} is a {type(space).__name__}{inside}; must be a number or a vector")
        size = int(np.prod(shape))
        for column in self.columns:
            if not -size <= column < size:
                nearest = int(np.clip(column, -size, size - 1))
                raise ConfigError(
                    f"{FIELD}.columns = {list(self.columns)}: {where} has {size} columns, 0 to {size - 1}, or -1 for "
                    f"the last; nearest to {column}: {nearest}"
                )
        width = len(self.columns) or size
        if width > 1:
            _require_as_many(width, teachers, where)

    def __call__(self, obs: PyTree, values: Array | None, space: spaces.Space) -> Array:
        """Return the task's number, counted from 0, from the entry of the observation that has it.

        The entry is Discrete, a one-hot vector, or a single number.
        """
        space = entry_at(space, self.entry, f"{FIELD}.entry")[1]
        x = jnp.ravel(follow_path(obs, self.entry))
        if isinstance(space, spaces.Discrete):
            return (x[0] - int(space.start)).astype(jnp.int32)
        x = x[np.array(self.columns)] if self.columns else x
        return jnp.argmax(x) if x.size > 1 else jnp.round(x[0]).astype(jnp.int32)


@part
class ByValue:
    """Selection by value: the teacher whose own critic has the highest V of this observation. Cheng et al. 2020,
    https://arxiv.org/abs/2007.00795
    """

    scales: tuple[Scalar, ...] = number(
        "units of each teacher's V, by which it is multiplied; "
        "for normalize_reward the std of the discounted return; empty: 1 each",
        default=(),
        above=0.0,
    )

    @property
    def needs_value(self) -> bool:
        """True: the teachers' critics are compared."""
        return True

    def check(self, observation: spaces.Space, teachers: Sequence[Any]) -> None:
        """Raise ConfigError where the number of `scales` is not that of the teachers, or where scales are missing.

        They are needed for teachers trained with normalize_reward, whose V have units of their own.
        """
        if self.scales and len(self.scales) != len(teachers):
            raise ConfigError(
                f"{FIELD}.scales has {len(self.scales)} numbers, and there are {len(teachers)} teachers; must be one "
                "for each, or none"
            )
        scaled = [str(i) for i, one in enumerate(teachers) if one is not None and one.agent.normalize_reward]
        if scaled and not self.scales:
            raise ConfigError(
                f"{FIELD}: the teachers {', '.join(scaled)} (counted from 0) were trained with normalize_reward, so "
                f"that their V has units of its own and cannot be compared; give the factor of each in {FIELD}.scales"
            )

    def __call__(self, obs: PyTree, values: Array | None, space: spaces.Space) -> Array:
        """Return the index of the teacher with the highest V, each multiplied by its scale; of equal ones the first."""
        assert values is not None
        scales = jnp.stack([jnp.float32(x) for x in self.scales]) if self.scales else jnp.float32(1.0)
        return jnp.argmax(values * scales)


def _require_as_many(tasks: int, teachers: Sequence[Any], where: str) -> None:
    if tasks != len(teachers):
        raise ConfigError(
            f"{where}: has {tasks} tasks, and there are {len(teachers)} teachers; must be one for each task, in the "
            "order of their numbers (a teacher of two tasks is named twice)"
        )
