"""Groups of agents in a run file: a table each, whose agent is that of the run but for what the table says.

agents = "shared"
[agent]
learning_rate = 1e-3
[groups.prey]
players = [0]              # of an environment whose agents are alike; where they are not, it has groups of its own
[groups.prey.agent]
learning_rate = 3e-4
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from ppax.config.catalogue import slots_of
from ppax.options import Config, Option
from ppax.ppo import PPO
from ppax.types import ConfigError

SHARED, INDEPENDENT = SHARING = ("shared", "independent")  # weights
AGENTS = "streams of one policy, or each its own player, whose numbers may be lists, one for each"
PLAYERS = "numbers of the agents in this group; none: the environment has groups of its own"


def tables(config: Config) -> dict[str, Config]:
    """The groups' tables by their names; ConfigError where they are none."""
    found = config.get("groups", {})
    for name, table in {"groups": found}.items() if not isinstance(found, dict) else found.items():
        if any(sign in name for sign in ".=") or not name:
            raise ConfigError(f"groups.{name!r}: a group's name has no dot and no equals sign, and is not empty")
        where = name if name == "groups" else f"groups.{name}"
        if not isinstance(table, dict):
            raise ConfigError(f"{where} = {table!r}: must be a table, [{where}]")
    return dict(found)


def filled(config: Config) -> Config:
    """`config` where each group's table says all that it takes from the run's."""
    groups = {}
    for name, table in tables(config).items():
        groups[name] = {"agents": config.get("agents", SHARED)} | table
        if agent := _merged(config.get("agent", {}), table.get("agent", {}), PPO):
            groups[name]["agent"] = agent
    return config | {"groups": groups} if groups else config


def apart(config: Config) -> set[str]:
    """Paths of the tables whose agents are each its own player: "" for the run's, "groups.prey." for a group's."""
    found = {f"groups.{name}.": table for name, table in tables(config).items()}
    return {path for path, table in {"": config, **found}.items() if table.get("agents") == INDEPENDENT}


def own_options(name: str) -> list[Option]:
    """What a group's table has beside its agent."""
    players = Option(f"groups.{name}.players", int, True, True, None, PLAYERS, {"low": 0})
    return [players, Option(f"groups.{name}.agents", str, False, False, SHARED, AGENTS, {"choices": SHARING})]


def players_of(config: Config) -> dict[str, Any]:
    """Agents' numbers by group, where they are given."""
    given = {name: table.get("players") for name, table in tables(config).items()}
    return {name: players for name, players in given.items() if players is not None}


def known(config: Config, there: Collection[str]) -> dict[str, Config]:
    """The groups' tables; ConfigError where one is of no group that is `there`."""
    env, found = config["env"], tables(config)
    for name in found:
        if not there:
            raise ConfigError(f"groups.{name}: the agents of {env} are alike; say which they are: players = [0, ...]")
        if name not in there:
            nearest = difflib.get_close_matches(name, there, n=1, cutoff=0.0)[0]
            raise ConfigError(f"groups.{name}: {env} has groups {', '.join(there)}; did you mean {nearest!r}?")
    return found


def require_groups(config: Config) -> None:
    """ConfigError where something needs groups, and the environment has none."""
    if config["self_play"]["every"] is not None:
        raise ConfigError(
            f"self_play: {config['env']} has no groups that play against each other; say which agents they are, "
            "[groups.NAME] players = [0, ...]"
        )


def _merged(base: Any, own: Any, cls: type | None) -> Any:
    """`own` over `base`, tables of a part of class `cls` (None: unknown); another part starts afresh.

    A table that does not say which part it is of is of the default one, or, in `own`, of that in `base`.
    """
    if not isinstance(base, Mapping) or not isinstance(own, Mapping):
        return own
    merged = {**base, **own}
    for name, table in own.items():
        choices = slots_of(cls).get(name, {}) if cls is not None else {}
        default = next(iter(choices), None)
        parts = [x.get("part", default) if isinstance(x, Mapping) else default for x in (base.get(name), table)]
        if name in base and not ("part" in _table(table) and parts[0] != parts[1]):
            merged[name] = _merged(base[name], table, choices.get(str(parts[0])))
    return merged


def _table(x: Any) -> Mapping[str, Any]:
    return x if isinstance(x, Mapping) else {}
