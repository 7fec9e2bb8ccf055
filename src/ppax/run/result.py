"""Result of `fit` and `resume`, and the exceptions of an interrupted or failed run."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from ppax import config
from ppax.arrays import counter
from ppax.core.options import Config
from ppax.core.protocols import Agent, Row
from ppax.core.types import ConfigError, TrainState
from ppax.devices import sharding
from ppax.envs import Env, for_evaluation
from ppax.loggers.files import finite, rows_until
from ppax.policy import Policy
from ppax.policy.policy import Source
from ppax.policy.spec import spec_of
from ppax.run import records
from ppax.run.conditions import KeepBest
from ppax.run.directory import EVALUATION, ROWS, newest_iteration, read_about, read_evaluation
from ppax.run.records import Record
from ppax.storage import safe_files
from ppax.storage.cache import kept_programs
from ppax.storage.paths import relative
from ppax.training.backends import backend_of
from ppax.training.collection import steps_between_resets
from ppax.training.evaluation import Evaluation, episode_limit, evaluate, evaluation_key, has_ended


class Interrupted(Exception):
    """Exception raised when a signal has stopped a run: its state is saved, and `resume` continues it."""


class ProcessLost(Interrupted):
    """Exception raised when another process of the run has ended: the run can be resumed from its last checkpoint."""


class NumericalError(Exception):
    """Exception raised when rollout, gradient or weights of an iteration are not finite.

    The state before that iteration is saved, if the run has a directory.
    """


UNNAMED = "own"  # name of environments on the host that the user gave none
DEFAULT_EVALUATION = config.EvalSettings()


@dataclasses.dataclass(repr=False)
class TrainedRun:
    """Result of `fit` and `resume`: the trained agent, its environment, and the history of the run.

    `evaluations` are those made during training in this call of `fit` or `resume`, by iteration. `started_at` is the
    Unix time at which training began in this call, after compilation.
    """

    agent: Agent
    env: Env
    state: TrainState
    history: list[Row]  # rows logged by this call, as in metrics.jsonl
    run_dir: Path | None
    started_at: float = 0.0  # Unix time when the first chunk began
    compile_seconds: float = 0.0
    train_seconds: float = 0.0  # of this call, without compilation
    steps_per_second: float = 0.0  # of this call, without compilation
    stopped: str = ""  # condition or callback that ended the run, with the metric's value; "" if total_steps are done
    best: KeepBest | None = None  # best policy so far, with `best.metric`
    unsaved: str = ""  # error of the last checkpoint; "" if it was written
    # by iteration: those that this call made during training, with the results of each of their episodes
    evaluations: dict[int, Evaluation] = dataclasses.field(default_factory=dict)
    eval_settings: config.EvalSettings = DEFAULT_EVALUATION  # of the evaluation after training
    seed: int | None = None  # random seed of the run; None: not known

    def __repr__(self) -> str:
        returns = [row for row in self.history if math.isfinite(row["episode_return"])]  # rows may have no episode
        row = (returns or self.history or [{"episode_return": math.nan}])[-1]
        endless = math.isnan(row["episode_return"]) and math.isfinite(row.get("reward_mean", math.nan))
        shown = "reward_mean" if endless else "episode_return"
        numbers = f"{self.env_steps:,} env-steps, {int(self.state.iteration):,} iterations"
        speed = f", {self.train_seconds:.1f} s" if self.history else ""
        where = f", run_dir={str(relative(self.run_dir))!r}" if self.run_dir else ""
        ended = f", stopped={self.stopped!r}" if self.stopped else ""
        scores = [f"last {shown} {row[shown]:.2f}"]
        if self.evaluations:
            last = self.evaluations[max(self.evaluations)]
            scores.append(f"last evaluation {last.mean_return:.2f} ({int(last.counted.sum())} episodes)")
        if self.best is not None and self.best.row is not None:
            scores.append(f"best {self.best.key} {self.best.value:.2f}")
        return f"TrainedRun({_env_name(self.env)}: {numbers}, {', '.join(scores)}{speed}{where}{ended})"

    def record(self) -> Record:
        """Return log rows and configuration of the run for reports: of the whole run from its directory, if it has one.

        Without a directory, the rows are those of this call of `fit`.
        """
        if self.run_dir is not None and (self.run_dir / config.RUN_FILE).is_file():
            return records.read(self.run_dir)
        name = self.env.name or type(self.env).__name__
        known = {"total_steps": self.total_steps} | ({} if self.seed is None else {"seed": self.seed})
        described = {path: value for path, value in self._configuration().items() if path != "seed"}
        return records.of_history(name, self.history, described | known, self.stopped)

    def policy(self, best: bool = False) -> Policy:
        """Return the trained policy, or with `best` the best one by `best.metric`, as an object independent of the run.

        Raises ConfigError with `best` if the run kept no best policy.
        """
        state = self.state
        if best:
            if self.best is None or self.best.policy is None:
                raise ConfigError(
                    "best = True: this run kept no best policy; train with "
                    'best=ppax.BestSettings(metric="episode_return"), or take the last one'
                )
            state = self.best.policy
        spec = spec_of(self.agent, self.env, self.state.actor.action_mask, self._configuration())
        source = Source(self.run_dir, int(state.iteration), counter.to_int(jax.device_get(state.env_steps)))
        return Policy(self.agent, sharding.local(state.learner), spec, source)

    def _configuration(self) -> Config:
        """Return the configuration of the run: read from its directory, or, without one, described from its objects."""
        if self.run_dir is not None and (self.run_dir / config.RUN_FILE).is_file():
            return config.read(self.run_dir / config.RUN_FILE)
        sizes = {"num_steps": self.state.num_steps, "agents": self.agent.sharing}
        settings = config.Run(**self.env.settings.run_fields() | sizes)
        return config.describe_run(self.agent, self.env, settings)

    @property
    def env_steps(self) -> int:
        """Valid steps of all agents in all environments since the start of the run.

        Autoreset steps, and those in which an agent was absent, are left out.
        """
        return counter.to_int(self.state.env_steps)

    @property
    def total_steps(self) -> int:
        """Steps of all agents in all environments since the start of the run, autoreset steps included.

        Steps in which an agent was absent are counted, too.
        """
        return int(self.state.iteration) * self.state.num_steps * self.env.num_streams

    def steps_done(self) -> str:
        """Return `total_steps` as text, such as "1,000 steps" or "1,000 steps of 2 agents"."""
        agents = f" of {self.env.num_agents} agents" if self.env.num_agents > 1 else ""
        return f"{self.total_steps:,} steps{agents}"

    def evaluate(
        self,
        episodes: int | None = None,
        deterministic: bool | None = None,
        seed: int = 0,
        max_steps: int | None = None,
        env_params: Mapping[str, Any] | None = None,
        record: bool = True,
    ) -> Evaluation:
        """Return an evaluation of the trained policy over whole episodes; training is not changed.

        `episodes`, `deterministic` and `max_steps` None are the run's own settings, `eval.episodes` and so on, as after
        `ppax train`. An episode that has not ended after `max_steps` steps is cut there and counts as truncated.
        `env_params`, such as {"gravity": 15.0}, are parameters of the environment for this evaluation alone; they have
        priority over the run's `eval.env_params`. Raises ConfigError for unknown parameters.

        With `record`, the result is written as evaluation.json to the run directory, for reports and exports. It is not
        written if the directory has a newer policy, if `deterministic`, `max_steps` or `env_params` differ from the
        run's settings, or if evaluation.json has at least as many episodes already.
        """
        settings = self.eval_settings
        usual = (settings.deterministic, settings.max_steps)
        own = (deterministic in (None, usual[0])) and (max_steps in (None, usual[1])) and not env_params
        episodes = settings.episodes if episodes is None else episodes
        deterministic = settings.deterministic if deterministic is None else deterministic
        env = for_evaluation(self.env, settings.env_params, env_params or {})
        if max_steps is None:
            max_steps = self._episode_limit(env)
        key = evaluation_key(seed)
        with kept_programs():
            found = evaluate(self.agent, env, self.state.learner, key, episodes, deterministic, max_steps)
        if record and own and self._lacks_evaluation_of(episodes):
            record_evaluation(self, found)
        return found

    def _lacks_evaluation_of(self, episodes: int) -> bool:
        """Return True if the run directory has no evaluation of this policy with at least `episodes` episodes.

        False without a run directory, and if the directory has a newer policy.
        """
        if self.run_dir is None or newest_iteration(self.run_dir) != int(self.state.iteration):
            return False
        recorded = read_evaluation(self.run_dir).get("episodes", 0)
        return not (type(recorded) is int and recorded >= episodes)

    def _episode_limit(self, env: Env) -> int:
        """Return the number of steps after which an evaluation cuts episodes: `eval.max_steps`, if it is set.

        Otherwise it is MAX_STEPS (100,000) if episodes have ended by themselves in training, or there are no log rows.
        If episodes never end, it is the number of steps between the forced resets of training; without these,
        ENDLESS_STEPS (1,000) or the environment's `max_horizon`, whichever is smaller. After a training too short to
        tell, it is UNKNOWN_STEPS (10,000).
        """
        if self.eval_settings.max_steps is not None:
            return self.eval_settings.max_steps
        rows = self.history
        if not rows and self.run_dir is not None:  # a run that was loaded
            rows = list(rows_until(self.run_dir / ROWS, 2**63))
        period = steps_between_resets(self.state)
        ended: bool | None = None
        if backend_of(env).endless:
            ended = False
        elif not rows or any(has_ended(row, period) for row in rows):  # without rows nothing speaks against an end
            ended = True
        return episode_limit(env, ended, period, int(self.state.iteration) * self.state.num_steps)


def _env_name(env: Env) -> str:
    """Return the name of an environment; if it has none, that of its class or of the function that makes it."""
    inner: Any = getattr(env, "env", None)
    if inner is not None:  # compiled
        while getattr(inner, "env", None) is not None:  # a wrapper
            inner = inner.env
        return env.name or type(inner).__name__
    source: Any = backend_of(env).source if env.name == UNNAMED else None
    while isinstance(source, functools.partial):
        source = source.func
    name = str(getattr(source, "__name__", env.name))
    return env.name if name == "<lambda>" else name


# Entries of evaluation.json on training
TRAINED = ("steps_per_second", "train_seconds", "started_at", "compile_seconds", "stopped")


def result_of(run: TrainedRun, evaluation: Evaluation) -> dict[str, Any]:
    """Return scores of the evaluation, and steps, times and end of the run, as plain data."""
    trained = {
        "steps_per_second": run.steps_per_second,
        "train_seconds": run.train_seconds,
        "started_at": run.started_at,
        "compile_seconds": run.compile_seconds,
    }
    return {
        **evaluation.scores,
        "env_steps": run.env_steps,
        "total_steps": run.total_steps,
        "iterations": int(run.state.iteration),
        "run_dir": str(run.run_dir and relative(run.run_dir)),
        **(trained if run.history else {}),  # unknown where this call trained nothing
        **({"stopped": run.stopped} if run.history or run.stopped else {}),
    }


def record_evaluation(run: TrainedRun, evaluation: Evaluation) -> dict[str, Any]:
    """Write evaluation.json of the run directory, if there is one, and return its content; warn if the disk fails.

    The content has the run's id and the policy's iteration, so that it is not taken for an evaluation of a later
    policy.
    """
    result = result_of(run, evaluation)
    if run.run_dir is not None:
        before = {} if run.history else read_evaluation(run.run_dir, int(run.state.iteration))
        kept = {name: before[name] for name in TRAINED if name in before}  # which this call does not know
        result = kept | result | {"run_id": read_about(run.run_dir).get("id")}
        try:
            safe_files.write_text(run.run_dir / EVALUATION, json.dumps(finite(result), indent=1) + "\n")
        except OSError as error:  # a warning is enough: the result is returned, too
            warnings.warn(f"{run.run_dir / EVALUATION} could not be written: {error.strerror}", stacklevel=2)
    return result
