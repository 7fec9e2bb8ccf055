"""Benchmark of a run on this machine: steps per second, time of each stage, advice, the fastest program layout."""

from __future__ import annotations

import dataclasses
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax

from ppax.agents.precision import in_training, products_of
from ppax.core.types import Batch, Rollout, TrainState
from ppax.devices import sharding
from ppax.devices.footprint import peak_memory_mb
from ppax.devices.layout import Program
from ppax.devices.platforms import bfloat16_unit, rules
from ppax.devices.sharding import SAME, SPLIT
from ppax.devices.tracing import renewed
from ppax.envs import Env, require_native
from ppax.envs.vector import VectorEnv
from ppax.ppo.batches import cut, next_values
from ppax.ppo.ppo import PPO
from ppax.training.backends import backend_of, compile
from ppax.training.collection import collect
from ppax.training.host import Clock, for_overlap
from ppax.training.loop import check_sizes, num_devices, start

SMALL = 512  # rows of a minibatch: below, the overhead of starting operations dominates
WORKER_SECONDS = 5e-4  # step of all environments: above, worker processes gain more than their messages cost
WAITING = 0.2  # share of updates, or of the rest, from which doing both at once gains
SET_UP = 2.0  # seconds: a first iteration that takes less may be mostly one-time setup
GAIN = 1.03  # least speedup at which a layout is chosen: less is measurement noise
STEPS = jax.sharding.PartitionSpec(None, sharding.AXIS)
COLLECTED = Rollout(STEPS, SPLIT, STEPS, SPLIT, SPLIT)  # type: ignore[arg-type]  # sharded axes


def say_nothing(stage: str) -> None:
    """Do nothing: the default of the argument `say`, which `measure` and `tune` call with the name of each stage."""


def measure(
    agent: PPO,
    env: Env,
    num_steps: int,
    seconds: float = 5.0,
    say: Callable[[str], None] = say_nothing,
    overlap: int = 0,
) -> BenchReport:
    """Return the speed of a run and the time of its stages, measured for about `seconds`.

    Compilation and the first iteration are not part of `seconds`; but if the first iteration takes at least `seconds`
    and at least SET_UP (2 seconds), it is the whole measurement. `num_steps` is the length of a rollout. `say` is
    called with the name of each stage at its start. With `overlap` = 1, rollouts of host environments are collected
    during updates. Raises ConfigError where agent, environment and `num_steps` do not fit each other.

    Stages of a compiled run: rollout, targets, shuffle, gradient steps. On the host: stepping (time that the loop waits
    for environments), policy, transfer, update, recording.
    """
    check_sizes(agent, env, num_steps)
    agent = for_overlap(agent, env, num_steps, overlap)
    runner = Runner(agent, env, num_steps, say, overlap)
    say("measuring")
    times = rounds(runner, seconds)
    iteration = statistics.median(times)
    devices, rows = num_devices(agent, env, num_steps), num_steps * env.num_streams
    minibatch = agent.minibatch_size(num_steps, env.num_streams) * agent.sequence_length(num_steps)
    if runner.clock is not None:
        shares = runner.clock.shares(runner.spent)
        text = host_advice(shares, iteration / num_steps, minibatch, env, overlap)
    else:
        say("measuring stages")
        stages = dict(_stages(agent, require_native(env, "", ""), runner.state, seconds / 10))
        stages["gradient steps"] = max(0.0, iteration - sum(stages.values()))
        whole = sum(stages.values())
        shares = {name: duration / whole for name, duration in stages.items()}
        rounding = products_of(agent, env.num_streams) == "float32" and bfloat16_unit()
        text = advice(shares, minibatch, env.num_envs, devices, rounding)
    speed, compiled = rows / iteration, runner.program.compile_seconds
    return BenchReport(speed, iteration, shares, compiled, peak_memory_mb(), devices, text)


class BenchReport(NamedTuple):
    """Speed and cost of one iteration of training, measured on this machine."""

    steps_per_second: float  # autoreset steps included
    seconds: float  # of one iteration, median
    shares: dict[str, float]  # {stage: share of the time}; they add up to 1
    compile_seconds: float
    peak_memory_mb: float
    devices: int
    advice: str


def rounds(runner: Runner, seconds: float) -> list[float]:
    """Return seconds per iteration, one number for each round of measurement; all rounds take about `seconds` together.

    If the first iteration of `runner` took at least `seconds` and at least SET_UP (2 seconds), it is the only round.
    """
    if runner.first >= max(seconds, SET_UP):
        return [runner.first]
    runner.restart()  # without one-time setup
    count = 1
    times: list[float] = []
    while not times or runner.spent + times[-1] * count <= seconds:
        duration = runner.seconds(count)
        if duration < seconds / 10:  # too short for an exact time
            count *= 2
        else:
            times.append(duration / count)
    return times


class Runner:
    """Compiled training program together with its current state, whose iterations can be timed."""

    def __init__(
        self, agent: PPO, env: Env, num_steps: int, say: Callable[[str], None] = say_nothing, overlap: int = 0
    ):
        self.agent, self.env = agent, env
        say("compiling")
        self.state = start_compiled(agent, env, num_steps)
        self.program: Any = compile(agent, env, self.state)
        self.program.overlap = overlap
        self.spent = 0.0  # seconds spent on iterations
        self.clock: Clock | None = backend_of(env).clock(self.program)
        say("first iteration")
        self.first = self.seconds(1)  # includes one-time setup

    def seconds(self, iterations: int) -> float:
        """Run `iterations` iterations of training, and return their wall time in seconds."""
        begin = time.perf_counter()
        self.state, metrics = self.program(self.agent, self.env, self.state, iterations, 2**31 - 1)
        jax.block_until_ready((self.state, metrics))
        duration = time.perf_counter() - begin
        self.spent += duration
        return duration

    def restart(self) -> None:
        """Set the runner's measured times to 0, so that iterations until now do not count."""
        self.spent = 0.0
        if self.clock is not None:
            self.clock.restart()

    def iterations_in(self, seconds: float) -> int:
        """Return the number of iterations, at least 1, that take about `seconds`; some are run to find out."""
        count, duration = 1, self.seconds(1)
        while duration < seconds / 8:
            count *= 2
            duration = self.seconds(count)
        return max(1, round(count * seconds / duration))


def start_compiled(agent: PPO, env: Env, num_steps: int) -> TrainState:
    """Return the state before the first iteration, as `ppax.start` does, but made by one compiled program."""
    state: TrainState = jax.jit(renewed(start), static_argnames="num_steps")(agent, env, num_steps, jax.random.key(0))
    return state


def _stages(agent: PPO, env: VectorEnv, state: TrainState, seconds: float) -> Iterator[tuple[str, float]]:
    """Yield (name, seconds of one execution) of each part of an iteration before the gradient steps.

    Each is compiled as a program of its own; measuring it takes at most about `seconds`.
    """
    agent = in_training(agent)  # dtypes as in an iteration
    devices, num_steps = num_devices(agent, env, state.num_steps), state.num_steps
    own = dataclasses.replace(env, num_envs=env.num_envs // devices)

    def compiled(function: Callable[..., Any], in_specs: Any, out_specs: Any, *arguments: Any) -> tuple[float, Any]:
        program = sharding.split(function, devices, in_specs, out_specs) if devices > 1 else function
        return _time(jax.jit(program), seconds, *arguments)

    def act(learner: Any, actor: Any) -> Rollout:
        return collect(agent, own, learner, actor, num_steps, jax.random.key(0)).rollout

    duration, rollout = compiled(act, (SAME, SPLIT), COLLECTED, state.learner, state.actor)
    yield "rollout", duration

    def targets(rollout: Rollout) -> Batch:
        next_value = jax.vmap(next_values, (1, 0), 1)(rollout.steps, rollout.last_value)
        estimated = jax.vmap(agent.advantage, (1, 1, None), 1)(rollout.steps, next_value, agent.gamma)
        return cut(rollout.steps, estimated, agent.sequence_length(num_steps))

    duration, batch = compiled(targets, (COLLECTED,), SAME, rollout)
    yield "targets", duration
    duration, _ = _time(jax.jit(lambda batch: agent.minibatch(batch, jax.random.key(0))), seconds, batch)
    yield "shuffle", agent.num_epochs * duration


def _time(program: Callable[..., Any], seconds: float, *arguments: Any) -> tuple[float, Any]:
    """Return the median seconds of a call `program(*arguments)`, and its result.

    The median is over ten calls, or over as many as fit into `seconds`; the first call, which compiles, is not counted.
    """
    result = jax.block_until_ready(program(*arguments))
    times: list[float] = []
    while not times or (len(times) < 10 and sum(times) < seconds):
        begin = time.perf_counter()
        jax.block_until_ready(program(*arguments))
        times.append(time.perf_counter() - begin)
    return statistics.median(times), result


def tune(
    agent: PPO, env: Env, num_steps: int, seconds: float = 100.0, say: Callable[[str], None] = say_nothing
) -> TunedProgram:
    """Return the fastest program layout found: first the best number of devices, then chunk_rows, then unroll.

    A layout is how the compiled program is split over devices and loops: `chunk_rows` is the number of rows in a chunk
    of gradient accumulation, `unroll` the number of steps in one iteration of the rollout's compiled loop. Each
    candidate is timed in alternation with the best layout so far, and `say` is called with its name; the search takes
    at most about `seconds`. Raises ConfigError for environments on the host, whose speed depends on stepping and
    acting.
    """
    env = require_native(env, "--tune", "leave it out; `ppax bench` says where the time goes")
    check_sizes(agent, env, num_steps)
    deadline = time.monotonic() + seconds
    best = Runner(agent, env, num_steps)
    count, chosen, speedup = best.iterations_in(0.4), agent.program, 1.0
    slowest = best.program.compile_seconds + 4.0
    for name, values in _candidates(agent, env, num_steps):
        for value in values:
            program = dataclasses.replace(chosen, **{name: value})
            if program == chosen or time.monotonic() + slowest > deadline:
                continue
            say(f"trying {name} = {value}")
            begin = time.monotonic()
            other = Runner(dataclasses.replace(agent, program=program), env, num_steps)
            ratio = statistics.median(best.seconds(count) / other.seconds(count) for _ in range(4))
            slowest = max(slowest, time.monotonic() - begin)
            if ratio > GAIN:
                best, chosen, speedup = other, program, speedup * ratio
    return TunedProgram(chosen, speedup)


class TunedProgram(NamedTuple):
    """Program layout chosen by `tune`, and its speedup over the layout of the agent, measured side by side."""

    program: Program
    speedup: float


def _candidates(agent: PPO, env: VectorEnv, num_steps: int) -> Iterator[tuple[str, list[int]]]:
    length = agent.sequence_length(num_steps)
    minibatch = agent.minibatch_size(num_steps, env.num_streams)
    yield "devices", [d for d in range(1, sharding.available() + 1) if env.num_envs % d == 0 and minibatch % d == 0]
    yield "chunk_rows", [rows for rows in (256, 512, 1024, 2048, 8192, 2**20) if rows <= 2 * minibatch * length]
    yield "unroll", sorted({1, 2, 4, rules().unroll})


def host_advice(shares: dict[str, float], step_seconds: float, minibatch_rows: int, env: Any, overlap: int = 0) -> str:
    """Return one sentence of advice on making a run with host environments faster.

    `shares` is each stage's share of the time, `step_seconds` is the time of an iteration divided by its num_steps, and
    `overlap` is 1 where rollouts are collected during updates.
    """
    cores, stepping = sharding.num_cores(), shares["stepping"] * step_seconds
    if not overlap and cores > 1 and min(shares["update"], 1.0 - shares["update"]) >= WAITING:
        return (
            f"Environments wait for updates for {shares['update']:.0%} of the time: overlap = 1 steps them meanwhile, "
            'with a policy that is one update behind (page "Your environment in Python").'
        )
    each = f"{stepping / env.num_envs * 1e6:,.0f} us for each environment"
    acting, learning = shares["policy"] + shares["recording"], shares["transfer"] + shares["update"]
    if shares["stepping"] >= max(acting, learning):
        # with worker processes, stepping is only the time that the loop waits for them
        apart = env.settings.vectorization != "sync"
        short = stepping < (WORKER_SECONDS / 2 if apart else WORKER_SECONDS)
        if apart and short:
            return f"Steps are short ({each}), and messages to worker processes cost more: leave out vectorization."
        if apart or env.host.unique or short or cores == 1:
            return f"The environments take most of the time ({each}): faster ones are what would help."
        return (
            f'The environments take most of the time ({each}): vectorization = "async" steps them in worker processes '
            f"on {cores} cores, while the policy acts."
        )
    if acting > learning:
        return (
            f"Acting takes most of the time, nearly as much for one environment as for many: more than {env.num_envs} "
            "environments give more steps a second, or a smaller network."
        )
    return advice({"rollout": 0.0}, minibatch_rows, env.num_envs, cores)


def advice(shares: dict[str, float], minibatch_rows: int, num_envs: int, devices: int, rounding: bool = False) -> str:
    """Return one sentence of advice on making a compiled run faster.

    `shares` is each stage's share of the time, `devices` is the number of devices that the program uses, and `rounding`
    says whether matrix products in bfloat16 would be faster.
    """
    cores = sharding.num_cores()
    if jax.default_backend() == "cpu" and devices < cores and minibatch_rows >= 2 * SMALL and num_envs % cores:
        better = math.ceil(num_envs / cores) * cores
        return f"Only {devices} of {cores} cores is used: num_envs = {better} can be split over all, {num_envs} cannot."
    if shares["rollout"] > 0.5:
        return "The environment and acting take most of the time: a cheaper environment or network is what would help."
    if minibatch_rows < SMALL:
        return (
            f"Minibatches of {minibatch_rows} rows are small: starting operations takes most of the time, so more "
            f"environments or fewer minibatches give more steps a second{_one_thread(devices, cores)}."
        )
    faster = "a smaller network or fewer epochs is what would make it faster."
    if rounding:
        faster = (
            '`agent.compute_dtype = "bfloat16"` makes products faster on this processor (page "Speed"); else ' + faster
        )
    return f"Gradient steps take most of the time: {faster}"


def _one_thread(devices: int, cores: int) -> str:
    """Return advice, as text, to run a program on one device with one XLA thread; "" where this would not help."""
    if jax.default_backend() != "cpu" or devices > 1 or cores == 1 or sharding.THREADS in os.environ:
        return ""
    return f'; so does one thread for a network of small layers, {sharding.THREADS}=1 in the environment (page "Speed")'
