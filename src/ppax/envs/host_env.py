"""Environments that are Python objects, as Gymnasium has them: stepped by a loop on the host.

`HostEnv` stands where a native `VectorEnv` stands. What it is made of is mutable and lives in `Host`; what a program
sees are spaces and sizes. A TrainState cannot hold where such environments stand: `actor.env_state` is only a number,
by which `Host` knows whether it stands there. If not, as after a resume, all environments begin new episodes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import Env, spaces
from gymnasium.vector import VectorEnv as GymVectorEnv

from ppax import masks
from ppax.envs.group import Layout, element_of, leaves_of
from ppax.envs.groups import Group
from ppax.envs.gym_vector import Wrapped, mode_of
from ppax.envs.stepper import Seen, Stepper
from ppax.envs.workers import Factory, InProcess, Workers
from ppax.types import ConfigError, Key, PyTree, part, static

VECTORIZATIONS = ("sync", "async")
TIMEOUT = 60.0  # seconds


class Host:
    """Environments that run, or can: they are made at the first reset, and made again after `close`."""

    def __init__(
        self,
        example: tuple[spaces.Space, spaces.Space, int | None],
        num_envs: int,
        make: Callable[[int], Stepper],
        unique: bool = False,
    ):
        """`example`: spaces, and size of the action mask. `unique`: `make` gives the same environments every time."""
        self.observation_space, self.action_space, self.mask_size = example
        self.num_envs, self.unique, self._make = num_envs, unique, make
        self.position = 0  # steps and resets since they were made; 0: nowhere
        self.last: list[Seen] = []  # what each group saw last
        self._stepper: Stepper | None = None

    @property
    def groups(self) -> tuple[slice, ...]:
        """Environments that are stepped together; there are two groups where one is stepped while the policy acts."""
        return self._running().groups

    @property
    def cuts(self) -> bool:
        """Whether the next observation may open another episode, so that the last one must be valued at once."""
        return self._running().cuts

    def sizes(self) -> set[int]:
        """How many environments are stepped together."""
        return {rows.stop - rows.start for rows in self.groups}

    def reset(self, seeds: Sequence[int]) -> list[Seen]:
        """Begin an episode everywhere; what each group sees."""
        stepper = self._running()
        self.position += 1
        stepper.reset(seeds)
        self.last = [stepper.receive(number) for number in range(len(stepper.groups))]
        return list(self.last)

    def send(self, number: int, action: Sequence[np.ndarray]) -> None:
        """Begin one step of a group; `action` is a list of arrays [e, ...]."""
        self.position += 1
        self._running().send(number, action)

    def receive(self, number: int) -> Seen:
        """What came of it."""
        self.last[number] = seen = self._running().receive(number)
        return seen

    def again(self, num_envs: int) -> Host:
        """Other environments of the same kind; these themselves where there are no others: then they begin anew."""
        example = self.observation_space, self.action_space, self.mask_size
        return self if self.unique else Host(example, num_envs, self._make)

    def close(self) -> None:
        """Close all environments and end their processes."""
        stepper, self._stepper, self.position = self._stepper, None, 0
        if stepper is not None:
            stepper.close()

    def _running(self) -> Stepper:
        if self._stepper is None:
            self._stepper = self._make(self.num_envs)
        return self._stepper


@part
class HostEnv:
    """`num_envs` environments on the host; B = num_envs streams. Make one with `ppax.make` or `ppax.envs.host`."""

    host: Host = static()
    num_envs: int = static()
    name: str = static(default="")
    action_repeat: int = static(default=1)
    vectorization: str = static(default="sync")

    @property
    def observation_space(self) -> spaces.Space:
        """Space of one stream's observation."""
        return self.host.observation_space

    @property
    def action_space(self) -> spaces.Space:
        """Space of one stream's action."""
        return self.host.action_space

    @property
    def num_agents(self) -> int:
        """Agents in each environment."""
        return 1

    @property
    def sizes(self) -> tuple[tuple[str, int], ...]:
        """Groups of agents: none."""
        return ()

    @property
    def groups(self) -> dict[str, Group]:
        """What each group of agents sees and does: there are none."""
        return {}

    @property
    def num_streams(self) -> int:
        """B."""
        return self.num_envs

    def reset(self, key: Key) -> tuple[PyTree, PyTree, PyTree | None]:
        """Nowhere yet: position 0, zeros for observations. Who steps it then begins episodes, outside of programs."""
        zeros = (jnp.zeros((self.num_envs, *leaf.shape), leaf.dtype) for leaf in leaves_of(self.observation_space))
        mask = None if self.host.mask_size is None else jnp.ones((self.num_envs, self.host.mask_size), bool)
        return jnp.zeros(self.num_envs, jnp.uint32), element_of(self.observation_space, zeros), mask

    def again(self, num_envs: int) -> HostEnv:
        """Other environments of the same kind, or these themselves where the user has made them."""
        other = self.host.again(num_envs)
        return HostEnv(other, other.num_envs, self.name, self.action_repeat, self.vectorization)

    def close(self) -> None:
        """Close all environments and end their processes."""
        self.host.close()

    def __enter__(self) -> HostEnv:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def host(
    source: GymVectorEnv | Factory | Sequence[Factory],
    num_envs: int | None = None,
    name: str = "",
    vectorization: str = "sync",
    workers: int | None = None,
    timeout: float = TIMEOUT,
    action_repeat: int = 1,
) -> HostEnv:
    """Gymnasium environments as ppax trains on them.

    `source` is a `gymnasium.vector.VectorEnv`, in whichever autoreset mode, or a function that makes one `Env` (called
    `num_envs` times), or a list of such functions. With `vectorization = "async"` those are stepped in `workers`
    processes (by default one a core), of which each has to answer within `timeout` seconds. Results are the same.

    Raises ConfigError for what cannot be. Environments that fail later raise EnvError.
    """
    if vectorization not in VECTORIZATIONS:
        raise ConfigError(f"vectorization = {vectorization!r}: must be one of {', '.join(VECTORIZATIONS)}")
    if isinstance(source, GymVectorEnv):
        return _given(source, num_envs, name, vectorization, workers, action_repeat)
    factories = [source] * (8 if num_envs is None else num_envs) if callable(source) else list(source)
    if not factories or (num_envs is not None and num_envs != len(factories)):
        raise ConfigError(f"num_envs = {num_envs}: the list has {len(factories)} functions; leave num_envs out")
    example = _example(factories[0])
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    def make(num_envs: int) -> Stepper:
        chosen = [factories[i % len(factories)] for i in range(num_envs)]
        count = min(cores if workers is None else workers, num_envs) if vectorization == "async" else 1
        layout = Layout(num_envs, count, action_repeat, *example)
        return Workers(chosen, layout, timeout) if vectorization == "async" else InProcess(chosen, layout)

    running = Host(example, len(factories), make)
    return HostEnv(running, len(factories), name or "own", action_repeat, vectorization)


def _given(
    vector: GymVectorEnv, num_envs: int | None, name: str, vectorization: str, workers: int | None, action_repeat: int
) -> HostEnv:
    for option, value, default in (
        ("vectorization", vectorization, "sync"),
        ("workers", workers, None),
        ("action_repeat", action_repeat, 1),
    ):
        if value != default:
            raise ConfigError(f"{option} = {value!r}: a VectorEnv steps its environments itself; leave it out")
    if num_envs not in (None, vector.num_envs):
        raise ConfigError(f"num_envs = {num_envs}: {vector} has {vector.num_envs}; leave num_envs out")
    mode_of(vector)
    mask_size = _mask_size(vector.single_action_space, vector.reset()[1])
    example = vector.single_observation_space, vector.single_action_space, mask_size
    running = Host(example, vector.num_envs, lambda _: Wrapped(vector, mask_size), unique=True)
    return HostEnv(running, vector.num_envs, name or "own")


def _example(factory: Factory) -> tuple[spaces.Space, spaces.Space, int | None]:
    """Spaces and size of the action mask of one environment."""
    env = factory()
    if not isinstance(env, Env):
        raise ConfigError(f"{factory} gives {type(env).__name__}: must be a function that makes a gymnasium.Env")
    try:
        return env.observation_space, env.action_space, _mask_size(env.action_space, env.reset()[1])
    finally:
        env.close()


def _mask_size(space: spaces.Space, info: dict[str, Any]) -> int | None:
    """Entries of the action mask, where the environment gives one."""
    return masks.size_of(space) if "action_mask" in info and not isinstance(space, spaces.Box) else None


def begin_seeds(key: Key, num_envs: int) -> list[int]:
    """A seed for each environment, of 31 bits."""
    return [int(x) for x in np.asarray(jax.random.bits(key, (num_envs,), jnp.uint32)) >> 1]
