"""Host environments: Python objects of Gymnasium and PettingZoo, stepped by a loop on the host.

`HostEnv` takes the place of `VectorEnv`, whose environments are compiled. The running environments are mutable and
belong to `Host`; a compiled program sees only spaces and sizes. A TrainState cannot contain their states: its
`actor.env_state` is instead the value that the counter `Host.position`, of steps and resets since the environments were
made, had after the rollout. If the counter differs from that, as after a resume, all environments are reset.
"""

from __future__ import annotations

import dataclasses
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv as GymVectorEnv

from ppax.core.options import Option, check_value
from ppax.core.types import ConfigError, Key, PyTree
from ppax.core.unknown_names import refusing_unknown
from ppax.devices import sharding
from ppax.envs.hosting.arrays import HostSpec, Layout, each_group, element_of
from ppax.envs.hosting.conventions import SharedEnv, adapted_vector, refuse_shared, unread
from ppax.envs.hosting.faults import close_all
from ppax.envs.hosting.gym_vector import GymVectorStepper, autoreset_mode_of
from ppax.envs.hosting.ray_stepper import Actors
from ppax.envs.hosting.spec import env_errors, factories_of, first_reset, info_of, mask_size_of, with_params
from ppax.envs.hosting.stepper import Host, Stepper
from ppax.envs.hosting.team import JOINT
from ppax.envs.hosting.tensor_batch import TensorBatch
from ppax.envs.hosting.workers import Factory, InProcess, Workers
from ppax.envs.settings import DEFAULT, TIMEOUT, EnvSettings, checked_clip, checked_metrics
from ppax.envs.stagger import checked_stagger
from ppax.envs.wrappers.agent_groups import Group, agent_groups_of
from ppax.envs.wrappers.params import nested

WORKERS = Option("workers", int, optional=True, limits={"low": 1})


@dataclasses.dataclass(frozen=True)
class HostEnv:
    """Environments on the host: `num_envs` of them, with a stream for each agent in each environment.

    Create one with `ppax.make` or `ppax.envs.host`. As a pytree it has no leaves, and its structure is a `HostEnvAux`.
    """

    host: Host
    num_envs: int
    name: str = ""
    made: EnvSettings = DEFAULT  # of `make` or `host`, without name and number

    @property
    def settings(self) -> EnvSettings:
        """Settings that this environment was made with, as recorded in a run file."""
        return dataclasses.replace(self.made, env=self.name, num_envs=self.num_envs)

    @property
    def observation_space(self) -> spaces.Space:
        """Space of one agent's observation; with groups of agents, a Dict with the space of each group."""
        return self.host.spec.observation_space

    @property
    def action_space(self) -> spaces.Space:
        """Space of one agent's action; with groups of agents, a Dict with the space of each group."""
        return self.host.action_space

    @property
    def num_agents(self) -> int:
        """Number of agents in each environment; 1 without an agent axis."""
        return self.host.spec.agents or 1

    @property
    def agent_names(self) -> tuple[str, ...]:
        """Names of the agents in an environment, in the order of the streams; () for one agent."""
        return self.host.spec.names

    @property
    def sizes(self) -> tuple[tuple[str, int], ...]:
        """Name and number of agents of each group; () if all agents have the same spaces and form no groups."""
        return self.host.spec.sizes

    @property
    def groups(self) -> dict[str, Group]:
        """Spaces and number of agents of each group, by the group's name; {} without groups."""
        return agent_groups_of(self)

    @property
    def actor_obs(self) -> tuple[str, ...]:
        """Entries of a Dict observation that the actor may read; () stands for all."""
        if not self.made.central_critic:
            return ()
        seen: Any = self.observation_space  # the same for every group
        return tuple(name for name in (seen[self.sizes[0][0]] if self.sizes else seen).spaces if name != JOINT)

    @property
    def max_num_envs(self) -> int | None:
        """Largest number of environments that their class allows, as its `max_num_envs`; None if it has no limit."""
        return self.host.spec.max_num_envs

    @property
    def max_horizon(self) -> int | None:
        """Largest number of steps of a rollout that the environments' class allows, as its `max_horizon`; None: any."""
        return self.host.spec.max_horizon

    @property
    def num_streams(self) -> int:
        """Number of streams: num_envs * num_agents, as each is one agent in one environment."""
        return self.num_envs * self.num_agents

    def reset(self, key: Key) -> tuple[PyTree, PyTree, PyTree | None]:
        """Return placeholders with the shapes of a reset: step counters 0, observations 0, and masks that allow all.

        The masks are None if the environments have none. The counters, one for each stream, take the place of the
        environments' states. The host loop resets the environments themselves, outside of compiled programs.
        """
        like = Layout(self.num_envs, 1, 1, self.host.spec).make()
        obs = element_of(self.observation_space, (jnp.zeros(x.shape, x.dtype) for x in like.obs))
        mask = each_group(lambda x: jnp.ones(x.shape, bool), like.mask)
        return jnp.zeros(self.num_streams, jnp.uint32), obs, mask

    def recreate(self, num_envs: int) -> HostEnv:
        """Return a HostEnv of `num_envs` new environments of the same kind.

        A vector environment that the user has created cannot be made again: it is used again, with its own number of
        environments.
        """
        other = self.host.recreate(num_envs)
        return dataclasses.replace(self, host=other, num_envs=other.num_envs)

    def close(self) -> None:
        """Close all environments on the host and end their processes."""
        self.host.close()

    def __enter__(self) -> HostEnv:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class HostEnvAux:
    """Structure of a HostEnv as a pytree: all on which compiled programs depend, and a weak reference to its `Host`.

    Structures are compared by value. JAX keeps the structures of all arguments for ever: a strong reference would keep
    the environments and their worker processes alive, and comparison by identity would compile the programs again for
    each set of environments.
    """

    def __init__(self, env: HostEnv):
        self._host, self._spec = weakref.ref(env.host), env.host.spec
        self._others = {field.name: getattr(env, field.name) for field in dataclasses.fields(env)[1:]}
        self._signature = env.host.signature, *self._others.values()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HostEnvAux) and self._signature == other._signature

    def __hash__(self) -> int:
        return hash(self._signature)

    def env(self) -> HostEnv:
        """Return the HostEnv that has this structure; it cannot step its environments if they no longer exist."""
        host = self._host() or Host(self._spec, self._others["num_envs"], _no_longer_exist, ())
        return HostEnv(host, **self._others)


def _no_longer_exist(num_envs: int) -> Stepper:
    raise ConfigError("these environments no longer exist, only a program traced with them does; create them again")


jax.tree_util.register_pytree_node(HostEnv, lambda env: ((), HostEnvAux(env)), lambda kind, _: kind.env())


@refusing_unknown
def host(
    source: GymVectorEnv | Factory | Sequence[Factory],
    num_envs: int | None = None,
    name: str = "",
    vectorization: str = "sync",
    workers: int | None = None,
    timeout: float = TIMEOUT,
    action_repeat: int = 1,
    agent_ids: bool = False,
    central_critic: bool = False,
    info_metrics: Sequence[str] | None = None,
    clip_actions: float | Sequence[float] | None = None,
    env_params: Mapping[str, Any] | None = None,
    set_params: Callable[[Any, dict[str, float]], None] | None = None,
    stagger: bool | int = False,
) -> HostEnv:
    """Return host environments made of environments of Gymnasium or PettingZoo.

    `source` is a `gymnasium.vector.VectorEnv` in any autoreset mode, or a function that returns one `Env` or one
    PettingZoo `ParallelEnv` or `AECEnv` (called `num_envs` times), or a list of such functions. Agents with different
    spaces form groups by their names without numbers: "red_0" is in "red". With `vectorization = "sync"` the
    environments are stepped in this process, with "async" in `workers` processes (default: one for each core), with
    "ray" in `workers` actors of a Ray cluster (default: one for each of its CPUs). A process or actor must answer
    within `timeout` seconds. The results of all three are the same. Each action is applied `action_repeat` times.
    `agent_ids` adds an agent's index to its observation; `central_critic` adds "joint", the observations of all agents,
    for the critic only. `info_metrics` are entries of `info`, such as "is_success", whose values at the last steps of
    episodes are logged as means; by default "is_success", if an environment that is made here gives it at its first
    step. `clip_actions`
    clips continuous actions to [low, high], or to [-x, x] for one number x, and narrows the bounds of their space.
    `env_params` are arguments of the function: a value, or {"low": 0.5, "high": 2.0}, from which every reset draws
    (Gymnasium's interface only). If an argument is drawn, each episode has a new environment, or, if `set_params` is
    given, begins with a call of `set_params(env, numbers)` with all `env_params`. `stagger` truncates the first episode
    of each environment at a random length: of at most `stagger` steps if it is a number, of at most the time limit if
    it is True.

    Each call of the function must make a new environment. Masks and recorded episodes are read where sb3-contrib and
    Gymnasium's wrappers put them (docs/python_environments.md). Raises ConfigError for invalid arguments, EnvError
    where an environment fails, in its constructor or later.
    """
    made = EnvSettings(
        action_repeat=action_repeat,
        vectorization=vectorization,
        agent_ids=agent_ids,
        central_critic=central_critic,
        timeout=timeout,
        info_metrics=checked_metrics(info_metrics),
        clip_actions=checked_clip(clip_actions),
        env_params=nested({} if env_params is None else env_params),
        stagger=checked_stagger(stagger),
    )
    if isinstance(source, GymVectorEnv):
        _require_no_stepping(source, num_envs, workers, set_params, made)
        return host_vector(lambda _: source, source, name or "own", True, made)
    made.check()
    check_value(WORKERS, workers)
    if workers is not None and made.vectorization == "sync":
        raise ConfigError(
            f'workers = {workers!r}: processes, which vectorization = "async" starts, or actors of "ray"; with "sync" '
            "this process steps all environments; leave it out"
        )
    return _made(factories_of(source, num_envs), name, workers, set_params, made)


def _made(given: list[Factory], name: str, workers: int | None, set_params: Any, made: EnvSettings) -> HostEnv:
    factories, spec = with_params(given, made, set_params, name)

    def in_groups(players: tuple[tuple[str, tuple[int, ...]], ...]) -> HostEnv:
        return _made(given, name, workers, set_params, dataclasses.replace(made, players=players))

    make, each = partial(stepper_of, factories, spec, made, workers), {id(one): one for one in factories}
    again = None if spec.agents is None else in_groups
    source = given[0] if set_params is None and len(set(map(id, given))) == 1 else None
    apart = partial(stepper_of, factories, spec._replace(stagger=0), made, workers) if spec.stagger else None
    running = Host(spec, len(factories), make, [*each.values()], in_groups=again, source=source, apart=apart)
    return HostEnv(running, len(factories), name or "own", made)


def stepper_of(
    factories: Sequence[Factory], spec: HostSpec, settings: EnvSettings, workers: int | None, num_envs: int
) -> Stepper:
    """Return the stepper that runs `num_envs` new environments; environment i is made by factories[i % len(factories)].

    At most `workers` processes or actors step them. By default there is a process for each core, or an actor for each
    CPU of the cluster.
    """
    chosen = [factories[i % len(factories)] for i in range(num_envs)]
    layout = Layout(num_envs, 1, settings.action_repeat, spec)
    if settings.vectorization == "ray":
        return Actors(chosen, layout, settings.timeout, workers)
    if settings.vectorization == "async":
        processes = sharding.num_cores() if workers is None else workers
        return Workers(chosen, layout._replace(workers=min(processes, num_envs)), settings.timeout)
    return InProcess(chosen, layout)


def _require_no_stepping(
    vector: GymVectorEnv, num_envs: int | None, workers: int | None, set_params: Any, made: EnvSettings
) -> None:
    """Raise ConfigError for a setting that has no effect because `vector` makes and steps its environments itself.

    Such settings are `workers`, `set_params`, a `num_envs` other than the vector's, and those of `made` that concern
    stepping, such as vectorization, timeout and action_repeat.
    """
    by_itself = "a VectorEnv steps its environments itself"
    own = ("vectorization", "timeout", "action_repeat", "agent_ids", "central_critic", "env_params", "stagger")
    made.refuse(own, by_itself)
    for name, given in (("workers", workers), ("set_params", set_params)):
        if given is not None:
            raise ConfigError(f"{name} = {getattr(given, '__name__', given)}: {by_itself}; leave it out")
    if num_envs not in (None, vector.num_envs):
        raise ConfigError(f"num_envs = {num_envs}: {vector} has {vector.num_envs}; leave num_envs out")


def host_vector(
    make: Callable[[int], GymVectorEnv],
    first: GymVectorEnv,
    name: str,
    unique: bool = False,
    settings: EnvSettings = DEFAULT,
) -> HostEnv:
    """Return host environments that one vector environment, `make(num_envs)`, steps together.

    Spaces are read from `first`, a vector environment. If the user has created `first` itself, `unique` is True: there
    is no way to create another one, and `make` returns `first` at each call. Otherwise `first` is closed, and `make`
    creates new ones.
    """
    autoreset_mode_of(first)
    try:
        refuse_shared(getattr(first.unwrapped, "envs", ()), {})
    except SharedEnv as shared:
        raise ConfigError(f"source: {first}: {shared}") from None
    adapt: Any = adapted_vector
    exchange = None  # step on the device, by DLPack
    if isinstance(first, TensorBatch):  # which reads masks itself
        adapt = lambda vector: vector  # noqa: E731
        exchange = first.exchange if first.on_device else None
    first = adapt(first)
    with env_errors(str(first) if unique else name, "first reset"):
        info, space = info_of(first_reset(first), first), first.single_action_space
    for sentence in unread(first, info):
        warnings.warn(sentence, stacklevel=3)
    if "action_mask" in info and isinstance(space, spaces.Dict | spaces.Tuple):
        raise ConfigError(
            f'{name} gives info["action_mask"] for actions of {space}: masks of Dict and Tuple actions are those of '
            "single environments: pass a function that makes one, ppax.envs.host(MyEnv, num_envs), or write several "
            "choices as one MultiDiscrete"
        )
    spec = HostSpec(
        first.single_observation_space,
        space,
        mask_size_of(space, info, name),
        has_episode_stats="episode_stats" in info,
        agents=None,
        metrics=settings.info_metrics or (),
        clip_actions=settings.clip_actions,
    )
    factories: list[Callable[[], Any]] = [lambda: first] if unique else [partial(make, 2)]
    if not unique:
        close_all([first.close])
    wrapped = lambda n: GymVectorStepper(adapt(make(n)), spec.mask_size, spec.has_episode_stats, spec.metrics)  # noqa: E731
    running = Host(spec, first.num_envs, wrapped, factories, unique, exchange=exchange)
    return HostEnv(running, first.num_envs, name, settings)


def reset_seeds(key: Key, num_envs: int) -> list[int]:
    """Return a random seed of 31 bits for each environment."""
    return [int(x) for x in np.asarray(jax.random.bits(key, (num_envs,), jnp.uint32)) >> 1]
