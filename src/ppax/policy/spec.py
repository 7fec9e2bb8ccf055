"""Specification of a policy: the observations, masks and memory that it takes, and the actions that it gives."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping
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
from ppax.policy.actor import Actor

FORMAT = 1  # version of the plain data
MOST_AGENTS = 2**20  # limit on agents in one environment; far above any
SHARING = ("shared", "independent")


class MemoryShape(NamedTuple):
    """Shape and dtype of one array in the memory of one stream (one agent in one environment)."""

    shape: tuple[int, ...]
    dtype: str


@dataclasses.dataclass(frozen=True)
class PolicySpec:
    """Specification of a policy as plain data: spaces, masks, memory, agents, and the run that trained it.

    It has the attributes of an environment from which networks and agents are built, so it can take the place of one.
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
        """Return the specification in one line: environment, spaces, memory."""
        return f"{self.env or 'own environment'}: {observations(self)}; {actions(self)}"

    def __str__(self) -> str:
        """Return inputs and outputs of the policy in words, a line for each."""
        return described_policy(self)

    def to_data(self) -> dict[str, Any]:
        """Return the specification as a JSON-compatible dict."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name in ("observation_space", "action_space"):
            fields[name] = space_to_data(fields[name])
        fields["memory"] = {name: {"shape": list(x.shape), "dtype": x.dtype} for name, x in self.memory.items()}
        fields["sizes"] = [list(x) for x in self.sizes]
        lists = {name: list(getattr(self, name)) for name in ("names", "actor_obs", "unread")}
        return {"format": FORMAT} | fields | lists

    @classmethod
    def from_data(cls, data: Any, where: str = "policy") -> PolicySpec:
        """Return the specification that `data`, made by `to_data`, describes; ConfigError, with `where`, if invalid."""
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ConfigError(f"{where}: not the specification of a policy in format {FORMAT}")
        try:
            memory = {
                str(name): MemoryShape(tuple(int(n) for n in x["shape"]), str(x["dtype"]))
                for name, x in data["memory"].items()
            }
            spec = cls(
                observation_space=space_from_data(data["observation_space"], f"{where}: observation_space"),
                action_space=space_from_data(data["action_space"], f"{where}: action_space"),
                masked=bool(data["masked"]),
                memory=memory,
                unread=tuple(map(str, data["unread"])),
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
            # a specification made by hand may have no names
            return dataclasses.replace(spec, names=spec.names or default_names(dict(spec.sizes) or spec.num_agents))
        except ConfigError:
            raise
        except untrusted.MALFORMED as error:
            raise ConfigError(f"{where}: not the specification of a policy: {error!r}") from error

    def _agents_fit(self) -> bool:
        """Return whether number, names and groups of the agents fit each other, and the groups fit the spaces."""
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
    """Return shape and dtype of each array in the memory of one stream, by name; {} for feedforward policies.

    A stream is one agent in one environment.
    """
    carry = jax.eval_shape(lambda: agent.initial_carry(num_agents))
    leaves, _ = jax.tree_util.tree_flatten_with_path(carry)
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): MemoryShape(x.shape[1:], np.dtype(x.dtype).name)
        for path, x in leaves
    }


WIDEST = 6  # most numbers of a vector that are shown


def described_policy(spec: Any) -> str:
    """Return a line for each property of a PolicySpec."""
    lines = {
        "environment": spec.env or "of your own",
        "observation": observations(spec),
        "action": actions(spec),
        "mask": "required: True where an action is allowed" if spec.masked else "none in training",
        "memory": _memory(spec),
        "agents": _agents(spec),
        "trained with": f"ppax {spec.version}" if spec.version else "ppax",
    }
    return "\n".join(f"{name:<13}{text}" for name, text in lines.items())


def observations(spec: Any) -> str:
    """Return a description of one observation of a PolicySpec, such as "float32[4]".

    It also names the entries that may be left out, as acting does not read them.
    """
    text = _of_space(spec.observation_space)
    spare = ", ".join(map(repr, spec.unread))
    return text + (f" ({spare} may be left out: acting does not read it)" if spare else "")


def actions(spec: Any) -> str:
    """Return a description of one action of a PolicySpec, such as "integer from 0 to 1"."""
    return _of_space(spec.action_space)


def _of_space(space: spaces.Space) -> str:
    if isinstance(space, spaces.Dict):
        return "dict of " + ", ".join(f"{name!r}: {_of_space(inner)}" for name, inner in space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return "tuple of " + ", ".join(map(_of_space, space.spaces))
    if isinstance(space, spaces.Discrete):
        return f"integer from {space.start} to {space.start + space.n - 1}"
    if isinstance(space, spaces.MultiDiscrete):
        last = np.asarray(space.start) + space.nvec - 1
        return f"{space.dtype}{list(space.shape)}, integers from {_numbers(space.start)} to {_numbers(last)}"
    if isinstance(space, spaces.MultiBinary):
        return f"{space.dtype}{list(space.shape)} of 0 and 1"
    low, high = _numbers(space.low), _numbers(space.high)
    limits = "" if (low, high) == ("-inf", "inf") else f" from {low} to {high}"
    return f"{space.dtype}{list(space.shape)}{limits}"


def _numbers(x: Any) -> str:
    """Return one number as text where all in `x` are equal, else the list, cut after WIDEST numbers."""
    flat = np.unique(x)
    if len(flat) == 1:
        return f"{flat[0]:g}"
    shown = ", ".join(f"{one:g}" for one in np.ravel(x)[:WIDEST])
    return f"[{shown}{', ...' if np.size(x) > WIDEST else ''}]"


def _memory(spec: Any) -> str:
    if not spec.memory:
        return "none"
    size = sum(int(np.prod(one.shape)) for one in spec.memory.values())
    return f"{size} numbers for each stream; call reset where an episode begins"


def _agents(spec: Any) -> str:
    if spec.sizes:
        sizes = ", ".join(f"{name!r} ({size})" for name, size in spec.sizes)
        return f"groups {sizes}; observations and actions are dicts by agent, or by group, [agents, ...] each"
    if spec.num_agents == 1:
        return "one"
    names = f"{spec.names[0]!r} to {spec.names[-1]!r}"
    if spec.sharing == "independent":
        return f"{names}, each with parameters of its own: observations [{spec.num_agents}, ...], or dicts by agent"
    return f"{names}, one policy for all: the observation of one agent, a batch, or a dict by agent"


FLOATS = ("float16", "float32", "float64")
DTYPES = ("bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)), *FLOATS)
LARGEST = 2**24  # numbers in all arrays of a space; far above any observation, far below the memory
MOST = 2**12  # spaces inside a space
DEEPEST = 16  # limit on the nesting of spaces


def space_to_data(space: spaces.Space) -> dict[str, Any]:
    """Return a Gymnasium space as a JSON-compatible dict; ConfigError for a kind on which ppax does not train."""
    if isinstance(space, spaces.Dict):
        return {"space": "Dict", "spaces": {str(name): space_to_data(inner) for name, inner in space.spaces.items()}}
    if isinstance(space, spaces.Tuple):
        return {"space": "Tuple", "spaces": [space_to_data(inner) for inner in space.spaces]}
    if isinstance(space, spaces.Discrete):
        return {"space": "Discrete", "n": int(space.n), "start": int(space.start), "dtype": str(space.dtype)}
    if isinstance(space, spaces.MultiDiscrete):
        numbers = {"nvec": space.nvec.tolist(), "start": np.asarray(space.start).tolist()}
        return {"space": "MultiDiscrete", **numbers, "dtype": str(space.dtype)}
    if isinstance(space, spaces.MultiBinary):
        return {"space": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.shape)}
    if isinstance(space, spaces.Box):
        bounds = {"low": _bounds(space.low), "high": _bounds(space.high)}
        return {"space": "Box", "shape": list(space.shape), "dtype": str(space.dtype), **bounds}
    raise ConfigError(
        f"{space}: only Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these have a form as data"
    )


def space_from_data(data: Any, where: str = "space", depth: int = 0) -> spaces.Space:
    """Return the space that `data`, made by `space_to_data`, describes; ConfigError, naming `where`, if invalid.

    `depth` is the number of Dict and Tuple spaces around it.
    """
    try:
        if depth == 0:  # before anything is allocated
            _require_small(list(itertools.islice(_sizes(data, where), MOST + 1)), where)
        return _from_data(data, where, depth)
    except ConfigError:
        raise
    except untrusted.MALFORMED as error:
        raise ConfigError(f"{where}: not a space as ppax writes it: {type(error).__name__}: {error}") from error


def _sizes(data: Any, where: str, depth: int = 0) -> Iterator[int]:
    """Yield the number of elements of each Box in `data`, and 1 for each space of another kind but Dict and Tuple.

    Yields nothing if `data` describes no space. The caller limits the sum before any array is made.
    """
    if not isinstance(data, Mapping) or depth > DEEPEST:
        return
    if data.get("space") in ("Dict", "Tuple"):
        inner = data["spaces"]
        for one in inner.values() if isinstance(inner, Mapping) else inner:
            yield from _sizes(one, where, depth + 1)
    else:  # the numbers of other spaces than Box stand in the file itself
        yield math.prod(_shape(data, where)) if data.get("space") == "Box" else 1


def _require_small(sizes: list[int], where: str) -> None:
    if len(sizes) > MOST or sum(sizes) > LARGEST:
        raise ConfigError(f"{where}: must be at most {MOST:,} spaces, of together at most {LARGEST:,} numbers")


def _from_data(data: Any, where: str, depth: int) -> spaces.Space:
    if not isinstance(data, Mapping) or depth > DEEPEST:
        raise ConfigError(f"{where}: must be a table, at most {DEEPEST} deep")
    kind = data.get("space")
    if kind == "Dict":
        named = data["spaces"].items()
        # pairs: Gymnasium sorts the entries of a dict
        return spaces.Dict([(str(name), space_from_data(x, f"{where}[{name!r}]", depth + 1)) for name, x in named])
    if kind == "Tuple":
        return spaces.Tuple([space_from_data(x, f"{where}[{i}]", depth + 1) for i, x in enumerate(data["spaces"])])
    if kind == "Discrete":
        return spaces.Discrete(int(data["n"]), start=int(data["start"]), dtype=_dtype(data, where))
    if kind == "MultiDiscrete":
        nvec = np.array(data["nvec"], np.int64)
        return spaces.MultiDiscrete(nvec, start=np.array(data["start"], np.int64), dtype=_dtype(data, where))
    if kind == "MultiBinary":
        shape = _shape({"shape": [data["n"]] if isinstance(data["n"], int) else data["n"]}, where)
        return spaces.MultiBinary(data["n"] if isinstance(data["n"], int) else shape)
    if kind == "Box":
        shape, dtype = _shape(data, where), _dtype(data, where)
        low, high = (_array(data[name], shape, dtype) for name in ("low", "high"))
        return spaces.Box(low, high, shape, dtype)
    raise ConfigError(f"{where}: space = {kind!r}: must be Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple")


def _bounds(x: np.ndarray) -> Any:
    """Return a space's bound `x` as one number if all are equal, else as nested lists; infinities as text for JSON."""
    same = x.size > 0 and bool((x == x.flat[0]).all())
    return _number(x.flat[0].item()) if same else _nested(x.tolist())


def _nested(x: Any) -> Any:
    return [_nested(inner) for inner in x] if isinstance(x, list) else _number(x)


def _number(x: Any) -> Any:
    return str(x) if isinstance(x, float) and math.isinf(x) else x


def _array(data: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    kind: Any = float if np.dtype(dtype).kind == "f" else int
    flat = [kind(x) for x in np.asarray(data, object).ravel().tolist()]
    numbers = np.array(flat, dtype)
    return np.full(shape, numbers[0], dtype) if len(numbers) == 1 else numbers.reshape(shape)


def _shape(data: Any, where: str) -> tuple[int, ...]:
    shape = tuple(int(n) for n in data["shape"])
    if min(shape, default=0) < 0 or math.prod(shape) > LARGEST:
        raise ConfigError(f"{where}: shape = {list(shape)}: must be sizes of together at most {LARGEST} numbers")
    return shape


def _dtype(data: Any, where: str) -> Any:
    if data["dtype"] not in DTYPES:
        raise ConfigError(f"{where}: dtype = {data['dtype']!r}: must be one of {', '.join(DTYPES)}")
    return np.dtype(data["dtype"]).type
