"""`ppax.score`, and scores of the rows of a suite: how each seed is trained, and its final policy evaluated."""

from __future__ import annotations

import dataclasses
import platform
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ppax import config
from ppax.agents.precision import decide_dtype, machine_dtype
from ppax.arrays import counter
from ppax.config import BestSettings, Built, FilmSettings, Run
from ppax.core.options import Config, Option, check_limits, check_value
from ppax.core.protocols import Agent
from ppax.core.types import ConfigError, PyTree
from ppax.core.unknown_names import refusing_unknown
from ppax.core.version import __version__
from ppax.devices.footprint import NotEnoughMemory
from ppax.devices.layout import WHERE_SAFE
from ppax.devices.platforms import rules
from ppax.devices.tracing import renewed
from ppax.envs import Env, EnvError, for_evaluation
from ppax.run.fit import fit_run
from ppax.run.provenance import versions_and_hardware
from ppax.run.restore import fresh_state, planned_iterations
from ppax.run.result import NumericalError
from ppax.scores import results
from ppax.scores.curves import draw_curve, draw_profile
from ppax.scores.normalised import normalised
from ppax.scores.results import FAILED, Score, SeedResult, fingerprint, with_members
from ppax.scores.suite import RETURN, SuiteRow, choose
from ppax.storage.cache import kept_programs
from ppax.training.backends import backend_of
from ppax.training.evaluation import Evaluation, evaluate, evaluation_key
from ppax.training.loop import make_key
from ppax.training.sweeps import start_sweep, sweep

TUNING_SEEDS, SCORE_SEEDS = range(100), range(1000, 2000)
SEEDS = {"compiled": 5, "host": 3}  # number of seeds by backend
COUNT = Option("seeds", int, limits={"low": 1, "high": len(SCORE_SEEDS)})
SEED = Option("seeds", int, limits={"low": 0, "high": 2**64 - 1})  # each of a list
EPISODES = 128
DTYPE = "compute_dtype"  # entry of a result: what compute_dtype `auto` stood for


@refusing_unknown
def score(
    target: str,
    seeds: int | Sequence[int] | None = None,
    episodes: int = EPISODES,
    options: Config | None = None,
) -> Score:
    """Train an environment or a preset on several seeds, and return the score of its final policies.

    `target` is what `ppax train` takes, or a row of the suite, as "L12-20"; an environment of the suite has the budget
    and the threshold of its first row. `seeds` is a number of seeds from SCORE_SEEDS (default: 5, in one program; 3
    where environments are on the host) or the seeds themselves; for tuning, use seeds below 100. The final policy of
    each seed is evaluated over `episodes` episodes. `options` override the settings, as in `ppax.build`; actions are
    sampled with `eval.deterministic` False. Raises ConfigError for an unknown name or an invalid value.
    """
    (row,) = choose([target])
    row = dataclasses.replace(row, options=config.overridden(row.options, options or {}))
    return measure(row, seeds, episodes)


def measure(
    row: SuiteRow,
    seeds: int | Sequence[int] | None = None,
    episodes: int = EPISODES,
    known: Score | None = None,
    keep: Callable[[Score], None] = lambda score: None,
    say: Callable[[str], None] = lambda text: None,
) -> Score:
    """Return the score of a row of the suite, trained on each of the seeds.

    `known` is an earlier score of the row: if its settings are the same, its seeds are not trained again. `seeds` and
    `episodes` are those of `ppax.score`. `keep` is called with the score so far whenever seeds are done, `say` with a
    line of text before seeds are trained. `eval.deterministic` among the options has priority over `row.sampled`.
    """
    check_limits("episodes", episodes, {"low": 1})
    mode = dict(config.flatten(row.options)).get("eval.deterministic")
    if mode is not None:
        row = dataclasses.replace(row, sampled=not mode)
    seeds = row.seeds if seeds is None else seeds
    mark = fingerprint(row, episodes, __version__)
    if known is None or known.fingerprint != mark:
        known = None
    elif not _missing(score_seeds(seeds, known.backend), known):
        keep(known)  # with the row's present threshold
        return _of_seeds(known, score_seeds(seeds, known.backend))
    built = config.build(row.run_config())
    backend = backend_of(built.env).name
    wanted = score_seeds(seeds, backend)
    missing = _missing(wanted, known)
    # all seeds of a row in one precision: that of the first, also where others are added on another machine
    dtype = known.about.get(DTYPE) if known else None
    if dtype not in ("float32", WHERE_SAFE):
        dtype = machine_dtype() if backend == "compiled" else "float32"
    built = built._replace(agent=decide_dtype(built.agent, dtype))
    about = {"ppax": __version__, "processor": processor(), DTYPE: dtype, **versions_and_hardware()}
    result = Score(row, built.run.env, backend, episodes, known.members if known else (), about, mark)
    how = "in one program" if backend == "compiled" else "one after the other"
    say(f"{row.name}: {row.target}, {built.run.total_steps:,} steps, {len(missing)} seeds {how}")
    for more in train_seeds(backend, built, missing, episodes, row.sampled, row.metric):
        result = dataclasses.replace(result, members=with_members(result.members, more))
        keep(result)
    return _of_seeds(result, wanted)


def _missing(seeds: Sequence[int], known: Score | None) -> list[int]:
    """Return those of `seeds` that the score `known` (None: there is none) does not have yet."""
    return [seed for seed in seeds if known is None or seed not in known.seeds]


def _of_seeds(result: Score, seeds: Sequence[int]) -> Score:
    """Return the score `result` reduced to the results of `seeds`."""
    kept = tuple(member for member in result.members if member.seed in seeds)
    return dataclasses.replace(result, members=kept)


def score_seeds(seeds: int | Sequence[int] | None, backend: str) -> tuple[int, ...]:
    """Return the seeds to train, in ascending order: those of the list `seeds`, or the first n of SCORE_SEEDS.

    n is `seeds` if that is a number. If `seeds` is None, n is the number of the protocol, which depends on `backend`,
    "compiled" or "host". Raises ConfigError for an invalid number, an invalid seed, an empty list, and a list with a
    seed that occurs twice.
    """
    given: Any = seeds.tolist() if isinstance(seeds, np.ndarray | np.generic) else seeds
    if not isinstance(given, list | tuple | range):
        count = check_value(COUNT, SEEDS[backend] if given is None else given)
        return tuple(SCORE_SEEDS[:count])
    own = [check_value(SEED, seed) for seed in given]
    if not own or len(set(own)) < len(own):
        raise ConfigError(f"seeds = {own}: must be at least one, and all different")
    return tuple(sorted(own))


class RowOutcome(NamedTuple):
    """Outcome of measuring a row of the suite: its score, or, if `score` is None, the error that prevented one."""

    row: SuiteRow
    score: Score | None
    error: str = ""

    @property
    def failed(self) -> bool:
        """Return whether the row misses its threshold, is a control with too high a score, or could not be measured.

        A negative control is a row whose score must stay low.
        """
        return self.score is None or self.score.status == FAILED


def score_rows(
    rows: Sequence[SuiteRow],
    out: Path,
    seeds: int | None = None,
    episodes: int = EPISODES,
    say: Callable[[str], None] = lambda text: None,
) -> list[RowOutcome]:
    """Measure the scores of all rows, except for seeds whose scores are in the folder `out`, and return the outcomes.

    Scores in `out` count only if they were measured with the same settings, episodes and version of ppax. New scores
    and learning curves are written to `out`, with a file for each row, so that a call after an interruption continues
    where the last call stopped; at the end also a performance profile of all rows. A missing library, a numerical
    fault, too little memory or an environment that fails ends only the measurement of its row.
    """
    out.mkdir(parents=True, exist_ok=True)
    outcomes = []
    for row in rows:
        try:
            known = results.load(row, out)
            score = measure(row, seeds, episodes, known, partial(results.save_score, out=out), say)
        except (ImportError, NumericalError, EnvError, NotEnoughMemory) as error:
            outcomes.append(RowOutcome(row, None, str(error)))
            say(f"{row.name}: {error}")
            continue
        outcomes.append(RowOutcome(row, score))
        _draw(score, out)
        say(f"{row.name}: IQM {score.statistics.iqm:.4g}, {score.status}")
    _draw_together([outcome.score for outcome in outcomes if outcome.score is not None], out)
    return outcomes


def _draw(score: Score, out: Path) -> None:
    """Write the learning curve of a score into the folder `out`, except for a negative control.

    Warns if matplotlib is missing.
    """
    if score.row.at_most is None:
        _or_warn(f"no learning curve of {score.row.name}", lambda: draw_curve(score, out / f"{score.row.name}.png"))


def _draw_together(scores: Sequence[Score], out: Path) -> None:
    """Write profile.png into the folder `out`: the performance profile of all scores that have a published reference.

    There is none for fewer than two of them. Warns if matplotlib is missing.
    """
    rows = [values for score in scores if (values := normalised(score)) is not None]
    if len(rows) > 1:
        _or_warn("no performance profile", lambda: draw_profile({"ppax": rows}, out / "profile.png"))


def _or_warn(without: str, draw: Callable[[], None]) -> None:
    """Draw a picture; where matplotlib is missing, warn, in the words `without`, that there is none."""
    try:
        draw()
    except ImportError as error:
        warnings.warn(f"{without}: {error}", stacklevel=4)


POINTS = 100  # most points of a learning curve
Play = Callable[[PyTree, int, bool], Evaluation]  # arguments: learner, seed, and whether actions are the mode


def train_seeds(
    backend: str, built: Built, seeds: Sequence[int], episodes: int, sampled: bool, metric: str = RETURN
) -> Iterator[tuple[SeedResult, ...]]:
    """Train and evaluate each seed, and yield tuples of results: those of the seeds that were trained together.

    If `sampled`, actions of the evaluation are sampled, else they are the mode of the policy. `metric` is what is
    averaged over the episodes: "return", or a metric of the environment; ConfigError for a metric that it does not
    have. `backend` is "compiled" (all seeds in one program) or "host" (one by one).
    """
    agent, env, run = built
    if run.init_from.run is not None:
        raise ConfigError("init_from.run: scores are of runs from random weights; leave it out")
    log = dataclasses.replace(run.log, console=False, tensorboard=False, to=())
    # every seed uses the whole budget
    run = dataclasses.replace(run, stop=None, best=BestSettings(), log=log, film=FilmSettings())
    eval_env = for_evaluation(env, run.eval.env_params)

    def play(learner: PyTree, seed: int, mode: bool) -> Evaluation:
        key = evaluation_key(seed)
        return evaluate(agent, eval_env, learner, key, episodes, mode, run.eval.max_steps)

    with kept_programs():
        yield from TRAIN[backend](Built(agent, env, run), seeds, play, not sampled, metric)


def _mean(evaluation: Evaluation, metric: str) -> float:
    """Return the mean of `metric` over the episodes of an evaluation; ConfigError for an unknown metric."""
    if metric == RETURN:
        return evaluation.mean_return
    if metric not in evaluation.mean_metrics:
        raise ConfigError(f"metric = {metric!r}: must be {', '.join((RETURN, *evaluation.mean_metrics))}")
    return evaluation.mean_metrics[metric]


def _column(metric: str) -> str:
    """Return the name under which log rows of training have `metric`, a metric of evaluations."""
    return "episode_return" if metric == RETURN else metric


def _together(
    built: Built, seeds: Sequence[int], play: Play, mode: bool, metric: str
) -> Iterator[tuple[SeedResult, ...]]:
    """Train all seeds in one program, and yield one tuple with the results of all of them.

    `play(learner, seed, mode)` evaluates a learner. The final policies take the mode of the action distribution if
    `mode`, else sampled actions. `metric` is the name of what is averaged over the episodes.
    """
    agent, env, run = built
    members = _filled(seeds)
    envs = for_members(env, len(members))
    states = _initial_states(agent, envs, run, members)
    random = [_mean(play(_of(states.learner, i), seed, False), metric) for i, seed in enumerate(seeds)]
    program = jax.jit(renewed(sweep), donate_argnames="states", compiler_options=rules().compiler_options)
    done, total, begin = 0, planned_iterations(env, run), time.perf_counter()
    curves: list[list[tuple[int, float]]] = [[] for _ in seeds]
    while done < total:
        count = min(max(1, total // POINTS), total - done)
        states, metrics = program(agent, envs, states, np.int32(count), np.int32(total))
        done += count
        means, iterations = np.asarray(metrics[_column(metric)]), np.asarray(states.iteration)
        env_steps = [counter.to_int(x) for x in np.asarray(states.env_steps)]
        for i, seed in enumerate(seeds):
            if iterations[i] < done:
                raise NumericalError(f"seed {seed}: iteration {iterations[i] + 1} is not finite")
            curves[i].append((env_steps[i], float(means[i])))
    seconds = (time.perf_counter() - begin) / len(seeds)
    played = [play(_of(states.learner, i), seed, mode) for i, seed in enumerate(seeds)]
    yield tuple(
        _member(seed, result, metric, untrained, curve[-1][0], seconds, curve)
        for seed, result, untrained, curve in zip(seeds, played, random, curves, strict=True)
    )


def _one_by_one(
    built: Built, seeds: Sequence[int], play: Play, mode: bool, metric: str
) -> Iterator[tuple[SeedResult, ...]]:
    """Train one seed after the other in environments on the host, yield the result of each, and close the environments.

    `play(learner, seed, mode)` evaluates a learner. The final policies take the mode of the action distribution if
    `mode`, else sampled actions. `metric` is the name of what is averaged over the episodes.
    """
    agent, run = built.agent, built.run
    env: Any = built.env
    try:
        for seed in seeds:
            own = dataclasses.replace(run, seed=seed)
            random = _mean(play(fresh_state(agent, env, own).learner, seed, False), metric)
            begin = time.perf_counter()
            trained = fit_run(agent, env, own)
            if trained.stopped:  # by Ctrl-C: nothing else stops this run
                raise KeyboardInterrupt
            seconds = time.perf_counter() - begin
            curve = [(int(row["env_steps"]), float(row[_column(metric)])) for row in trained.history]
            result = play(trained.state.learner, seed, mode)
            yield (_member(seed, result, metric, random, trained.env_steps, seconds, curve),)
    finally:
        env.close()


def _filled(seeds: Sequence[int]) -> list[int]:
    """Return `seeds`, repeated from the first one on until their number is a multiple of that of the CPU's JAX devices.

    So each device trains equally many. The caller drops the results of the repetitions.
    """
    devices = 1 if rules().mapped_members else min(len(jax.local_devices()), len(seeds))
    return [int(seed) for seed in np.resize(np.asarray(seeds), -(-len(seeds) // devices) * devices)]


def for_members(env: Env, members: int) -> Env:
    """Return `env` with its arrays repeated along a leading axis [members], one entry for each run of a sweep.

    The program `sweep` takes environments in this form.
    """
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (members, *np.shape(x))), env)


def _initial_states(agent: Agent, env: Any, run: Run, seeds: Sequence[int]) -> Any:
    keys = jnp.stack([make_key(seed) for seed in seeds])
    begin = partial(start_sweep, num_steps=run.num_steps, iterations_per_env_reset=run.iterations_per_env_reset)
    return jax.jit(begin, compiler_options=rules().run_once_options)(agent, env, keys=keys)


def _of(learners: PyTree, member: int) -> PyTree:
    """Return the learner of run number `member` among several trained together, on the first device.

    Leaves of `learners` have a leading axis over the runs. One compiled program can evaluate the learners one after the
    other, as each is on the same device.
    """
    return jax.device_put(jax.tree.map(lambda x: x[member], learners), jax.local_devices()[0])


def _member(
    seed: int,
    result: Evaluation,
    metric: str,
    random: float,
    env_steps: int,
    seconds: float,
    curve: list[tuple[int, float]],
) -> SeedResult:
    rounded = tuple((steps, float(f"{value:.6g}")) for steps, value in curve)
    return SeedResult(
        seed,
        _mean(result, metric),
        result.std_return,
        result.mean_length,
        random,
        env_steps,
        round(seconds, 3),
        rounded,
    )


TRAIN: dict[str, Callable[..., Iterator[tuple[SeedResult, ...]]]] = {"compiled": _together, "host": _one_by_one}
CPUINFO = Path("/proc/cpuinfo")  # on Linux, where `platform` does not know the model


def processor() -> str:
    """Return the model of this machine's processor; its architecture where the system does not name the model."""
    if CPUINFO.is_file():
        for line in CPUINFO.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
