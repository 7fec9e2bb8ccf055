"""Settings of a run without its agent: the fields of run files outside `[agent]` and `[groups]`."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping
from typing import Any

from ppax.agents.self_play import Pool
from ppax.config import group_tables
from ppax.core.options import Config, hints_of, interval
from ppax.core.parts import PATH, Interval, slot, slot_list
from ppax.core.protocols import LoggerPart, Row, Schedule
from ppax.core.types import ConfigError, LearnerState, static
from ppax.envs import TIMEOUT, VECTORIZATIONS, AdaptiveRanges
from ppax.loggers import TensorBoard
from ppax.ppo.schedules import Constant

NO_POOL = Pool()
CONSTANT = Constant()


@dataclasses.dataclass(frozen=True)
class Log:
    """Settings of a run's log rows, checkpoints and console line."""

    every: Interval | None = static(
        'iterations between log rows, or "50k steps"; none: about 1 % of the run, at most 2^18 steps; host '
        "environments also log after log.checkpoint_seconds",
        default=None,
        low=1,
        high=2**31 - 1,
        interval=True,
    )
    checkpoint_seconds: float = static(
        "minimum seconds between checkpoints; they are saved at log rows", default=30.0, low=0.0
    )
    checkpoint_every: Interval | None = static(
        'iterations between checkpoints, or "50k steps", each with a log row; none: by log.checkpoint_seconds',
        default=None,
        low=1,
        high=2**31 - 1,
        interval=True,
    )
    keep: int | None = static(
        "number of checkpoints that are kept, the newest; all (or none): no limit", default=3, low=1, none="all"
    )
    tensorboard: bool = static("also write TensorBoard event files", default=False)
    console: bool = static("show a progress line with steps per second and episode return", default=True)
    to: tuple[LoggerPart, ...] = slot_list("logger", "further loggers: tables [[log.to]], each with its part")

    @property
    def parts(self) -> tuple[LoggerPart, ...]:
        """Further loggers of the run: those of option `to`, and TensorBoard where `tensorboard` is set; each once."""
        return tuple(dict.fromkeys([*self.to, *([TensorBoard()] if self.tensorboard else [])]))


@dataclasses.dataclass(frozen=True)
class FilmSettings:
    """Settings of films of the policy during training. Each shows one episode, played in a separate environment."""

    every: Interval | None = static(
        'iterations between films of one episode, or "50k steps", from the untrained policy on; each is made at a log '
        "row and written to films/ of the run directory; none: no films",
        default=None,
        low=1,
        high=2**31 - 1,
        interval=True,
    )
    max_steps: int = static("longest film in steps of the environment", default=500, low=1)


@dataclasses.dataclass(frozen=True)
class EvalSettings:
    """Settings for evaluating the policy over whole episodes: after training, and with `every` also during it."""

    every: Interval | None = static(
        'iterations between evaluations during training, or "50k steps", from the untrained policy on; their means are '
        "columns of the log rows; none: only after training",
        default=None,
        low=1,
        high=2**31 - 1,
        interval=True,
    )
    episodes: int = static(
        "number of whole episodes of each evaluation, during training and after it, on environments separate from "
        "training; `ppax evaluate RUN --episodes N` evaluates the final policy over others",
        default=128,
        low=1,
    )
    max_steps: int | None = static(
        "steps after which an episode of an evaluation is truncated; none: 100000; if episodes never end, the steps "
        "between two forced resets, or 1000 without resets; 10000 until it is known whether they end",
        default=None,
        low=1,
        high=2**31 - 1,
    )
    deterministic: bool = static(
        "evaluate with the mode of the action distribution; otherwise with sampled actions", default=True
    )
    env_params: Config = dataclasses.field(default_factory=dict)  # added to those of training, which they override


@dataclasses.dataclass(frozen=True)
class BestSettings:
    """Settings for saving the best policy of a run, by a metric of its log rows, besides the last policy.

    `metric` may also be a function that gets a log row, a dict of numbers by name, and returns a number; NaN means that
    the row does not count. The function must be importable, because the run file has its import path.
    """

    # in Python also a function Row -> float
    metric: str | Callable[[Row], float] | None = static(
        "metric of the log rows that selects the best policy, as episode_return, or import path of a function of a log "
        "row that returns a number, as my_package:score; none: save no best policy",
        default=None,
        paths=True,
    )
    mode: str = static(
        "max: higher values of best.metric are better; min: lower values are better",
        default="max",
        choices=("max", "min"),
    )


@dataclasses.dataclass(frozen=True)
class InitFrom:
    """Settings of a warm start: the run begins with weights and statistics of another run, `run`.

    Seed and environments are not taken from there.
    """

    # in Python also a Path, a TrainedRun or a TrainState (run/warm_start.py)
    run: str | object | None = static(
        "run directory, or bundle of ppax export (hf://OWNER/NAME: on the Hub), whose learner this run starts from, "
        "--init-from RUN for short; none: random weights",
        default=None,
        outside=PATH,
    )
    keep: tuple[str, ...] = static(
        "fields of the learner that are taken; the others start anew. params: weights; obs_stats, reward_stats: "
        "statistics of normalisation; critic: PopArt's statistics; opt_state: optimiser state; extensions: their "
        "networks, statistics and adapted numbers",
        default=("params", "obs_stats", "reward_stats", "critic"),
        choices=LearnerState._fields,
    )
    best: bool = static("start from the best policy that the other run kept (best.metric), not the last", default=False)
    partial: bool = static(
        "where the learners differ, take the arrays of equal name and shape; otherwise a difference is refused",
        default=False,
    )
    observations: tuple[str, ...] = static(
        "changed observations: for each number of this run's observation, in order, its index in the other run's "
        "observation, or new: 0:4 new:3 is 4 old numbers and 3 new ones. Of a Dict, only the entries that differ: "
        "ENTRY=new, ENTRY=OLDNAME, ENTRY=0:4 ENTRY=new:3. New numbers have weights 0. Left out: the same observations",
        default=(),
    )
    actions: tuple[str, ...] = static(
        "changed actions, Discrete or elements of a Box: for each action of this run, in order, its index among the "
        "other run's actions, or new, as 0:2 new. Left out: the same actions",
        default=(),
    )
    new_action_probability: float = static(
        "upper bound of the probability of all new Discrete actions together, in the first policy",
        default=0.01,
        above=0.0,
        high=1.0,
    )


ARGUMENTS = {"best": BestSettings, "log": Log, "evaluation": EvalSettings, "film": FilmSettings}  # of `fit`


def chosen(**given: Any) -> dict[str, Any]:
    """Return the settings passed to `fit` as `best`, `log`, `evaluation` and `film`, by the names of `Run`'s fields.

    None is replaced by the default settings. Raises ConfigError for a value of another class than the settings class.
    """
    return {"eval" if name == "evaluation" else name: _chosen(name, value) for name, value in given.items()}


def _chosen(name: str, given: Any) -> Any:
    kind = ARGUMENTS[name]
    if given is None:
        return kind()
    if isinstance(given, kind):
        return given
    first = dataclasses.fields(kind)[0].name
    options = f"{first}=..."
    if isinstance(given, Mapping):
        options = ", ".join(f"{key}={value!r}" for key, value in given.items())
    elif type(given) in typing.get_args(hints_of(kind)[first]):
        options = f"{first}={given!r}"
    raise ConfigError(f"{name} = {given!r}: write {name}=ppax.{kind.__name__}({options})")


@dataclasses.dataclass(frozen=True)
class Run:
    """Settings of a run: environment, sizes, seed, logging, evaluation; the agent is separate."""

    env: str = static("environment: a built-in name such as CartPole-v1, or SUITE/ID", default="CartPole-v1")
    preset: str | None = static(
        "preset (`ppax presets`) whose settings the run begins from; none: the defaults by the kind of environment "
        '(page "Which settings do I get?"). Left out: the preset with the name of the environment, where there is one',
        default=None,
    )
    num_envs: int = static("number of parallel environments", default=64, low=1)
    num_steps: int = static("rollout length: steps of each environment per iteration", default=128, low=1)
    total_steps: int = static(
        "length of training in steps, summed over environments and agents; autoreset steps count too; rounded up to "
        "whole rollouts",
        default=500_000,
        low=1,
    )
    seed: int = static(
        "random seed of weights, environments, actions and minibatches", default=0, low=0, high=2**64 - 1
    )
    action_repeat: int = static(
        "action repeat: times that each action is applied; the repeats count as one step", default=1, low=1
    )
    vectorization: str = static(
        "execution of host environments: sync steps them in this process, async in worker processes, ray in actors of "
        "a Ray cluster",
        default="sync",
        choices=VECTORIZATIONS,
    )
    timeout: float = static(
        "seconds in which a worker process or actor of host environments must answer a step", default=TIMEOUT, above=0.0
    )
    overlap: int = static(
        "host environments: 1 collects each rollout during the update from the previous rollout, with a policy that is "
        "one update behind; 0: rollouts and updates take turns",
        default=0,
        low=0,
        high=1,
    )
    info_metrics: tuple[str, ...] | None = static(
        "entries of info at the last step of an episode that are logged; none: is_success, if a first step with a "
        "fixed seed gives it",
        default=None,
    )
    env_params: Config = dataclasses.field(default_factory=dict)  # parameters of the environment, as `make` takes them
    clip_actions: tuple[float, ...] | None = static(
        "clip continuous actions to [low, high], or to [-x, x] for one number x; none: to the bounds of their space",
        default=None,
        bounds=True,
    )
    schedule: Schedule = slot(
        "schedule",
        "annealing of numbers of the environment over training, or ranges that adapt to the policy",
        default=CONSTANT,
        first={"constant": Constant, "adaptive": AdaptiveRanges},
    )
    iterations_per_env_reset: int | None = static(
        "iterations between forced resets of all environments, which truncate episodes; none or below 1: never",
        default=None,
        low=-(2**31),
        high=2**31 - 1,
    )
    stagger: int = static(
        "truncate the first episode of each environment at a random length, so that environments do not end their "
        "episodes all at once. true: of at most the time limit; a number: of at most so many steps. Evaluations play "
        "whole episodes",
        default=False,
        low=2,
        high=2**31 - 2,
        switch=True,
    )
    agent_ids: bool = static("each agent observes its own agent index", default=False)
    central_critic: bool = static(
        "centralised critic: it observes the joint observation of all agents, actors only their own", default=False
    )
    agents: str = static(
        f"parameter sharing: {group_tables.AGENTS}",
        default="shared",
        choices=group_tables.SHARING,
    )
    stop: str | None = static(
        'early stopping condition, as "episode_return >= 475 or episode_return stops rising for 20"', default=None
    )
    best: BestSettings = BestSettings()
    self_play: Pool = NO_POOL
    log: Log = Log()
    eval: EvalSettings = EvalSettings()
    film: FilmSettings = FilmSettings()
    init_from: InitFrom = InitFrom()

    def following(self) -> Run:
        """Return the run settings for a process other than the leader (process 0): without loggers and films."""
        silent = dataclasses.replace(self.log, console=False, to=(), tensorboard=False)
        return dataclasses.replace(self, log=silent, film=FilmSettings())


INTERVALS = ("log", "eval", "film", "self_play")  # tables of a run with intervals


def in_iterations(run: Run, steps: int) -> Run:
    """Return `run` with every interval as a number of iterations; one iteration has `steps` environment steps.

    An interval in steps, such as "50k steps", becomes the nearest number of iterations, at least 1. Raises ConfigError
    for a text that is no interval.
    """
    return dataclasses.replace(
        run, **{table: part_in_iterations(getattr(run, table), table, steps) for table in INTERVALS}
    )


def part_in_iterations(part: Any, path: str, steps: int) -> Any:
    """Return the settings `part` with every interval as a number of iterations, each of `steps` environment steps.

    An interval such as "50k steps" becomes the nearest number of iterations, at least 1. Raises ConfigError for a text
    that is no interval; `path` is the name of the settings' table for its message.
    """
    counts = {}
    for field in intervals_of(part):
        if isinstance(getattr(part, field), str):
            value = interval(f"{path}.{field}", getattr(part, field))
            counts[field] = max(1, round(int(value.partition(" ")[0]) / steps)) if isinstance(value, str) else value
    return dataclasses.replace(part, **counts) if counts else part


def intervals_of(part: Any) -> list[str]:
    """Return the names of the fields of a dataclass that are intervals, numbers of iterations such as `log.every`."""
    return [field.name for field in dataclasses.fields(part) if field.metadata.get("interval")]


def require_within(run: Run, total: int) -> None:
    """Raise ConfigError if an interval of `run` is longer than the run of `total` iterations, and so has no effect."""
    for table in INTERVALS:
        for field in intervals_of(getattr(run, table)):
            every = getattr(getattr(run, table), field)
            if every is not None and every > total:
                raise ConfigError(
                    f"{table}.{field} = {every} iterations: the run has {total}, each of num_envs * agents * num_steps "
                    f"steps; must be at most {total}, or left out"
                )
