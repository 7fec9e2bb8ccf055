"""Start of a run with arrays of another run's learner; refusal, with a table, where the two learners differ."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ppax.agents.opponents import pool_of
from ppax.config import InitFrom
from ppax.core.protocols import Agent
from ppax.core.types import ConfigError, LearnerState, PyTree, TrainState
from ppax.envs import Env
from ppax.run.result import TrainedRun
from ppax.run.warm_start.matching import ONLY_THERE, Row, compare, dotted, joined, table, weights_missing
from ppax.run.warm_start.source import Source, read
from ppax.training.loop import place


class WarmStart(NamedTuple):
    """Learner of another run, and the comparison with the one that starts from it."""

    source: Source
    rows: tuple[Row, ...]
    best: bool

    def apply(self, agent: Agent, env: Env, state: TrainState) -> TrainState:
        """Return `state`, a run's state before its first iteration, with the arrays that are taken.

        With self-play the pool starts with snapshots of these learners.
        """
        taken = {row.path: jnp.asarray(self.source.arrays[row.path]) for row in self.rows if row.taken}

        def one(group: str, learner: LearnerState) -> LearnerState:
            started: LearnerState = jax.tree_util.tree_map_with_path(
                lambda path, leaf: taken.get(joined(group, dotted(path)), leaf), learner
            )
            return started

        groups, structure = _by_group(agent, state.learner)
        learner = jax.tree.unflatten(structure, [one(group, own) for group, own in groups.items()])
        if agent.pool is not None:
            learner = state.learner._replace(current=learner, pool=pool_of(learner, agent.pool.size))
        return place(agent, env, dataclasses.replace(state, learner=learner))

    @property
    def left(self) -> list[Row]:
        """Rows of the arrays that are not taken."""
        return [row for row in self.rows if not row.taken]

    def __str__(self) -> str:
        count = sum(row.taken for row in self.rows)
        which = "best policy, " if self.best else ""
        text = f"init_from {self.source.name} ({which}iteration {self.source.iteration:,}): {count} arrays taken"
        return f"{text}, {len(self.left)} not:\n{table(self.left)}" if self.left else text

    def record(self) -> dict[str, Any]:
        """Plain data for about.json: where the learner comes from, what was taken and what was not."""
        source = self.source
        lists = {
            "taken": [row.path for row in self.rows if row.taken],
            "fresh": [row.path for row in self.left if row.verdict != ONLY_THERE],
            "only_there": [row.path for row in self.left if row.verdict == ONLY_THERE],
        }
        facts = {"run": source.name, "id": source.run_id, "iteration": source.iteration, "env_steps": source.env_steps}
        return {"init_from": facts | {"best": self.best} | lists}


def prepare(
    agent: Agent,
    shapes: TrainState,
    settings: InitFrom,
    given: TrainedRun | TrainState | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> WarmStart | None:
    """Read the learner to start from and compare it with this agent's, of which shapes suffice; None: no warm start.

    `say` is called with what is taken; where `partial` leaves arrays out, that is a warning, in Python too. Raises
    ConfigError, with a table of all arrays, where they differ and `partial` is off.
    """
    groups, _ = _by_group(agent, shapes.learner)
    _check(settings, given, groups)
    if given is None and settings.run is None:
        return None
    source = read(settings, given)
    warm = WarmStart(source, tuple(compare(groups, source.arrays, settings.keep)), settings.best)
    if not warm.rows:
        kept = ", ".join(map('"{}"'.format, settings.keep))
        raise ConfigError(f'init_from.keep = [{kept}]: neither run has such arrays; nearest: ["params"]')
    if not any(row.taken for row in warm.rows) or (warm.left and not settings.partial):
        raise ConfigError(_refusal(warm))
    if warm.left:
        warnings.warn(str(warm), stacklevel=3)
    else:
        say(str(warm))
    return warm


def _by_group(agent: Agent, learner: Any) -> tuple[dict[str, LearnerState], Any]:
    """Learners by group ("" without groups), of self-play the current ones; and the structure of their tree."""
    current: PyTree = learner if agent.pool is None else learner.current
    nodes, structure = jax.tree_util.tree_flatten_with_path(current, is_leaf=lambda x: isinstance(x, LearnerState))
    return {dotted(path): node for path, node in nodes}, structure


def _check(settings: InitFrom, given: object, learners: Mapping[str, LearnerState]) -> None:
    """Raise ConfigError for settings that contradict each other."""
    if given is None and settings.run is None and settings != InitFrom():
        raise ConfigError("init_from: without a run to start from, keep, best and partial have no effect; set run")
    if not settings.keep:
        raise ConfigError('init_from.keep = []: takes nothing; nearest: ["params"]')
    for field, missing in weights_missing(learners, settings.keep).items():
        has = "may have" if field == "extensions" else "has"
        raise ConfigError(
            f"init_from.keep: {field} {has} moments of the weights: add {' and '.join(missing)}, or leave out {field}"
        )


def _refusal(warm: WarmStart) -> str:
    """Message of a refusal."""
    return (
        f"init_from {warm.source.name}: {len(warm.left)} of {len(warm.rows)} arrays do not fit this agent:\n"
        f"{table(warm.rows)}\n"
        "Give this run the network, normalisation and critic of that one (its run file has them), or leave the field "
        "out of init_from.keep, or take the arrays that are the same: --init-from.partial, in Python "
        "ppax.InitFrom(run, partial=True)"
    )
