"""Packing of a sweep's members (runs) into compiled programs: members that differ only in numbers share one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ppax import config, envs
from ppax.config import Run, group_tables
from ppax.core import imports
from ppax.core.options import Config, unflatten
from ppax.core.protocols import Agent
from ppax.core.types import ConfigError, TrainState
from ppax.devices.layout import with_devices
from ppax.envs import Env
from ppax.run.fit import check_plan, require_valid
from ppax.run.restore import planned_iterations, require_memory, state_shapes
from ppax.sweeps.plan import Member
from ppax.training.arguments import require_consistent
from ppax.training.backends import backend_of
from ppax.training.compiled import strong_types

COMPILED = "compiled"  # name of the backend whose members train together
NUMBERS = ("env_params", "schedule")  # arguments of an environment that `config.build` sets in one that exists
OTHERS = ("env", "num_envs", *(name for name in envs.ARGUMENTS if name not in NUMBERS))


class Task(NamedTuple):
    """Member (run) of a sweep, with the agent, environment and run settings that were built for it.

    The agent is built for one device, however many the machine has: on several devices sums have another order, so that
    results differ after some iterations. The member's run file says one device, too (`devices` of the table
    `[agent.program]`), so that a run from that file repeats the member on any machine.
    """

    member: Member
    agent: Agent
    env: Env
    run: Run


class Pack(NamedTuple):
    """Members (runs) of a sweep that one compiled program can train together.

    Their agents and environments have equal static fields and array shapes, and may differ in numbers (float
    hyperparameters). Rollouts, training, and intervals of logs and evaluations are equally long. A member with
    environments on the host is a pack by itself.
    """

    tasks: tuple[Task, ...]
    shapes: TrainState  # of the state of one member

    @property
    def compiled(self) -> bool:
        """Return whether the pack's environments run inside the compiled program; if not, it has a single member."""
        return backend_of(self.tasks[0].env).name == COMPILED


def packed(members: Iterable[Member]) -> list[Pack]:
    """Return packs of the members (runs), after building agent, environment and run settings of each member.

    A pack is the members that one compiled program can train together; packs are in the order of their first members.
    Each member with environments on the host is a pack by itself. Raises ConfigError, before anything compiles, for
    options that are invalid or contradict each other, NotEnoughMemory for a member that is too large.
    """
    made: dict[str, Env] = {}
    groups: list[tuple[Any, list[Task]]] = []
    for member in members:
        task = _built(member, made)
        own = _static_parts(task)
        same = next((tasks for other, tasks in groups if own is not None and own == other), None)
        if same is None:
            groups.append((own, [task]))
        else:
            same.append(task)
    packs = [_checked(tasks) for _, tasks in groups]
    for env in made.values():
        env.close()  # those on the host are made anew for each member
    return packs


def planned_of(member: Member) -> int:
    """Return the number of iterations for which a member (run) of a sweep trains, without checks of its settings."""
    _, _, env, run = _built(member, {})
    total = planned_iterations(env, run)
    env.close()
    return total


def _built(member: Member, made: dict[str, Env]) -> Task:
    """Return the member (run) with agent, environment and run settings built for it; ConfigError if they are invalid.

    `made` caches environments between calls: members share one environment if its arguments are equal except for
    numbers (`env_params`, `schedule`), which each member sets anew.
    """
    try:
        plain = {name: value for name, value in member.config.items() if name not in NUMBERS}
        name = json.dumps([plain.get(name) for name in OTHERS] + [group_tables.players_of(plain)])
        if name not in made:
            made[name] = config.build_env(plain)
        agent, env, run = config.build(member.config, made[name])
    except imports.Untrusted:
        raise
    except ConfigError as error:
        raise ConfigError(f"sweep, member {member.number}: {error}") from error
    if backend_of(env).name == COMPILED:  # a core trains a member; on the host it is an ordinary run
        agent = with_devices(agent, 1)
    return Task(member, agent, env, run)


def _checked(tasks: Sequence[Task]) -> Pack:
    """Return the pack of `tasks`, members (runs) that one program can train, after checks of their settings.

    Raises ConfigError if environment and agent do not fit each other, if settings contradict each other (as a minibatch
    that does not divide the rollout), or if there are too many iterations or rows in a rollout; NotEnoughMemory if a
    member's state and rollout do not fit into memory; ImportError for a logger that is not installed. Sizes are equal
    in all members, and are checked in the first one; their numbers are checked in each.
    """
    agent, env, run = tasks[0][1:]
    for task in tasks:
        try:
            require_consistent(task.agent)
        except ConfigError as error:
            raise ConfigError(f"sweep, member {task.member.number}: {error}") from error
    try:
        require_valid(agent, env)
        check_plan(agent, env, run, Path())
        shapes = state_shapes(agent, env, run)
        require_memory(agent, env, shapes)
    except ConfigError as error:
        raise ConfigError(f"sweep, member {tasks[0].member.number}: {error}") from error
    return Pack(tuple(tasks), shapes)


def _static_parts(task: Task) -> tuple[Any, ...] | None:
    """Return what must be equal for members (runs) to share a compiled program; None for environments on the host.

    That is `num_steps`, `total_steps` and `iterations_per_env_reset` of the run, the settings of its log, the interval
    of evaluations, the shapes and dtypes of all numbers, and the tree structure of agent and environment.
    """
    if backend_of(task.env).name != COMPILED:
        return None
    run = task.run
    leaves, structure = jax.tree.flatten(strong_types((task.agent, task.env)))
    lengths = run.num_steps, run.total_steps, run.iterations_per_env_reset
    shapes = tuple((np.shape(x), str(np.asarray(x).dtype)) for x in leaves)
    return *lengths, run.log, run.eval.every, shapes, structure


def alike(one: Task, other: Task) -> bool:
    """Return True if one compiled program can train both members (runs of a sweep)."""
    own = _static_parts(one)
    return own is not None and own == _static_parts(other)


def with_values(task: Task, values: Config) -> Task:
    """Return the member (run) `task` with the values `values`, by dotted path, of swept options.

    The options must be numbers that can change without another compiled program.
    """
    own = config.resolve(config.overridden(task.member.config, unflatten(values)))
    member = task.member._replace(values=task.member.values | values, config=own)
    agent, env, _ = config.build(own, task.env)
    return Task(member, with_devices(agent, 1), env, task.run)


def task_config(task: Task) -> Config:
    """Return the content of a member's (run's) run file, which is that of `ppax.fit`, on one device if compiled."""
    return config.describe_run(task.agent, task.env, task.run)


def run_file_of(member: Member) -> Config:
    """Return the content of the run file of a member (run) that has not been built; ConfigError if it is invalid."""
    task = _built(member, {})
    task.env.close()
    return task_config(task)
