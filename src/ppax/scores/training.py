"""Seeds of a row: all in one program where environments are compiled, one after the other on the host."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ppax.arrays import counter
from ppax.config import BestSettings, Built, FilmSettings, Run
from ppax.core.protocols import Agent
from ppax.core.types import ConfigError, PyTree
from ppax.devices.layout import compiler_options, run_once_options
from ppax.devices.platforms import rules
from ppax.devices.tracing import renewed
from ppax.envs import Env, for_evaluation
from ppax.run.fit import fit_run
from ppax.run.restore import fresh_state, planned_iterations
from ppax.run.result import NumericalError
from ppax.scores.results import Member
from ppax.storage.cache import kept_programs
from ppax.training.evaluation import Evaluation, evaluate, evaluation_key
from ppax.training.loop import make_key
from ppax.training.sweeps import start_sweep, sweep

POINTS = 100  # most points of a learning curve
Play = Callable[[PyTree, int, bool], Evaluation]  # arguments: learner, seed, and whether actions are the mode


def members_of(
    backend: str, built: Built, seeds: Sequence[int], episodes: int, sampled: bool
) -> Iterator[tuple[Member, ...]]:
    """Train and evaluate each seed; yield the members that are done at the same time."""
    agent, env, run = built
    if run.init_from.run is not None:
        raise ConfigError("init_from.run: scores are of runs from random weights; leave it out")
    log = dataclasses.replace(run.log, console=False, tensorboard=False, to=())
    # every seed uses the whole budget
    run = dataclasses.replace(run, stop=None, best=BestSettings(), log=log, film=FilmSettings())
    eval_env = for_evaluation(env, run.eval.env_params)

    def play(learner: PyTree, seed: int, mode: bool) -> Evaluation:
        key = evaluation_key(seed)
        return evaluate(agent, eval_env, learner, key, episodes, deterministic=mode)

    with kept_programs():
        yield from TRAIN[backend](Built(agent, env, run), seeds, play, not sampled)


def _together(built: Built, seeds: Sequence[int], play: Play, mode: bool) -> Iterator[tuple[Member, ...]]:
    """Train all seeds in one program."""
    agent, env, run = built
    members = _filled(seeds)
    envs = for_members(env, len(members))
    states = _initial_states(agent, envs, run, members)
    random = [play(_of(states.learner, i), seed, False).mean_return for i, seed in enumerate(seeds)]
    program = jax.jit(renewed(sweep), donate_argnames="states", compiler_options=compiler_options())
    done, total, begin = 0, planned_iterations(env, run), time.perf_counter()
    curves: list[list[tuple[int, float]]] = [[] for _ in seeds]
    while done < total:
        count = min(max(1, total // POINTS), total - done)
        states, metrics = program(agent, envs, states, np.int32(count), np.int32(total))
        done += count
        returns, iterations = np.asarray(metrics["episode_return"]), np.asarray(states.iteration)
        env_steps = [counter.to_int(x) for x in np.asarray(states.env_steps)]
        for i, seed in enumerate(seeds):
            if iterations[i] < done:
                raise NumericalError(f"seed {seed}: iteration {iterations[i] + 1} is not finite")
            curves[i].append((env_steps[i], float(returns[i])))
    seconds = (time.perf_counter() - begin) / len(seeds)
    played = [play(_of(states.learner, i), seed, mode) for i, seed in enumerate(seeds)]
    yield tuple(
        _member(seed, result, untrained, curve[-1][0], seconds, curve)
        for seed, result, untrained, curve in zip(seeds, played, random, curves, strict=True)
    )


def _one_by_one(built: Built, seeds: Sequence[int], play: Play, mode: bool) -> Iterator[tuple[Member, ...]]:
    """Train one seed after the other in environments on the host, and close them."""
    agent, run = built.agent, built.run
    env: Any = built.env
    try:
        for seed in seeds:
            own = dataclasses.replace(run, seed=seed)
            random = play(fresh_state(agent, env, own).learner, seed, False).mean_return
            begin = time.perf_counter()
            trained = fit_run(agent, env, own)
            if trained.stopped:  # by Ctrl-C: nothing else stops this run
                raise KeyboardInterrupt
            seconds = time.perf_counter() - begin
            curve = [(int(row["env_steps"]), float(row["episode_return"])) for row in trained.history]
            result = play(trained.state.learner, seed, mode)
            yield (_member(seed, result, random, trained.env_steps, seconds, curve),)
    finally:
        env.close()


TRAIN: dict[str, Callable[..., Iterator[tuple[Member, ...]]]] = {"compiled": _together, "host": _one_by_one}


def _filled(seeds: Sequence[int]) -> list[int]:
    """Repeat seeds so that each of the CPU's devices trains as many members; the copies are dropped."""
    devices = 1 if rules().mapped_members else min(len(jax.local_devices()), len(seeds))
    return [int(seed) for seed in np.resize(np.asarray(seeds), -(-len(seeds) // devices) * devices)]


def for_members(env: Env, members: int) -> Env:
    """Repeat the arrays of an environment along a leading axis [S]: `sweep` takes those of another size for values."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (members, *np.shape(x))), env)


def _initial_states(agent: Agent, env: Any, run: Run, seeds: Sequence[int]) -> Any:
    keys = jnp.stack([make_key(seed) for seed in seeds])
    begin = partial(start_sweep, num_steps=run.num_steps, iterations_per_env_reset=run.iterations_per_env_reset)
    return jax.jit(begin, compiler_options=run_once_options())(agent, env, keys=keys)


def _of(learners: PyTree, member: int) -> PyTree:
    """Learner of one member, on the first device, so that one program evaluates all."""
    return jax.device_put(jax.tree.map(lambda x: x[member], learners), jax.local_devices()[0])


def _member(
    seed: int, result: Evaluation, random: float, env_steps: int, seconds: float, curve: list[tuple[int, float]]
) -> Member:
    rounded = tuple((steps, float(f"{value:.6g}")) for steps, value in curve)
    return Member(
        seed,
        result.mean_return,
        result.std_return,
        result.mean_length,
        random,
        env_steps,
        round(seconds, 3),
        rounded,
    )
