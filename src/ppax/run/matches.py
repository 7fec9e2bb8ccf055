"""`ppax.match`: trained policies play against each other; their returns, shares of games won, and Elo ratings.

The sides of a game are groups of its agents, and all agents of a side are played by one policy. An environment with
several sides therefore has agents in groups. A seating (one policy for each side) is a `Groups` agent, which has a
policy for each group; evaluating this agent plays the seating's games.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ppax.agents.groups import Groups
from ppax.agents.independent import Independent
from ppax.agents.self_play import ROUNDING, Ratings, fitted, game_score
from ppax.core.options import require_whole
from ppax.core.protocols import Agent
from ppax.core.types import ConfigError, PyTree
from ppax.core.unknown_names import refusing_unknown
from ppax.envs import Env, grouped
from ppax.envs.wrappers.agent_groups import without_number
from ppax.policy import Policy, PolicySpec
from ppax.run.loading import load
from ppax.run.result import TrainedRun
from ppax.training.arguments import require_arguments, require_env, require_fit
from ppax.training.evaluation import LONGEST, MAX_STEPS, Evaluation, Evaluator, evaluation_key

PolicyLike = Policy | TrainedRun | str | Path
Sides = Mapping[str, Sequence[str | int]]


@refusing_unknown
def match(
    policies: Mapping[str, PolicyLike] | Sequence[PolicyLike],
    env: Env,
    episodes: int = 100,
    *,
    seed: int = 0,
    deterministic: bool = False,
    sides: Sides | None = None,
    max_steps: int = MAX_STEPS,
) -> Match:
    """Return the games of policies against each other in `env`: `episodes` in each seating, from the same starts.

    A seating gives one policy to each side. `policies` are policies, trained runs, run directories and bundles (files
    with a policy alone), by name or in a list; networks, memories and settings may differ, spaces may not. In each
    seating one policy plays all sides, or one plays a single side and another one all other sides; all pairs and sides
    take their turn. Actions are sampled, unless `deterministic`. Games that last longer than `max_steps` steps are left
    out.

    `sides` has, by the side's name, a list of its agents, each given by its name, its index or the name of a group of
    agents: {"red": ["red_0", "red_1"], "blue": [2, 3]}. By default each group of the environment is a side. Without
    groups, agents whose names differ in their number alone ("red_0", "red_1") are a side; if all agents would then be
    on one side, each agent is a side. A policy with several sets of parameters, one per agent or group, plays each
    agent with the set trained for it.

    A policy wins a game against another one if the mean return of its side's agents is higher. Raises ConfigError for
    policies that cannot play in `env`.
    """
    require_env(env)
    require_whole(episodes, "episodes")
    require_whole(max_steps, "max_steps", high=LONGEST)
    loaded, agents = _named(policies), _sides(env, sides)
    split, units = _split(env, loaded, agents)
    order = list(agents)
    members = {
        (name, unit.group): _member(name, policy, env, unit, split) for name, policy in loaded.items() for unit in units
    }
    programs, seatings = dict[Any, Evaluator](), []
    with contextlib.ExitStack() as stack:
        for chosen in _seatings(len(loaded), len(order)):
            names = tuple(list(loaded)[i] for i in chosen)
            playing = {unit.group: members[names[order.index(unit.side)], unit.group] for unit in units}
            agent = Groups({group: one for group, (one, _) in playing.items()}, split.sizes)
            learner = {group: one for group, (_, one) in playing.items()}
            which = _program_key(agent, learner)
            if which not in programs:  # policies that differ in their weights alone share a program
                require_arguments(agent, split)
                require_fit(agent, split)
                one = Evaluator(agent, split, learner, episodes * env.num_agents, deterministic)
                programs[which] = stack.enter_context(one)
            evaluation = programs[which](learner, evaluation_key(seed), max_steps)
            seatings.append(_seating(names, evaluation, units, order, episodes))
    return Match(tuple(loaded), tuple(order), tuple(seatings))


@dataclasses.dataclass(frozen=True)
class Match:
    """Games of P policies against each other; matrices [P, P] are of the row's policy against the column's.

    NaN stands where two policies have not played each other.
    """

    policies: tuple[str, ...]
    sides: tuple[str, ...]
    seatings: tuple[Seating, ...]

    @property
    def wins(self) -> np.ndarray:
        """Share of the games that the row's policy has won against the column's, [P, P]; NaN on the diagonal."""
        return self._shares(1.0)

    @property
    def draws(self) -> np.ndarray:
        """Share of the games between row's and column's policy that were drawn, [P, P]; NaN on the diagonal."""
        return self._shares(0.5)

    @property
    def returns(self) -> np.ndarray:
        """Mean return [P, P] of the row's policy on one side, with the column's on all others; averaged over sides."""
        mean: np.ndarray = np.mean(list(self.by_side.values()), axis=0)
        return mean

    @property
    def by_side(self) -> dict[str, np.ndarray]:
        """Mean return [P, P] of each side by name: the row's policy plays it, the column's all other sides."""
        tables = {side: np.full((len(self.policies),) * 2, np.nan) for side in self.sides}
        for one in self.seatings:
            for place, side in enumerate(self.sides):
                others = {*one.policies[:place], *one.policies[place + 1 :]}
                if len(others) == 1 and len(one.returns):
                    row, column = (self.policies.index(name) for name in (one.policies[place], *others))
                    tables[side][row, column] = one.returns[:, place].mean()
        return tables

    @property
    def ratings(self) -> Ratings:
        """Elo ratings [P] with mean 1000 and their standard errors, fitted to all games; a draw is half a win."""
        played = np.zeros((len(self.policies),) * 2)
        for row, column, points in self._pairs():
            played[row, column] += len(points)
        return fitted(played * np.nan_to_num(self.wins + 0.5 * self.draws), played)

    @property
    def elo(self) -> dict[str, float]:
        """Elo rating of each policy, by name; their mean is 1000."""
        return {name: float(x) for name, x in zip(self.policies, self.ratings.elo, strict=True)}

    @property
    def scores(self) -> dict[str, Any]:
        """All results as plain data; a matrix is {row: {column: number}}, without pairs that have not played."""
        errors = dict(zip(self.policies, self.ratings.error.tolist(), strict=True))
        tables = {"wins": self.wins, "draws": self.draws, "mean_return": self.returns}
        return {
            "policies": list(self.policies),
            "sides": list(self.sides),
            "elo": self.elo,
            "elo_error": errors,
            **{name: self._as_data(table) for name, table in tables.items()},
            "mean_return_by_side": {side: self._as_data(table) for side, table in self.by_side.items()},
            "games": int(sum(len(one.returns) for one in self.seatings)),
            "unfinished": sum(one.unfinished for one in self.seatings),
        }

    def __str__(self) -> str:
        """Return the tables of games won, of draws if any, and of mean returns, and the Elo ratings, as text."""
        elo, error = self.ratings
        parts = [self._text("games won by the row against the column", self.wins, "{:.2f}")]
        if np.nansum(self.draws) > 0.0:
            parts.append(self._text("games drawn", self.draws, "{:.2f}"))
        parts.append(self._text("mean return of the row against the column", self.returns, "{:.2f}"))
        width = max(map(len, self.policies))
        order = np.argsort(-elo, kind="stable")
        rated = [f"{self.policies[i]:<{width}}  {elo[i]:6.0f}  +- {1.96 * error[i]:.0f}" for i in order]
        parts.append("\n".join(["Elo, with 95 % interval", *rated]))
        left_out = sum(one.unfinished for one in self.seatings)
        return "\n\n".join([*parts, *([f"{left_out} games never ended and are not counted"] if left_out else [])])

    def _shares(self, points: float) -> np.ndarray:
        """Return the share [P, P] of the games against the column's policy in which the row's got `points`.

        `points` are 1 for games won, 0.5 for games drawn. If one of the two policies plays several sides of a game, the
        game counts as a fraction: the share of its pairs of opposing sides with `points`. NaN stands where there are no
        games.
        """
        got, played = np.zeros((2, len(self.policies), len(self.policies)))
        for row, column, points_of in self._pairs():
            got[row, column] += (points_of == points).mean(axis=1).sum()
            played[row, column] += len(points_of)
        return np.divide(got, played, out=np.full_like(got, np.nan), where=played > 0)

    def _pairs(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """Yield (row, column, points), for each seating and each ordered pair of policies in it.

        `row` and `column` are the indices of the two policies, and `points` those of the first: an array [games, pairs
        of their sides] with 1 for a win, 0.5 for a draw, 0 for a loss.
        """
        for one in self.seatings:
            for names in itertools.permutations(dict.fromkeys(one.policies), 2):
                own, other = ([i for i, name in enumerate(one.policies) if name == x] for x in names)
                mine, theirs = one.returns[:, own][:, :, None], one.returns[:, other][:, None, :]
                points = game_score(mine - theirs, ROUNDING * (np.abs(mine) + np.abs(theirs)))
                row, column = (self.policies.index(name) for name in names)
                yield row, column, np.asarray(points).reshape(len(one.returns), len(own) * len(other))

    def _as_data(self, table: np.ndarray) -> dict[str, dict[str, float]]:
        return {
            row: {column: float(x) for column, x in zip(self.policies, line, strict=True) if not np.isnan(x)}
            for row, line in zip(self.policies, table, strict=True)
        }

    def _text(self, title: str, table: np.ndarray, form: str) -> str:
        cells = [["-" if np.isnan(x) else form.format(x) for x in row] for row in table]
        first = max(map(len, self.policies))
        widths = [max(len(name), *(len(row[i]) for row in cells)) for i, name in enumerate(self.policies)]
        lines = [("", self.policies), *zip(self.policies, cells, strict=True)]
        rows = [
            "  ".join([f"{head:<{first}}", *(f"{x:>{w}}" for x, w in zip(line, widths, strict=True))])
            for head, line in lines
        ]
        return "\n".join([title, *rows])


class Seating(NamedTuple):
    """Games of one seating, which assigns a policy to each side of the game.

    `returns` [games, sides] is the mean return of each side's agents in each game. `unfinished` games, which were cut
    at the limit of steps, are not in it.
    """

    policies: tuple[str, ...]  # of each side
    returns: np.ndarray  # [games, sides] mean return of the side's agents
    unfinished: int  # games that were cut at `max_steps`, and are left out


def _named(policies: Mapping[str, PolicyLike] | Sequence[PolicyLike]) -> dict[str, Policy]:
    """Return all policies, loaded, by name; those of a list are named by their run directories or files.

    A policy in memory without a run directory is named by its position in the list, as "policy_0". Repeated names are
    made distinct by #2, #3, ... at their end. Raises ConfigError for fewer than two.
    """
    if isinstance(policies, str | Path | Policy | TrainedRun) or len(policies) < 2:
        raise ConfigError("policies: must be at least two, as ['runs/a', 'runs/b']; ppax.evaluate plays a single one")
    if isinstance(policies, Mapping):
        return {str(name): _loaded(source) for name, source in policies.items()}
    names = distinct_names([_name(source, place) for place, source in enumerate(policies)])
    return {name: _loaded(source) for name, source in zip(names, policies, strict=True)}


def distinct_names(names: Sequence[str]) -> list[str]:
    """Return the names of policies, made distinct: each repetition of a name gets " #2", " #3", ... behind it."""
    counts = [names[: place + 1].count(name) for place, name in enumerate(names)]
    return [name if count == 1 else f"{name} #{count}" for name, count in zip(names, counts, strict=True)]


def _name(source: PolicyLike, place: int) -> str:
    run_dir = source.run_dir if isinstance(source, TrainedRun) else None
    if isinstance(source, Policy):
        run_dir = source.source and source.source.run_dir
    return str(source) if isinstance(source, str | Path) else str(run_dir or f"policy_{place}")


def _loaded(source: PolicyLike) -> Policy:
    if isinstance(source, Policy):
        return source
    return source.policy() if isinstance(source, TrainedRun) else load(source)


class Unit(NamedTuple):
    """Group of agents in the environment of a match: agents on one side that every policy can play as one group.

    A policy that was trained with groups must have had these agents in the same group, whose network then plays them.
    `group` is the name of the group in the match, and `agents` are indices in the environment that the user passed.
    """

    group: str
    side: str
    agents: tuple[int, ...]  # places in the environment that was passed


def _sides(env: Env, sides: Sides | None) -> dict[str, tuple[int, ...]]:
    """Return, by side, the indices of its agents among those of `env`; ConfigError for sides that are not possible.

    `sides` None stands for the default that `match` describes.
    """
    ends = np.cumsum([size for _, size in env.sizes]).tolist()
    groups = {name: tuple(range(end - n, end)) for (name, n), end in zip(env.sizes, ends, strict=True)}
    if env.num_agents < 2:
        raise ConfigError(f"{env.name or 'the environment'} has one agent: ppax.evaluate scores a policy in it")
    if sides is None and groups:
        chosen = groups
    elif sides is None:
        chosen = {}
        for place, agent in enumerate(env.agent_names):
            chosen[without_number(agent)] = (*chosen.get(without_number(agent), ()), place)
        if len(chosen) < 2 or "" in chosen:
            chosen = {agent: (place,) for place, agent in enumerate(env.agent_names)}
    else:
        known: dict[str | int, tuple[int, ...]] = {name: (i,) for i, name in enumerate(env.agent_names)}
        known |= {i: (i,) for i in range(env.num_agents)} | groups
        for side, names in sides.items():
            for name in names:
                if name not in known:
                    there = ", ".join([*groups, *env.agent_names])
                    raise ConfigError(f"sides[{side!r}] has {name!r}: no such agent; there are {there}")
        chosen = {side: tuple(i for name in names for i in known[name]) for side, names in sides.items()}
        if sorted(i for places in chosen.values() for i in places) != list(range(env.num_agents)):
            raise ConfigError(f"sides: each of {', '.join(env.agent_names)} must be on exactly one side")
    if len(chosen) < 2:
        raise ConfigError(f"sides: there is one, {next(iter(chosen))}; must be at least two, sides={{'a': [0], ...}}")
    return chosen


def _split(env: Env, policies: Mapping[str, Policy], sides: Mapping[str, tuple[int, ...]]) -> tuple[Env, list[Unit]]:
    """Return `env` with a group for each unit, and the units: agents on one side and in the same group of every policy.

    `sides` are the indices of each side's agents. If `env` has groups already, it is unchanged, and its groups are the
    units.
    """
    side_of = {agent: side for side, agents in sides.items() for agent in agents}
    groups: dict[Any, list[int]] = {}
    own = _group_of_each(env)
    for agent in range(env.num_agents):
        roles = tuple(_role(name, policy, env, agent) for name, policy in policies.items())
        groups.setdefault((own[agent], "") if own else (side_of[agent], roles), []).append(agent)
    units: list[Unit] = []
    for (name, _), agents in groups.items():
        if len({side_of[agent] for agent in agents}) > 1:
            raise ConfigError(f"sides: the agents of the group {name!r} must be on one side")
        alone = env.sizes or sum(one == name for one, _ in groups) == 1
        units.append(Unit(name if alone else f"{name}_{len(units)}", side_of[agents[0]], tuple(agents)))
    if not env.sizes:
        env = grouped(env, {unit.group: unit.agents for unit in units})
    return env, units


def _role(name: str, policy: Policy, env: Env, agent: int) -> str:
    """Return the group of a policy that plays agent number `agent` of `env`; "" if the policy has no groups."""
    if not policy.spec.sizes:
        return ""
    (stream,) = _streams(policy, env, [agent], f"policies[{name!r}]")
    return _group_of_each(policy.spec)[stream]


def _group_of_each(env: Env | PolicySpec) -> list[str]:
    """Return the name of the group of each agent, in the order of agents; [] if there are no groups."""
    return [name for name, size in env.sizes for _ in range(size)]


def in_groups_of(policy: Policy, env: Env) -> Env:
    """Return `env` with the groups that a policy was trained for; unchanged if the policy has none.

    An environment that has groups already is unchanged, too.
    """
    if not policy.spec.sizes or env.sizes:
        return env
    streams = _streams(policy, env, range(env.num_agents), "the policy")
    players: dict[str, list[int]] = {name: [] for name, _ in policy.spec.sizes}
    for stream, group in enumerate(_group_of_each(policy.spec)):
        players[group].append(streams.index(stream))
    return grouped(env, players)  # type: ignore[no-any-return]


def _streams(policy: Policy, env: Env, agents: Iterable[int], what: str) -> list[int]:
    """Return, for each of `agents` (indices in `env`), its index among the agents that `policy` was trained for.

    Raises ConfigError where the agents' names differ; `what` names the policy in its message.
    """
    own, there = policy.spec.names, env.agent_names
    if set(own) != set(there):
        raise ConfigError(
            f"{what} has learned to play {', '.join(own) or 'one agent'} apart; "
            f"{env.name or 'the environment'} has {', '.join(there)}: pass the environment as it was in training, with "
            "its groups (ppax.envs.grouped)"
        )
    return [own.index(there[agent]) for agent in agents]


def _member(name: str, policy: Policy, env: Env, unit: Unit, split: Env) -> tuple[Any, PyTree]:
    """Return the agent and learner with which a policy plays a unit, a group of agents in the environment of a match.

    `env` is the environment as it was passed, `split` the one with a group for each unit, and `name` that of the
    policy. Raises ConfigError where the policy cannot play the unit.
    """
    agent, learner, spec = policy.agent, policy.learner, policy.spec
    apart = agent.sharing != "shared" or bool(spec.sizes)
    streams = _streams(policy, env, unit.agents, f"policies[{name!r}]") if apart else []
    own: Any = spec
    if spec.sizes:
        group_of = _group_of_each(spec)
        groups = {group_of[stream] for stream in streams}
        if len(groups) > 1:
            raise ConfigError(
                f"policies[{name!r}] plays the group {unit.group!r} of the environment with unlike groups, "
                f"{', '.join(sorted(groups))}: pass the environment without groups, or with those"
            )
        group = groups.pop()
        streams = [stream - group_of.index(group) for stream in streams]
        agent, learner, own = agent.agents[group], learner[group], spec.groups[group]  # type: ignore[attr-defined]
    for kind in ("observation_space", "action_space"):
        mine, given = getattr(own, kind), getattr(split.groups[unit.group], kind)
        if mine != given:
            raise ConfigError(
                f"policies[{name!r}] has the {kind} {mine}; that of {unit.group!r} in {env.name or 'the environment'} "
                f"is {given}: policies of one match take the same observations and actions"
            )
    if agent.sharing == "shared":
        return agent, learner
    chosen = np.array(streams)
    players = jax.tree.map(lambda x: x if np.ndim(x) == 0 else x[chosen], agent.agent)  # type: ignore[attr-defined]
    return Independent(players, len(streams)), jax.tree.map(lambda x: x[chosen], learner)


def _seatings(policies: int, sides: int) -> list[tuple[int, ...]]:
    """Return all seatings: for each seating the indices [sides] of the policies that play the sides.

    In a seating one policy plays all sides, or one plays a single side and another one all other sides.
    """
    alone = [(i,) * sides for i in range(policies)]
    pairs = itertools.permutations(range(policies), 2)
    mixed = [tuple(i if place == side else j for place in range(sides)) for i, j in pairs for side in range(sides)]
    return list(dict.fromkeys(alone + mixed))  # with two sides every pair of seats comes twice


def _program_key(agent: Agent, learner: PyTree) -> Any:
    """Return a hashable value that is equal for policies that the same compiled program can play.

    These are policies that differ in weights alone.
    """
    numbers = tuple(np.asarray(x).tobytes() for x in jax.tree.leaves(agent))
    shapes = tuple((np.shape(x), np.asarray(x).dtype) for x in jax.tree.leaves(learner))
    return jax.tree.structure((agent, learner)), numbers, shapes


def _seating(
    names: tuple[str, ...], evaluation: Evaluation, units: Sequence[Unit], sides: Sequence[str], games: int
) -> Seating:
    """Return the games of a seating: the mean return of each side's agents in each game that has ended.

    `names` are the policies by side, and `games` the number of games that were begun.
    """
    num_agents = evaluation.num_agents
    agents = np.arange(len(evaluation.returns)) % num_agents if evaluation.agents is None else evaluation.agents
    numbers = np.asarray(evaluation.games)
    cut = set(numbers[~evaluation.finished].tolist()) | {-1}
    whole = sorted(set(numbers.tolist()) - cut)
    kept = np.isin(numbers, whole)
    returns = np.zeros((len(whole), num_agents))  # 0 for an agent that did not appear in a game
    np.add.at(returns, (np.searchsorted(whole, numbers[kept]), agents[kept]), evaluation.returns[kept])
    columns = [unit.side for unit in units for _ in unit.agents]
    means = [returns[:, [one == side for one in columns]].mean(axis=1) for side in sides]
    return Seating(names, np.stack(means, axis=1), games - len(whole))
