"""Host environments: Python objects of Gymnasium and PettingZoo, stepped by a loop on the host.

`HostEnv` takes the place of a native `VectorEnv`. The running environments are mutable and belong to `Host`; a compiled
program sees only spaces and sizes. A TrainState cannot contain their states: `actor.env_state` is a counter, which is
compared with `Host.position`. If the two differ, as after a resume, all environments are reset.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import Env, spaces
from gymnasium.vector import VectorEnv as GymVectorEnv

from ppax.arrays import masks
from ppax.envs.hosting.arrays import Layout, element_of, leaves_of
from ppax.envs.hosting.batch import close_all
from ppax.envs.hosting.faults import exit_is_a_fault
from ppax.envs.hosting.gym_vector import Wrapped, mode_of
from ppax.envs.hosting.handle import Example, Host
from ppax.envs.hosting.parallel_env import JOINT, NoVector, ParallelEnv, Team, UnlikeAgents
from ppax.envs.hosting.stepper import Stepper
from ppax.envs.hosting.workers import Factory, InProcess, Workers
from ppax.envs.wrappers.agent_groups import Group
from ppax.program import sharding
from ppax.types import ConfigError, Key, PyTree

VECTORIZATIONS = ("sync", "async")
TIMEOUT = 60.0  # seconds
SUCCESS = ("is_success",)  # entries of `info` that are logged by default


@dataclasses.dataclass(frozen=True)
class HostEnv:
    """`num_envs` environments on the host; B = num_envs * num_agents streams.

    Create one with `ppax.make` or `ppax.envs.host`. As a pytree it has no leaves, and its structure is a `Kind`.
    """

    host: Host
    num_envs: int
    name: str = ""
    action_repeat: int = 1
    vectorization: str = "sync"
    options: tuple[tuple[str, Any], ...] = ()  # `env_params` of `make`
    agent_ids: bool = False  # observations contain the agent's index
    central_critic: bool = False  # the critic sees the observations of all agents

    @property
    def observation_space(self) -> spaces.Space:
        """Space of one stream's observation."""
        return self.host.example.observation_space

    @property
    def action_space(self) -> spaces.Space:
        """Space of one stream's action."""
        return self.host.example.action_space

    @property
    def num_agents(self) -> int:
        """Number of agents in each environment."""
        return self.host.example.agents or 1

    @property
    def sizes(self) -> tuple[tuple[str, int], ...]:
        """Groups of agents: always none."""
        return ()

    @property
    def groups(self) -> dict[str, Group]:
        """Spaces of each group of agents: always none."""
        return {}

    @property
    def actor_obs(self) -> tuple[str, ...]:
        """Entries of a Dict observation that the actor may read; (): all."""
        if not self.central_critic:
            return ()
        return tuple(name for name in self.observation_space.spaces if name != JOINT)  # type: ignore[attr-defined]

    @property
    def num_streams(self) -> int:
        """Number of streams, B = num_envs * num_agents."""
        return self.num_envs * self.num_agents

    def reset(self, key: Key) -> tuple[PyTree, PyTree, PyTree | None]:
        """Return position 0 and zeros as observations; the host loop resets the environments, outside of programs."""
        streams, mask_size = self.num_streams, self.host.example.mask_size
        zeros = (jnp.zeros((streams, *leaf.shape), leaf.dtype) for leaf in leaves_of(self.observation_space))
        mask = None if mask_size is None else jnp.ones((streams, mask_size), bool)
        return jnp.zeros(streams, jnp.uint32), element_of(self.observation_space, zeros), mask

    def again(self, num_envs: int) -> HostEnv:
        """Return new environments of the same kind, or these if the user has created them."""
        other = self.host.again(num_envs)
        return dataclasses.replace(self, host=other, num_envs=other.num_envs)

    def close(self) -> None:
        """Close all environments and end their processes."""
        self.host.close()

    def __enter__(self) -> HostEnv:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Kind:
    """Pytree structure of a HostEnv: all that determines a program, compared by value, and a weak reference to `Host`.

    JAX keeps the structures of all arguments for ever. A strong reference would keep the environments and their worker
    processes alive, and comparison by identity would compile the programs again for each set of environments.
    """

    def __init__(self, env: HostEnv):
        self._host, self._example = weakref.ref(env.host), env.host.example
        self._others = {field.name: getattr(env, field.name) for field in dataclasses.fields(env)[1:]}
        self._identity = env.host.identity, repr(self._others)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kind) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def env(self) -> HostEnv:
        """Return the HostEnv; its environments cannot be stepped if they no longer exist."""
        host = self._host() or Host(self._example, self._others["num_envs"], _no_longer_exist, ())
        return HostEnv(host, **self._others)


def _no_longer_exist(num_envs: int) -> Stepper:
    raise ConfigError("these environments no longer exist, only a program traced with them does; create them again")


jax.tree_util.register_pytree_node(HostEnv, lambda env: ((), Kind(env)), lambda kind, _: kind.env())


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
) -> HostEnv:
    """Create host environments from environments of Gymnasium or PettingZoo.

    `source` is a `gymnasium.vector.VectorEnv` in any autoreset mode, or a function that returns one `Env` or one
    PettingZoo `ParallelEnv` whose agents have equal spaces (called `num_envs` times), or a list of such functions. With
    `vectorization = "async"` the environments are stepped in `workers` processes (default: one for each core), each of
    which must answer within `timeout` seconds. Results are the same. `agent_ids` and `central_critic` as in `make`.
    `info_metrics` are entries of `info`, such as "is_success", whose values at the last steps of episodes are logged as
    means; by default "is_success", if the environment gives it at its first step.

    Raises ConfigError for invalid arguments. An environment that fails later raises EnvError.
    """
    if vectorization not in VECTORIZATIONS:
        raise ConfigError(f"vectorization = {vectorization!r}: must be one of {', '.join(VECTORIZATIONS)}")
    if isinstance(source, GymVectorEnv):
        for option, value, default in (
            ("vectorization", vectorization, "sync"),
            ("workers", workers, None),
            ("action_repeat", action_repeat, 1),
            ("agent_ids", agent_ids, False),
            ("central_critic", central_critic, False),
        ):
            if value != default:
                raise ConfigError(f"{option} = {value!r}: a VectorEnv steps its environments itself; leave it out")
        if num_envs not in (None, source.num_envs):
            raise ConfigError(f"num_envs = {num_envs}: {source} has {source.num_envs}; leave num_envs out")
        return host_vector(lambda _: source, source, name or "own", unique=True, info_metrics=info_metrics)
    factories = [source] * (8 if num_envs is None else num_envs) if callable(source) else list(source)
    if not factories or (num_envs is not None and num_envs != len(factories)):
        raise ConfigError(f"num_envs = {num_envs}: the list has {len(factories)} functions; leave num_envs out")
    with exit_is_a_fault():
        factories, example = _example(factories, agent_ids, central_critic, info_metrics)
    cores = sharding.num_cores()

    def make(num_envs: int) -> Stepper:
        chosen = [factories[i % len(factories)] for i in range(num_envs)]
        count = min(cores if workers is None else workers, num_envs) if vectorization == "async" else 1
        layout = Layout(num_envs, count, action_repeat, *example)
        return Workers(chosen, layout, timeout) if vectorization == "async" else InProcess(chosen, layout)

    running = Host(example, len(factories), make, [*{id(factory): factory for factory in factories}.values()])
    made = HostEnv(running, len(factories), name or "own", action_repeat, vectorization)
    return dataclasses.replace(made, agent_ids=agent_ids, central_critic=central_critic)


def host_vector(
    make: Callable[[int], GymVectorEnv],
    first: GymVectorEnv,
    name: str,
    unique: bool = False,
    info_metrics: Sequence[str] | None = None,
) -> HostEnv:
    """Create host environments from `make(num_envs)`, which returns a vector environment.

    `first` is one of them, from which spaces are read; `unique`: it is the only one.
    """
    mode_of(first)
    with exit_is_a_fault():
        info = _info_of(first.reset(), first)
    space = first.single_action_space
    sizes = _mask_size(space, info, name), "episode_stats" in info, None
    example = Example(first.single_observation_space, space, *sizes, tuple(info_metrics or ()))
    factories: list[Callable[[], Any]] = [lambda: first] if unique else [partial(make, 2)]
    wrapped = lambda n: Wrapped(make(n), example.mask_size, example.tallies, example.metrics)  # noqa: E731
    running = Host(example, first.num_envs, wrapped, factories, unique)
    return HostEnv(running, first.num_envs, name)


def _example(
    factories: list[Factory], agent_ids: bool, central_critic: bool, info_metrics: Sequence[str] | None
) -> tuple[list[Factory], Example]:
    """Return the factories, those of several agents wrapped in `Team`, and the spaces and sizes of one environment."""
    env: Any = factories[0]()
    if isinstance(env, ParallelEnv):
        close_all([env.close])
        views = {"agent_ids": agent_ids, "central_critic": central_critic}
        teams = {id(factory): partial(Team, factory, **views) for factory in factories}
        factories = [teams[id(factory)] for factory in factories]
        try:
            env = factories[0]()
        except UnlikeAgents as error:
            raise ConfigError(f"agents that are not alike cannot share a policy: {error}") from error
        except NoVector as error:
            raise ConfigError(f"central_critic = true: {error}; set it to false") from error
    elif agent_ids or central_critic:
        close_all([env.close])
        option = "agent_ids" if agent_ids else "central_critic"
        raise ConfigError(f"{option} = true: {type(env).__name__} has one agent and no others; set it to false")
    if not isinstance(env, Env | Team):
        kinds = "a gymnasium.Env or a PettingZoo ParallelEnv"
        raise ConfigError(f"{factories[0]} gives {type(env).__name__}: must be a function that makes {kinds}")
    try:
        info = _info_of(env.reset(), env)
        agents = env.num_agents if isinstance(env, Team) else None
        mask_size = _mask_size(env.action_space, info, type(env).__name__)
        names = _first_metrics(env) if info_metrics is None else tuple(info_metrics)
        stats = "episode_stats" in info
        return factories, Example(env.observation_space, env.action_space, mask_size, stats, agents, names)
    finally:
        close_all([env.close])


def _first_metrics(env: Any) -> tuple[str, ...]:
    """Return the entries of `info` that are logged by default: "is_success", if a step of a sampled action gives it."""
    try:
        single = [env.action_space.sample() for _ in range(getattr(env, "num_agents", 1))]
        *_, info = env.step(single if isinstance(env, Team) else single[0])
    except Exception:  # training steps it with the policy's actions and reports what fails
        return ()
    infos = info.get("agent_infos", [info])
    return tuple(name for name in SUCCESS if all(name in one for one in infos))


def _info_of(result: Any, env: Any) -> dict[str, Any]:
    """Return the `info` of `reset`; ConfigError if there is none, as in Gym before 0.26."""
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
        return result[1]
    kind = type(env).__name__
    raise ConfigError(
        f"{kind}.reset returns a {type(result).__name__} and no (obs, info): so did Gym before 0.26. Write "
        "`return obs, {}` in reset(self, *, seed=None, options=None), and in step "
        "`return obs, reward, terminated, truncated, {}`"
    )


def _mask_size(space: spaces.Space, info: dict[str, Any], name: str) -> int | None:
    """Return the number of entries of the action mask, None without masks.

    Raises ConfigError for an action space whose masks are not supported on the host.
    """
    if "action_mask" not in info:
        return None
    if not isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        raise ConfigError(
            f'{name} gives info["action_mask"] for actions of {space}: on the host masks are of Discrete, '
            "MultiDiscrete and MultiBinary actions. Write several choices as one MultiDiscrete, or leave the mask out"
        )
    return masks.size_of(space)


def begin_seeds(key: Key, num_envs: int) -> list[int]:
    """Draw a seed of 31 bits for each environment."""
    return [int(x) for x in np.asarray(jax.random.bits(key, (num_envs,), jnp.uint32)) >> 1]
