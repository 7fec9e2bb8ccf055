"""Groups of players (agents in an environment) in a run file, each with a table that overrides the run's `[agent]`.

agents = "shared"
[agent]
learning_rate = 1e-3
[groups.prey]
players = [0]              # indices or names of the agents in this group
[groups.prey.agent]
learning_rate = 3e-4

`players` is left out where the environment defines its groups. On the host, ppax forms groups of agents with different
spaces by the agents' names ("prey_0" is in "prey"); `players` may replace these groups.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from ppax.config.catalogue import AGENT, CHAIN, ONE, Choices, part_fields
from ppax.config.user_parts import without_parts
from ppax.core.options import Config, Option, flatten, require_group_name, unflatten
from ppax.core.types import ConfigError

SHARED, INDEPENDENT = SHARING = ("shared", "independent")  # parameter sharing between agents
AGENTS = "shared, one policy for all agents, or independent, one policy per agent (numbers may be lists, one per agent)"
PLAYERS = "names or indices of the agents in this group; none: the environment defines its groups"


def tables(config: Config) -> dict[str, Config]:
    """Return the tables of the groups by name, {} without groups; ConfigError for an invalid name or a non-table."""
    groups = config.get("groups", {})
    for name, table in {"groups": groups}.items() if not isinstance(groups, dict) else groups.items():
        require_group_name(name)
        where = name if name == "groups" else f"groups.{name}"
        if not isinstance(table, dict):
            raise ConfigError(f"{where} = {table!r}: must be a table, [{where}]")
    return dict(groups)


def with_inherited(config: Config) -> Config:
    """Return the configuration with complete tables of groups: also with the options that they inherit from the run."""
    groups = {}
    for name, table in tables(config).items():
        groups[name] = {"agents": config.get("agents", SHARED)} | table
        if agent := _merged_agent(config.get("agent", {}), table.get("agent", {})):
            groups[name]["agent"] = agent
    return config | {"groups": groups} if groups else config


def _merged_agent(base: Any, own: Any) -> Any:
    """Return `base`, the run's table `agent`, overridden by `own`, the table `agent` of a group.

    If the group's agent is of another class, it inherits only the options that all agents have.
    """
    default = next(iter(AGENT))
    name = _table(base).get("part", default)
    chosen = _table(own).get("part", name)
    if chosen != name and isinstance(base, dict):
        flat = {f"agent.{path}": x for path, x in flatten(base)}
        base = unflatten(without_parts(flat, ["agent.part"])).get("agent", {})
    return _merged(base, own, AGENT.find(str(chosen), "agent.part"))


def independent_tables(config: Config) -> set[str]:
    """Return the path prefixes of tables with agents = "independent": "" for the run's, "groups.prey." for a group's.

    Then each player (agent inside the environment) has weights of its own.
    """
    groups = {f"groups.{name}.": table for name, table in tables(config).items()}
    return {path for path, table in {"": config, **groups}.items() if table.get("agents") == INDEPENDENT}


def own_options(name: str) -> list[Option]:
    """Return the options `players` and `agents` of the table [groups.NAME]; all others are in its table `agent`.

    `name` is the name of the group. `players` are the agents inside the environment that belong to it, `agents` says
    whether they share one agent's weights.
    """
    players = Option(
        path=f"groups.{name}.players",
        kind=int,
        many=True,
        optional=True,
        default=None,
        doc=PLAYERS,
        limits={"low": 0, "names": True},  # or the names of agents
    )
    agents = Option(f"groups.{name}.agents", str, default=SHARED, doc=AGENTS, limits={"choices": SHARING})
    return [players, agents]


def players_of(config: Config) -> dict[str, Any]:
    """Return the players (agents inside the environment) of each group whose table lists them, as indices or names."""
    given = {name: table.get("players") for name, table in tables(config).items()}
    return {name: players for name, players in given.items() if players is not None}


def checked_tables(config: Config, env_groups: Collection[str]) -> dict[str, Config]:
    """Return the configuration's tables [groups.NAME] by group name; ConfigError for a group not in `env_groups`.

    `env_groups` names the environment's agent groups; it is empty for an environment without groups.
    """
    env, groups = config["env"], tables(config)
    for name in groups:
        if not env_groups:
            raise ConfigError(
                f"groups.{name}: {env} defines no groups, its agents are alike; list the agents of the group: "
                "players = [0, ...]"
            )
        if name not in env_groups:
            nearest = difflib.get_close_matches(name, env_groups, n=1, cutoff=0.0)[0]
            raise ConfigError(f"groups.{name}: {env} has groups {', '.join(env_groups)}; did you mean {nearest!r}?")
    return groups


def require_groups(config: Config) -> None:
    """Raise ConfigError if self-play is on; called for environments without groups to play against each other."""
    if config["self_play"]["every"] is not None:
        raise ConfigError(
            f"self_play: {config['env']} has no groups that play against each other; list the agents of each group, "
            "[groups.NAME] players = [0, ...]"
        )


def _merged(base: Any, own: Any, cls: type | None) -> Any:
    """Return `base`, the table of a part of class `cls` (None: unknown), with its options overridden by those of `own`.

    A part is a swappable object, such as a loss. Nested tables for the same part are merged in the same way; a nested
    table of `own` for another part replaces the nested table of `base`. A nested table without the key `part` is for
    the default part if it is in `base`, and for the part that `base` has if it is in `own`.
    """
    if not isinstance(base, Mapping) or not isinstance(own, Mapping):
        return own
    merged, fields = {**base, **own}, part_fields(cls) if cls is not None else {}
    for name, table in own.items():
        field = fields.get(name)
        if field is not None and field.holds == CHAIN:
            merged[name] = _merged_chain(base.get(name), table, field.choices)
            continue
        choices = field.choices if field is not None and field.holds == ONE else None
        default = next(iter(choices or ()), None)
        parts = [x.get("part", default) if isinstance(x, Mapping) else default for x in (base.get(name), table)]
        if name in base and not ("part" in _table(table) and parts[0] != parts[1]):
            inner = choices.find(str(parts[0]), f"agent.{name}.part") if choices else None
            merged[name] = _merged(base[name], table, inner)
    return merged


def _merged_chain(base: Any, own: Any, choices: Choices) -> Any:
    """Return `base`, a dict of the tables of parts (swappable objects) by name, overridden by those in `own`.

    The result has the order of `own` if `own` names all parts of `base`, else the order of `base`, with new parts last.
    """
    if not isinstance(base, Mapping) or not isinstance(own, Mapping):
        return own
    merged = dict(own) if base.keys() <= own.keys() else {**base, **own}
    for name in base.keys() & own.keys():
        before, after = (str(_table(x).get("part", name)) for x in (base[name], own[name]))
        if before == after or "part" not in _table(own[name]):
            merged[name] = _merged(base[name], own[name], choices.find(before, f"agent.extensions.{name}.part"))
    return merged


def _table(x: Any) -> Mapping[str, Any]:
    return x if isinstance(x, Mapping) else {}
