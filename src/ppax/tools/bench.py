"""How fast one run is on this machine, where its time goes, and which layout of the program is fastest."""

from __future__ import annotations

import dataclasses
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax

from ppax.collection import collect
from ppax.envs import Env, HostEnv, require_native
from ppax.envs.vector import VectorEnv
from ppax.host import Clock, HostTraining
from ppax.ppo import PPO
from ppax.program import sharding
from ppax.program.compilation import compile
from ppax.program.layout import Program
from ppax.program.sharding import SAME, SPLIT
from ppax.training import check_sizes, num_devices, start
from ppax.types import Batch, Rollout, TrainState

SMALL = 512  # rows: below, starting operations costs more than what they do
WORKER_SECONDS = 5e-4  # a step of all environments, from which on worker processes pay for their messages
CPU_INFO = Path("/proc/cpuinfo")  # Linux
SET_UP = 2.0  # seconds: a first iteration that takes less may be mostly what is set up once
GAIN = 1.03  # a layout must be this much faster to be chosen: less is noise
STEPS = jax.sharding.PartitionSpec(None, sharding.AXIS)
COLLECTED = Rollout(STEPS, SPLIT, STEPS)  # type: ignore[arg-type]  # which axis of a rollout the devices share


def quiet(stage: str) -> None:
    """Say nothing of a stage."""


class BenchReport(NamedTuple):
    """What one iteration costs."""

    steps_per_second: float  # rows: autoreset steps included
    seconds: float  # of one iteration, median
    shares: dict[str, float]  # of its stages: add up to 1
    compile_seconds: float
    peak_memory_mb: float
    devices: int
    advice: str


class Choice(NamedTuple):
    """A layout of the program, and how much faster than the rule's it was, measured side by side."""

    program: Program
    speedup: float


class Runner:
    """One compiled program and the state that it carries on."""

    def __init__(self, agent: PPO, env: Env, num_steps: int, say: Callable[[str], None] = quiet):
        self.agent, self.env = agent, env
        say("compiling")
        self.state = begin(agent, env, num_steps)
        self.program: Any = compile(agent, env, self.state)
        self.spent = 0.0  # on iterations
        self.clock: Clock | None = None
        if isinstance(self.program, HostTraining):
            assert isinstance(env, HostEnv)
            self.clock = Clock(self.program, env)
        say("first iteration")
        self.first = self.seconds(1)  # pays for what is set up once, too

    def seconds(self, iterations: int) -> float:
        """Wall time of so many iterations."""
        begin = time.perf_counter()
        self.state, metrics = self.program(self.agent, self.env, self.state, iterations, 2**31 - 1)
        jax.block_until_ready((self.state, metrics))
        taken = time.perf_counter() - begin
        self.spent += taken
        return taken

    def restart(self) -> None:
        """Forget the time of all iterations so far."""
        self.spent = 0.0
        if self.clock is not None:
            self.clock.restart()

    def iterations_in(self, seconds: float) -> int:
        """How many iterations take about `seconds`."""
        count, taken = 1, self.seconds(1)
        while taken < seconds / 8:
            count *= 2
            taken = self.seconds(count)
        return max(1, round(count * seconds / taken))


def measure(
    agent: PPO, env: Env, num_steps: int, seconds: float = 5.0, say: Callable[[str], None] = quiet
) -> BenchReport:
    """Run some iterations, about `seconds`, and its stages one by one. Raises ConfigError for sizes that do not fit.

    Compilation and the first iteration come before; where that one takes longer than `seconds` (and SET_UP), it
    is all that is measured. `say` gets the name of each stage of the measurement as it begins.

    Stages of a compiled run: rollout, targets, shuffle, gradient steps. On the host: stepping (what the loop waits
    for), policy, transfer, update, and recording.
    """
    check_sizes(agent, env, num_steps)
    runner = Runner(agent, env, num_steps, say)
    say("measuring")
    times = rounds(runner, seconds)
    iteration = statistics.median(times)
    devices, rows = num_devices(agent, env, num_steps), num_steps * env.num_streams
    minibatch = rows // agent.minibatch.num_minibatches
    if runner.clock is not None:
        assert isinstance(env, HostEnv)
        shares = runner.clock.shares(runner.spent)
        text = host_advice(shares, iteration / num_steps, minibatch, env)
    else:
        say("measuring stages")
        stages = dict(_stages(agent, require_native(env, "", ""), runner.state, seconds / 10))
        stages["gradient steps"] = max(0.0, iteration - sum(stages.values()))
        whole = sum(stages.values())
        shares = {name: taken / whole for name, taken in stages.items()}
        rounding = agent.compute_dtype == "float32" and bfloat16_unit()
        text = advice(shares, minibatch, env.num_envs, devices, rounding)
    speed, compiled = rows / iteration, runner.program.compile_seconds
    return BenchReport(speed, iteration, shares, compiled, peak_memory_mb(), devices, text)


def rounds(runner: Runner, seconds: float) -> list[float]:
    """Seconds of an iteration, from several rounds that take about `seconds` together, or from the first iteration."""
    if runner.first >= max(seconds, SET_UP):
        return [runner.first]
    runner.restart()  # without what is set up once
    count = 1
    times: list[float] = []
    while not times or runner.spent + times[-1] * count <= seconds:
        taken = runner.seconds(count)
        if taken < seconds / 10:  # too short to be exact
            count *= 2
        else:
            times.append(taken / count)
    return times


def host_advice(shares: dict[str, float], step_seconds: float, minibatch_rows: int, env: HostEnv) -> str:
    """One sentence for a run on the host; `step_seconds` is what a step of all environments takes, learning too."""
    cores, stepping = sharding.num_cores(), shares["stepping"] * step_seconds
    each = f"{stepping / env.num_envs * 1e6:,.0f} us for each environment"
    acting, learning = shares["policy"] + shares["recording"], shares["transfer"] + shares["update"]
    if shares["stepping"] >= max(acting, learning):
        # of worker processes one sees only what one waits for
        short = stepping < (WORKER_SECONDS / 2 if env.vectorization == "async" else WORKER_SECONDS)
        if env.vectorization == "async" and short:
            return f"Steps are short ({each}), and messages to worker processes cost more: leave out vectorization."
        if env.vectorization == "async" or env.host.unique or short or cores == 1:
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


def bfloat16_unit() -> bool:
    """Whether this processor has a unit for products in bfloat16 that ppax can use: AMX, as far as Linux says."""
    return jax.default_backend() == "cpu" and CPU_INFO.exists() and "amx_bf16" in CPU_INFO.read_text(encoding="utf-8")


def advice(shares: dict[str, float], minibatch_rows: int, num_envs: int, devices: int, rounding: bool = False) -> str:
    """One sentence: what would make this run faster; `rounding`: whether rounded factors of products would."""
    cores = sharding.num_cores()
    if jax.default_backend() == "cpu" and devices < cores and minibatch_rows >= 2 * SMALL and num_envs % cores:
        better = math.ceil(num_envs / cores) * cores
        return f"Only {devices} of {cores} cores is used: num_envs = {better} can be split over all, {num_envs} cannot."
    if shares["rollout"] > 0.5:
        return "The environment and acting take most of the time: a cheaper environment or network is what would help."
    if minibatch_rows < SMALL:
        return (
            f"Minibatches of {minibatch_rows} rows are small: starting operations takes most of the time, so more "
            "environments or fewer minibatches give more steps a second."
        )
    faster = "a smaller network or fewer epochs is what would make it faster."
    if rounding:
        faster = (
            '`agent.compute_dtype = "bfloat16"` makes products faster on this processor (docs/speed.md); else ' + faster
        )
    return f"Gradient steps take most of the time: {faster}"


def tune(agent: PPO, env: Env, num_steps: int, seconds: float = 100.0, say: Callable[[str], None] = quiet) -> Choice:
    """Try layouts for at most about `seconds`: devices, then chunks, then unrolling; each beside the best so far.

    ConfigError for environments on the host, where other things decide.
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
    return Choice(chosen, speedup)


def peak_memory_mb() -> float:
    """The highest resident set of this process so far; 0 where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak / (2**20 if sys.platform == "darwin" else 2**10))


def begin(agent: PPO, env: Env, num_steps: int) -> TrainState:
    """A fresh state, compiled."""
    state: TrainState = jax.jit(start, static_argnames="num_steps")(agent, env, num_steps, jax.random.key(0))
    return state


def _candidates(agent: PPO, env: VectorEnv, num_steps: int) -> Iterator[tuple[str, list[int]]]:
    length = agent.sequence_length(num_steps)
    minibatch = agent.minibatch.size(num_steps * env.num_streams // length)
    yield "devices", [d for d in range(1, sharding.available() + 1) if env.num_envs % d == 0 and minibatch % d == 0]
    yield "chunk_rows", [rows for rows in (256, 512, 1024, 2048, 8192, 2**20) if rows <= 2 * minibatch * length]
    yield "unroll", [1, 2, 4]


def _stages(agent: PPO, env: VectorEnv, state: TrainState, seconds: float) -> Iterator[tuple[str, float]]:
    """Seconds of what comes before the gradient steps, each stage as a program of its own, measured for `seconds`."""
    devices, num_steps = num_devices(agent, env, state.num_steps), state.num_steps
    own = dataclasses.replace(env, num_envs=env.num_envs // devices)

    def compiled(function: Callable[..., Any], in_specs: Any, out_specs: Any, *arguments: Any) -> tuple[float, Any]:
        program = sharding.split(function, devices, in_specs, out_specs) if devices > 1 else function
        return _time(jax.jit(program), seconds, *arguments)

    def act(learner: Any, actor: Any) -> Rollout:
        return collect(agent, own, learner, actor, num_steps, jax.random.key(0)).rollout

    taken, rollout = compiled(act, (SAME, SPLIT), COLLECTED, state.learner, state.actor)
    yield "rollout", taken
    taken, experience = compiled(
        lambda learner, rollout: agent._prepare(learner, rollout)[1], (SAME, COLLECTED), SAME, state.learner, rollout
    )
    yield "targets", taken
    batch = Batch(experience.steps, experience.targets)
    taken, _ = _time(jax.jit(lambda batch: agent.minibatch(batch, jax.random.key(0))), seconds, batch)
    yield "shuffle", agent.num_epochs * taken


def _time(program: Callable[..., Any], seconds: float, *arguments: Any) -> tuple[float, Any]:
    """Median seconds of a call, from ten of them or from those that fit into `seconds`; and its result."""
    result = jax.block_until_ready(program(*arguments))
    times: list[float] = []
    while not times or (len(times) < 10 and sum(times) < seconds):
        begin = time.perf_counter()
        jax.block_until_ready(program(*arguments))
        times.append(time.perf_counter() - begin)
    return statistics.median(times), result
