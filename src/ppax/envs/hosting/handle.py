"""Environments that run on the host, or can."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from ppax.envs.hosting.stepper import Seen, Stepper


class Example(NamedTuple):
    """What all environments have in common, as the first one has it; in the order of the end of arrays.Layout."""

    observation_space: spaces.Space  # of one stream
    action_space: spaces.Space
    mask_size: int | None  # entries of an action mask; None: there are none
    tallies: bool  # whether statistics count something else than what is learned from (arrays.Tally)
    agents: int | None  # in each environment; None: one, without an axis of agents


def exactly(space: Any) -> str:
    """All numbers of a space: its own `repr` leaves some out, and its `==` compares by nearness."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        return f"{type(space)}({[(name, exactly(part)) for name, part in parts]})"
    numbers = {name: x for name, x in vars(space).items() if name not in ("_np_random", "low_repr", "high_repr")}
    return f"{type(space)}({ {name: x.tolist() if isinstance(x, np.ndarray) else x for name, x in numbers.items()} })"


class Host:
    """Environments that run, or can: they are made at the first reset, and made again after `close`."""

    def __init__(
        self,
        example: Example,
        num_envs: int,
        make: Callable[[int], Stepper],
        factories: Sequence[Callable[[], Any]],
        unique: bool = False,
    ):
        """`factories` make single environments to look at. `unique`: `make` and they give the same ones every time."""
        self.example, self.num_envs, self.unique, self._make = example, num_envs, unique, make
        self.factories = tuple(factories)
        self.position = 0  # steps and resets since they were made; 0: nowhere
        self.last: list[Seen] = []  # what each group saw last
        self._stepper: Stepper | None = None

    @functools.cached_property
    def identity(self) -> str:
        """Everything about one of the environments that belongs to a program."""
        return f"{exactly(self.example[0])}{exactly(self.example[1])}{self.example[2:]}"

    @property
    def groups(self) -> tuple[slice, ...]:
        """Streams that are stepped together; there are two groups where one is stepped while the policy acts."""
        return self.stepper.groups

    @property
    def cuts(self) -> bool:
        """Whether the next observation may open another episode, so that the last one must be valued at once."""
        return self.stepper.cuts

    @property
    def stepper(self) -> Stepper:
        """What steps them; made, if there is none."""
        if self._stepper is None:
            self._stepper = self._make(self.num_envs)
        return self._stepper

    def sizes(self) -> set[int]:
        """How many streams are stepped together."""
        return {rows.stop - rows.start for rows in self.groups}

    def reset(self, seeds: Sequence[int]) -> list[Seen]:
        """Begin an episode everywhere; what each group sees."""
        stepper = self.stepper
        self.position += 1
        stepper.reset(seeds)
        self.last = [stepper.receive(number) for number in range(len(stepper.groups))]
        return list(self.last)

    def send(self, number: int, action: Sequence[np.ndarray]) -> None:
        """Begin one step of a group; `action` is a list of arrays [e, ...]."""
        self.position += 1
        self.stepper.send(number, action)

    def receive(self, number: int) -> Seen:
        """What came of it."""
        self.last[number] = seen = self.stepper.receive(number)
        return seen

    def again(self, num_envs: int) -> Host:
        """Other environments of the same kind; these themselves where there are no others: then they begin anew."""
        return self if self.unique else Host(self.example, num_envs, self._make, self.factories)

    def wrap(self, around: Callable[[Stepper], Stepper]) -> None:
        """Put something between these environments and those who step them, until they are closed."""
        self._stepper = around(self.stepper)

    def close(self) -> None:
        """Close all environments and end their processes."""
        stepper, self._stepper, self.position = self._stepper, None, 0
        if stepper is not None:
            stepper.close()
