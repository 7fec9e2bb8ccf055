"""Running environments on the host: the protocol of steppers, the result of a step, and `Host`, a stepper's owner."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.envs.hosting.arrays import Arrays, EpisodeStats, HostSpec, leaves_of
from ppax.envs.wrappers.clip_actions import Bounds, narrowed_actions


class HostStep(NamedTuple):
    """Result of one step, or of a reset, of e streams (one agent in one environment each) on the host.

    An observation is the list of its arrays (arrays.leaves_of).
    """

    obs: list[np.ndarray]  # [e, ...] the next observation
    reward: np.ndarray  # [e]
    terminated: np.ndarray  # [e]
    truncated: np.ndarray  # [e]
    first: np.ndarray  # [e] `obs` is the first of an episode
    valid: np.ndarray  # [e] False: the action was ignored because of a reset, or the agent was absent
    mask: np.ndarray | None  # [e, n] allowed actions
    # [e, ...] final observation of an episode that ended, if `obs` is already the first of the next one
    final_obs: list[np.ndarray] | None = None
    episode_stats: EpisodeStats | None = None  # logged rewards and ends, if they differ from those above
    metrics: np.ndarray | None = None  # [e, k] entries of info that are logged; defined where an episode has ended
    logged: np.ndarray | None = None  # [e] False: an episode that ends with this step is not logged; None: all are


class TensorStep(NamedTuple):
    """Result of one step of E environments in a simulator's memory, as arrays of JAX.

    An environment whose episode ends is reset within the same step.
    """

    obs: Any  # [E, ...] the next observation
    reward: Array  # [E]
    terminated: Array  # [E]
    truncated: Array  # [E]
    mask: Array | None  # [E, n] allowed actions
    final_obs: Any  # [E, ...] final observations, defined where an episode has ended; None: not given
    metrics: tuple[Array, ...]  # [E] each, entries of info that are logged; (): no episode has ended


Exchange = Callable[[Sequence[Array], Sequence[str]], TensorStep]  # a step on the device: actions, names of metrics


class Stepper(Protocol):
    """Protocol of steppers, which run environments on the host, in batches that are stepped alternately."""

    @property
    def batches(self) -> tuple[slice, ...]:
        """Streams of each of the stepper's batches, as slices; a stream is one agent in one environment."""

    @property
    def has_final_obs(self) -> bool:
        """Whether an episode may end and the next begin within one step, so that results have `final_obs`."""

    def reset(self, seeds: Sequence[int]) -> None:
        """Start a reset of all environments, one seed each; `receive` of each batch returns the result."""

    def send(self, number: int, action: Sequence[np.ndarray]) -> None:
        """Start one step of batch `number`; `action` has one array [e, ...] for each array of the action space.

        e is the number of the batch's streams.
        """

    def receive(self, number: int) -> HostStep:
        """Return the result of the step or reset of batch `number`, for which it waits.

        The next step may overwrite its arrays. Raises EnvError if an environment failed.
        """

    def close(self) -> None:
        """Close all environments of the stepper, and end all its processes."""


def host_step(arrays: Arrays) -> HostStep:
    """Return `arrays`, into which host environments have written the results of a step or reset, as a HostStep.

    The environments have next-step autoreset: `obs` is the final observation where an episode has ended, and there are
    no separate `final_obs`.
    """
    return HostStep(
        obs=arrays.obs,
        reward=arrays.reward,
        terminated=arrays.terminated,
        truncated=arrays.truncated,
        first=arrays.first,
        valid=arrays.valid,
        mask=arrays.mask,
        episode_stats=arrays.episode_stats,
        metrics=arrays.metrics,
        logged=arrays.logged,
    )


class Host:
    """Owner of the running environments of a HostEnv, which are stepped and reset through its methods.

    It makes a stepper, and with it the environments, at the first reset, and again at a reset after `close`. Unlike a
    stepper it counts steps (`position`), clips actions to their bounds and keeps the last results.
    """

    def __init__(
        self,
        spec: HostSpec,
        num_envs: int,
        make: Callable[[int], Stepper],
        factories: Sequence[Callable[[], Any]],
        unique: bool = False,
        in_groups: Callable[[Any], Any] | None = None,
        exchange: Exchange | None = None,
        source: Callable[..., Any] | None = None,
        apart: Callable[[int], Stepper] | None = None,
    ):
        """Keep the functions that create environments, and `spec`, the spaces and sizes of one environment.

        `make(num_envs)` returns a stepper of all of them; each of `factories` creates a single one, for rendering and
        checks. `unique` is True if `make` and `factories` return the same environments at each call.
        `in_groups(players)` returns a HostEnv of the same environments with other groups of agents; None if each
        environment has one agent. `exchange` steps all environments on the device of the compiled programs, where
        training then acts and records; None if they are stepped on the host. `source` is the user's one function that
        makes each of them; None if there are several functions, a vector or `set_params`. `apart(num_envs)`, which
        `recreate` uses, is like `make`, but without `stagger`, so that first episodes have full length; by default it
        is `make`.
        """
        self.spec, self.num_envs, self.unique, self._make, self._apart = spec, num_envs, unique, make, apart or make
        self.in_groups, self.exchange, self.source = in_groups, exchange, source
        self.factories = tuple(factories)
        # of actions that policies choose from: with clipped actions their bounds are narrower
        self.action_space, clip = spec.action_space, spec.clip_actions
        self._clip: list[Bounds | None] = []  # of each array of the action space; [] without
        if clip is not None:
            self.action_space = narrowed_actions(spec.action_space, clip)
            self._clip = [clip if leaf.low is None else None for leaf in leaves_of(spec.action_space)]
        self.position = 0  # steps and resets since creation, as an uint32; 0: not reset yet
        self.last: list[HostStep] = []  # last result of each batch
        self._stepper: Stepper | None = None

    @functools.cached_property
    def signature(self) -> str:
        """Text that is equal for environments with the same compiled programs: spaces and sizes of one environment."""
        return f"{space_signature(self.spec[0])}{space_signature(self.spec[1])}{self.spec[2:]}"

    @property
    def batches(self) -> tuple[slice, ...]:
        """Streams of each batch of environments, as slices; a stream is one agent in one environment.

        With workers there are two batches, one stepped while the policy acts for the other.
        """
        return self.stepper.batches

    @property
    def has_final_obs(self) -> bool:
        """Whether an episode may end and the next begin within one step.

        If so, a step's result has final observations, whose values the critic must compute separately.
        """
        return self.stepper.has_final_obs

    @property
    def stepper(self) -> Stepper:
        """Stepper that runs the environments, created at the first use."""
        if self._stepper is None:
            self._stepper = self._make(self.num_envs)
        return self._stepper

    @property
    def running(self) -> bool:
        """Whether the environments exist: they were created and not closed."""
        return self._stepper is not None

    def sizes(self) -> set[int]:
        """Return the numbers of streams (one agent in one environment each) for which the policy acts at once.

        They are the sizes of the batches of environments, of which there are two with worker processes.
        """
        return {rows.stop - rows.start for rows in self.batches}

    def reset(self, seeds: Sequence[int]) -> list[HostStep]:
        """Return the result of each batch after a reset of all environments, one seed each."""
        stepper = self.stepper
        self._count()
        stepper.reset(seeds)
        self.last = [stepper.receive(number) for number in range(len(stepper.batches))]
        return list(self.last)

    def send(self, number: int, action: Sequence[np.ndarray]) -> None:
        """Start one step of batch `number`; `action` has one array [e, ...] for each array of the action space.

        e is the number of the batch's streams.
        """
        self._count()
        self.stepper.send(number, self._clipped(action))

    def receive(self, number: int) -> HostStep:
        """Return the result of the step of batch `number`, for which it waits."""
        self.last[number] = result = self.stepper.receive(number)
        return result

    def step_on_device(self, action: Sequence[Array]) -> TensorStep:
        """Return the result of one step of all E environments, made on the device of the compiled programs.

        `action` has one array [E, ...] for each array of the action space.
        """
        assert self.exchange is not None
        self._count()
        return self.exchange(self._clipped(action), self.spec.metrics)

    def _count(self) -> None:
        """Add 1 to `position`; after the largest uint32 comes 1, as 0 stands for environments before a reset."""
        self.position = self.position % (2**32 - 1) + 1

    def _clipped(self, action: Sequence[Any]) -> Sequence[Any]:
        """Return the arrays of an action, with continuous elements clipped to their bounds."""
        if not self._clip:
            return action
        return [x if clip is None else x.clip(*clip) for x, clip in zip(action, self._clip, strict=True)]

    def recreate(self, num_envs: int) -> Host:
        """Return a Host of `num_envs` new environments of the same kind, whose first episodes have full length.

        `stagger` shortens first episodes only in this Host. Environments that are `unique` cannot be made again: then
        this Host is returned, whose environments must be reset.
        """
        if self.unique:
            return self
        spec = self.spec._replace(stagger=0)
        return Host(spec, num_envs, self._apart, self.factories, False, self.in_groups, source=self.source)

    def wrap(self, around: Callable[[Stepper], Stepper]) -> None:
        """Replace the stepper by `around(stepper)`, for example to time its calls, until `close` is called."""
        self._stepper = around(self.stepper)

    def close(self) -> None:
        """Close all environments of this Host and end their processes; a later reset creates them again."""
        stepper, self._stepper, self.position = self._stepper, None, 0
        if stepper is not None:
            stepper.close()


def space_signature(space: Any) -> str:
    """Return a text with all numbers of a space, to compare spaces exactly.

    The `repr` of a space abbreviates bounds, and its `==` compares approximately.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        return f"{type(space)}({[(name, space_signature(part)) for name, part in parts]})"
    numbers = {name: x for name, x in vars(space).items() if name not in ("_np_random", "low_repr", "high_repr")}
    return f"{type(space)}({ {name: x.tolist() if isinstance(x, np.ndarray) else x for name, x in numbers.items()} })"
