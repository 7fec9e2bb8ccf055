"""Evaluation during training, at intervals, in environments and with random keys apart from those of training.

Its results are columns of the log rows. A row without an evaluation has NaN in these columns, as `episode_return` has
where no episode ended. Stop conditions and the best policy skip NaN, so that an evaluation counts once.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import jax

from ppax.config import Run
from ppax.core.protocols import Agent, Row
from ppax.core.types import ConfigError, TrainState
from ppax.envs import Env, for_evaluation
from ppax.run.restore import planned_iterations
from ppax.training.backends import backend_of
from ppax.training.collection import steps_between_resets
from ppax.training.evaluation import Evaluation, Evaluator, episode_limit, evaluation_key, has_ended


class Evaluations:
    """Evaluations during one run: before the first iteration, every `eval.every` iterations, and after the last one.

    Without `eval.every` there are none, and no columns for them in log rows. Random keys depend on the seed and the
    iteration, so that a resumed run has the same evaluations. As a context manager it closes its environments at the
    end.
    """

    def __init__(self, agent: Agent, env: Env, run: Run, state: TrainState):
        """Prepare the evaluations of `run`, without compiling; only shapes of `state` are read.

        Raises ConfigError where `env` cannot be copied, or one of its metrics has the name of another column.
        """
        self._every, self._total = run.eval.every, planned_iterations(env, run)
        self._stack = ExitStack()
        self.blank: Row = {}  # the columns, without values
        self.results: dict[int, Evaluation] = {}  # of the evaluations so far, by iteration
        own = for_evaluation(env, run.eval.env_params)  # checked before training, although it may be used after it only
        if self._every is None:
            return
        _require_copies(own)
        self._key = evaluation_key(run.seed)
        evaluator = Evaluator(agent, own, state.learner, run.eval.episodes, run.eval.deterministic)
        self._evaluator = self._stack.enter_context(evaluator)
        self._env, self._max_steps, self._period = own, run.eval.max_steps, steps_between_resets(state)
        # whether episodes end by themselves; None: not known, as none has ended in training yet
        self._ended: bool | None = False if self._max_steps is None and backend_of(own).endless else None
        self.blank = self._evaluator.blank().columns

    def next_after(self, iteration: int) -> int:
        """Return the iteration of the first evaluation after `iteration`, at most the run's last iteration.

        Without evaluations it is the run's last iteration.
        """
        if self._every is None:
            return self._total
        return min(iteration - iteration % self._every + self._every, self._total)

    def due(self, iteration: int) -> bool:
        """Return True if the policy is to be evaluated after `iteration` iterations."""
        return self._every is not None and (iteration % self._every == 0 or iteration == self._total)

    def learn(self, rows: Iterable[Row]) -> None:
        """Note, from log rows, whether an episode has ended by itself in training.

        From then on evaluations cut episodes only after a large number of steps: these episodes will end by themselves.
        """
        if self._every is not None and self._ended is None and any(has_ended(row, self._period) for row in rows):
            self._ended = True

    def columns(self, state: TrainState, row: Row) -> Row:
        """Return the evaluation's columns of the log row `row` for `state`: scores, or NaN if no evaluation is due."""
        self.learn([row])
        iteration = int(state.iteration)
        if not self.due(iteration):
            return self.blank
        key = jax.random.fold_in(self._key, iteration)
        played = iteration * state.num_steps  # steps of each environment
        max_steps = self._max_steps or episode_limit(self._env, self._ended, self._period, played)
        self.results[iteration] = self._evaluator(state.learner, key, max_steps)
        return self.results[iteration].columns

    def __enter__(self) -> Evaluations:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()


def _require_copies(env: Env) -> None:
    """Raise ConfigError for an environment that cannot be copied, since evaluations need environments of their own.

    An evaluation in the environments of training would end training's episodes.
    """
    if not backend_of(env).copyable:
        raise ConfigError(
            f"eval.every: {env.name} is a vector environment of your own, which cannot be copied, and evaluations need "
            "environments beside those of training: pass a function that makes one environment, "
            "ppax.envs.host(MyEnv, num_envs), or leave eval.every out"
        )
