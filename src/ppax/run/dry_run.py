"""Dry run: the checks of a run, its resolved settings, and the size of its training; compiles and writes nothing."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from ppax import config
from ppax.core.options import Config
from ppax.core.protocols import Agent
from ppax.core.types import LearnerState, PyTree, TrainState
from ppax.devices.footprint import Footprint
from ppax.envs import Env
from ppax.ppo.ppo import PPO
from ppax.run.directory import FOLDERS, refuse_unusual, require_named, require_vacant
from ppax.run.fit import checking, warn_of_settings
from ppax.run.restore import planned_iterations
from ppax.storage.paths import to_directory


class Demand(NamedTuple):
    """Sizes of one run's training: iterations, steps, streams, gradient steps, weights, and least memory.

    A stream is one agent in one environment.
    """

    iterations: int
    steps: int  # of all streams in one iteration
    streams: int
    gradient_steps: int  # of each policy in one iteration, without early stops
    parameters: int  # weights of all policies
    memory: Footprint  # lower bound

    def lines(self) -> list[str]:
        """Return the run's sizes in words, a line of text for each."""
        total = self.iterations * self.steps
        return [
            f"iterations: {self.iterations:,} of {self.steps:,} steps ({self.streams:,} streams); {total:,} steps",
            f"gradient steps: {self.iterations * self.gradient_steps:,}, {self.gradient_steps:,} in an iteration",
            f"parameters: {self.parameters:,}",
            f"memory, at least: {self.memory}",
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the run's sizes as plain data, with memory in bytes."""
        return self._asdict() | {"memory": self.memory._asdict()}


class DryRun(NamedTuple):
    """Resolved settings of a run that could start, and sizes of its training (iterations, parameters, memory, ...)."""

    run_config: Config
    demand: Demand

    def to_toml(self) -> str:
        """Return the text of the run file, with the sizes of the training as comments above."""
        return commented(self.demand.lines()) + config.to_toml(self.run_config)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings (under "config") and the sizes of the training as plain data."""
        return {"config": self.run_config, **self.demand.to_dict()}


def dry_run(agent: Agent, env: Env, run: config.Run, run_dir: Path | None = None, overwrite: bool = False) -> DryRun:
    """Return settings and sizes of a run that could start; raise what `fit` raises before it compiles.

    `run_dir` and `overwrite` are those of `fit`. Nothing is written.
    """
    require_new_directory(run_dir, overwrite, FOLDERS)
    with checking(agent, env, run, run_dir) as checked:
        warn_of_settings(checked.agent, env, run)
        demand = demand_of(checked.agent, env, run, checked.shapes, checked.memory)
        return DryRun(checked.run_config, demand)


def demand_of(agent: Agent, env: Env, run: config.Run, shapes: TrainState, memory: Footprint) -> Demand:
    """Return the sizes of a run's training.

    `shapes` are the shapes of its training state, and `memory` is a lower bound of the memory that it needs.
    """
    steps = run.num_steps * env.num_streams
    in_iteration = max(_gradient_steps(one, run.num_steps, streams) for one, streams in agent.learners(env.num_streams))
    learner = shapes.learner if agent.pool is None else shapes.learner.current  # past selves of self-play do not learn
    return Demand(planned_iterations(env, run), steps, env.num_streams, in_iteration, _parameters(learner), memory)


def _gradient_steps(agent: PPO, num_steps: int, num_streams: int) -> int:
    """Return the number of gradient steps that an update of `agent` takes."""
    sequences = num_steps * num_streams // agent.sequence_length(num_steps)
    minibatches = agent.minibatch.num_minibatches or sequences // agent.minibatch_size(num_steps, num_streams)
    return agent.num_epochs * minibatches


def _parameters(learner: PyTree) -> int:
    """Return the number of weights of all policies in the tree of an agent's learner."""
    found = jax.tree.leaves(learner, is_leaf=lambda x: isinstance(x, LearnerState))
    learners = [x for x in found if isinstance(x, LearnerState)]
    return sum(math.prod(x.shape) for one in learners for x in jax.tree.leaves(one.params))


def require_new_directory(run_dir: Path | None, overwrite: bool, remains: tuple[str, ...]) -> None:
    """Raise ConfigError or OSError for a directory in which a new run or sweep could not be made; write nothing.

    `run_dir` None is valid, except with `overwrite`. `remains`, FOLDERS or OF_SWEEP, are names of files and
    folders that a directory without a run file must not hold: they would be taken for the new run's.
    """
    require_named(run_dir, overwrite)
    if run_dir is None:
        return
    path = to_directory(run_dir, "run_dir")
    if path.exists():
        refuse_unusual(path)
        require_vacant(path, overwrite, remains)
    there = next(one for one in (path, *path.parents) if one.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(there))


def commented(lines: Sequence[str]) -> str:
    """Return the lines as text of a TOML file in which each is a comment."""
    return "".join(f"# {line}\n" for line in lines)
