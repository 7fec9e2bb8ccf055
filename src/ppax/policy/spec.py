"""Specification of a policy: the observations, masks and memory that it takes and the actions that it gives."""

from __future__ import annotations

import dataclasses
from importlib import metadata
from typing import Any, NamedTuple

import jax
import numpy as np
from gymnasium import spaces

from ppax.core import untrusted
from ppax.core.options import Config
from ppax.core.protocols import Agent
from ppax.core.types import ConfigError
from ppax.envs import Env
from ppax.envs.wrappers.agent_groups import Group, default_names
from ppax.policy import space_data, words
from ppax.policy.actor import Actor

FORMAT = 1  # version of the plain data
MOST_AGENTS = 2**20  # limit on agents in one environment; far above any
SHARING = ("shared", "independent")


class MemoryShape(NamedTuple):
    """One array of the memory of one stream."""

    shape: tuple[int, ...]
    dtype: str


@dataclasses.dataclass(frozen=True)
class PolicySpec:
    """Plain data of a policy: spaces, masks, memory, agents, and the run that trained it.

    It has the attributes of an environment that networks and agents are built from, without an environment.
    """

    observation_space: spaces.Space  # of one agent; with groups a Dict by group
    action_space: spaces.Space
    masked: bool = False  # trained with action masks
    memory: dict[str, MemoryShape] = dataclasses.field(default_factory=dict)  # of one stream, by name; {}: none
    unread: tuple[str, ...] = ()  # entries of an observation, by path joined by dots, that acting does not need
    num_agents: int = 1  # in one environment
    sizes: tuple[tuple[str, int], ...] = ()  # name and number of agents of each group
    names: tuple[str, ...] = ()  # names of the agents, in the order of the streams; () for one agent
    actor_obs: tuple[str, ...] = ()  # entries of a Dict observation that the actor reads; (): all
    sharing: str = "shared"  # "independent": every agent has parameters of its own
    env: str = ""  # name of the environment
    version: str = ""  # of ppax
    config: Config = dataclasses.field(default_factory=dict)  # configuration of the run, as in run.toml

    @property
    def groups(self) -> dict[str, Group]:
        """Spaces and number of agents of each group; {} without groups."""
        obs, action = self.observation_space, self.action_space
        return {name: Group(obs[name], action[name], size, self.actor_obs) for name, size in self.sizes}  # type: ignore[index]

    def summary(self) -> str:
        """Return one line: environment, spaces, memory."""
        return f"{self.env or 'own environment'}: {words.observations(self)}; {words.actions(self)}"

    def __str__(self) -> str:
        """Return inputs and outputs in words, a line for each."""
        return words.described(self)

    def to_data(self) -> dict[str, Any]:
        """Return the specification as a JSON-compatible dict."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name in ("observation_space", "action_space"):
            fields[name] = space_data.to_data(fields[name])
        fields["memory"] = {name: {"shape": list(x.shape), "dtype": x.dtype} for name, x in self.memory.items()}
        fields["sizes"] = [list(x) for x in self.sizes]
        lists = {name: list(getattr(self, name)) for name in ("names", "actor_obs", "unread")}
        return {"format": FORMAT} | fields | lists

    @classmethod
    def from_data(cls, data: Any, where: str = "policy") -> PolicySpec:
        """Return the specification that `data` describes; ConfigError, naming `where`, if it is invalid."""
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ConfigError(f"{where}: not the specification of a policy in format {FORMAT}")
        try:
            memory = {
                str(name): MemoryShape(tuple(int(n) for n in x["shape"]), str(x["dtype"]))
                for name, x in data["memory"].items()
            }
            spec = cls(
                observation_space=space_data.from_data(data["observation_space"], f"{where}: observation_space"),
                action_space=space_data.from_data(data["action_space"], f"{where}: action_space"),
                masked=bool(data["masked"]),
                memory=memory,
                unread=tuple(map(str, data.get("unread", ()))),  # absent in the data of earlier versions
                num_agents=int(data["num_agents"]),
                sizes=tuple((str(name), int(size)) for name, size in data["sizes"]),
                names=tuple(map(str, data["names"])),
                actor_obs=tuple(map(str, data["actor_obs"])),
                sharing=str(data["sharing"]),
                env=str(data["env"]),
                version=str(data["version"]),
                config=dict(data["config"]),
            )
            names = [spec.env, spec.version, *spec.names, *spec.actor_obs, *spec.unread, *memory]
            names += [name for name, _ in spec.sizes]
            if not all(map(str.isprintable, names)):
                raise ConfigError(f"{where}: a name has control characters")
            if not spec._agents_fit():
                raise ConfigError(f"{where}: agents, groups and their spaces contradict each other")
            # of groups, older files have no names of agents
            return dataclasses.replace(spec, names=spec.names or default_names(dict(spec.sizes) or spec.num_agents))
        except ConfigError:
            raise
        except untrusted.MALFORMED as error:
            raise ConfigError(f"{where}: not the specification of a policy: {error!r}") from error

    def _agents_fit(self) -> bool:
        """Return whether numbers and names of agents fit each other, and the groups the spaces."""
        if self.sharing not in SHARING or len(self.names) not in (0, self.num_agents):
            return False
        if not 1 <= self.num_agents <= MOST_AGENTS or not self.sizes:
            return 1 <= self.num_agents <= MOST_AGENTS
        groups = [name for name, _ in self.sizes]
        dicts = [x.spaces for x in (self.observation_space, self.action_space) if isinstance(x, spaces.Dict)]
        known = len(dicts) == 2 and all(sorted(x) == sorted(groups) for x in dicts)
        return known and min(size for _, size in self.sizes) >= 1 and sum(n for _, n in self.sizes) == self.num_agents


def spec_of(agent: Agent, env: Env, mask: Any, config: Config) -> PolicySpec:
    """Return the specification of the policies that `agent` learns in `env`.

    `mask` is what the environment gives as action mask, or its shapes; `config` the configuration of the run.
    """
    return PolicySpec(
        observation_space=env.observation_space,
        action_space=env.action_space,
        masked=bool(jax.tree.leaves(mask)),
        memory=memory_of(agent, env.num_agents),
        num_agents=env.num_agents,
        sizes=tuple(env.sizes),
        names=env.agent_names,
        actor_obs=tuple(env.actor_obs),
        sharing=agent.sharing,
        env=env.name,
        version=installed_version(),
        config=config,
    )


def installed_version() -> str:
    """Return the version of ppax; "" in a source tree that is not installed."""
    try:
        return metadata.version("ppax")
    except metadata.PackageNotFoundError:
        return ""


def memory_of(agent: Agent | Actor, num_agents: int) -> dict[str, MemoryShape]:
    """Return the arrays of the memory of one stream by their names; {} for feedforward policies."""
    carry = jax.eval_shape(lambda: agent.initial_carry(num_agents))
    leaves, _ = jax.tree_util.tree_flatten_with_path(carry)
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): MemoryShape(x.shape[1:], np.dtype(x.dtype).name)
        for path, x in leaves
    }
