"""The stages of accelerator.py. Each runs in a separate process and prints rows of results, one line of JSON each.

    python benchmarks/accelerator_stages.py core 120          # for about 120 seconds
    python benchmarks/accelerator_stages.py w1 10 --quick     # small sizes, for a CPU

A row is printed as soon as it is measured, so that a killed stage loses none. A stage plans for the seconds that it is
given, and prints a row for each measurement that it leaves out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import w1
from interleave import FIXED, Worker, measure, measure_at_once, ratios, speed
from peers import purejaxrl_folder
from w1 import Work

Row = dict[str, Any]
SIZES = (2_048, 131_072, 1_048_576, 16_384)  # the last is the first to be left out
CHUNKED = 131_072  # environments from which gradient accumulation is measured beside whole minibatches
REPEATS = 3  # turns
SECONDS = {False: 1.0, True: 0.1}  # about the length of a timed run of the slowest, by --quick
MOST_REPEATS = 5  # turns of the alternatives of a rule
QUICK_TUNE = 5.0  # seconds of the search for a layout in --quick
SMALL_GRAPHS = "graph_min_graph_size=1"
ROWS = 2**24  # environment steps of a run on a machine with many cores
MANY_CORES = 8  # from so many on systems compile at the same time
COMPILING = 0.75  # share of a stage's time in which its programs must have compiled
AHEAD = 1.2  # a size takes as long as the one before, and this share more, beside its longer runs


def installed(package: str) -> bool:
    """Whether a package is there; it is not imported."""
    return importlib.util.find_spec(package) is not None


# ---------------------------------------------------------------- devices, correctness


def device(seconds: float, quick: bool) -> Iterator[Row]:
    """The devices that JAX has, and the peers that are installed."""
    import jax

    devices = jax.local_devices()
    stats = devices[0].memory_stats() or {}
    yield {
        "platform": jax.default_backend(),
        "devices": f"{len(devices)} x {devices[0].device_kind}",
        "memory_gb": round(stats["bytes_limit"] / 2**30, 1) if "bytes_limit" in stats else None,
        "jax": jax.__version__,
        "driver": devices[0].client.platform_version.replace("\n", " "),
        "peers": {name: installed(name) for name in ("rejax", "brax", "mujoco_playground")}
        | {"purejaxrl": purejaxrl_folder() is not None},
    }


def core(seconds: float, quick: bool, part: int = 0, parts: int = 1) -> Iterator[Row]:
    """The correctness core, on the devices that are there: every `parts`-th check."""
    import device_checks

    yield from device_checks.run_all(device_checks.all_checks(quick)[part::parts], seconds)


# ---------------------------------------------------------------- training speed


def sizes_of(
    workload: str,
    systems: Callable[[int], list[str]],
    sizes: Sequence[int],
    seconds: float,
    quick: bool,
    rows: int = ROWS,
) -> Iterator[Row]:
    """Training speed of the systems at each size, as long as the next size fits into the time."""
    begin, needed, length = time.monotonic(), 0.0, SECONDS[quick]
    for i, num_envs in enumerate(sizes):
        left = seconds - (time.monotonic() - begin)
        if needed > left:
            rest = ", ".join(f"{size:,}" for size in sizes[i:])
            note = f"left out: {rest} environments take {needed:.0f} s or more, {left:.0f} s left"
            yield {"workload": workload, "note": note}
            return
        start = time.monotonic()
        row = measured(systems(num_envs), num_envs, length, rows)
        yield {"workload": workload, "num_envs": num_envs, **row}
        growth = sizes[i + 1] / num_envs if i + 1 < len(sizes) else 1.0
        iteration = sum(own["iteration_seconds"] for own in row["systems"].values())
        needed = AHEAD * (time.monotonic() - start) + 2 * (REPEATS + 1) * max(0.0, growth * iteration - length)


def measured(systems: Sequence[str], num_envs: int, length: float, rows: int = ROWS) -> Row:
    """Figures of each system, in turns; without those whose process ends early.

    A run has `rows` environment steps where every system can have a core to compile on, else about `length` seconds.
    """
    remaining, notes = list(systems), []
    if (os.cpu_count() or 1) >= MANY_CORES:
        work = Work(num_envs, 1, max(2, rows // (w1.NUM_STEPS * num_envs)), 0)
        result, notes = measure_at_once({name: Worker(name, work) for name in systems}, work, REPEATS)
        return _compared(result, [name for name in systems if name in result], notes)
    while remaining:
        fixed = all(system in FIXED for system in remaining)  # no other system says how long a run should be
        try:
            result = measure(remaining, Work(num_envs, 1, 10 if fixed else 0, 0), REPEATS, length)
        except SystemExit as error:
            failed = next(system for system in remaining if f"the {system} worker" in str(error))
            notes.append(str(error))
            remaining.remove(failed)
            continue
        return _compared(result, remaining, notes)
    return {"systems": {}, "note": "; ".join(notes)}


def _compared(result: Row, systems: Sequence[str], notes: Sequence[str]) -> Row:
    """Figures of each system, and the ratio of the first, if it is ppax, over each of the others."""
    row = {
        "systems": {name: _figures(result[name], result["iterations"]) for name in systems},
        "note": "; ".join(notes),
    }
    if systems and systems[0].startswith("ppax"):
        for other in systems[1:]:
            row["systems"][other]["ratio"] = ratios(result, systems[0], [other], speed, max)["best"]
    return row


def _figures(result: Row, iterations: int) -> Row:
    names = ("compile_seconds", "start_seconds", "device_memory_mb", "peak_memory_mb")
    each = statistics.median(run["seconds"] for run in result["runs"]) / iterations
    kept = {name: result[name] for name in names if name in result}
    return {"steps_per_second": result["steps_per_second"], "iteration_seconds": each, **kept}


def of_cartpole(seconds: float, quick: bool) -> Iterator[Row]:
    """W1: ppax first, PureJaxRL and rejax where they are installed; with gradient accumulation from CHUNKED on."""
    peers = [name for name, there in (("purejaxrl", purejaxrl_folder()), ("rejax", installed("rejax"))) if there]

    def systems(num_envs: int) -> list[str]:
        return ["ppax", *(["ppax-chunks"] if num_envs >= CHUNKED else []), *peers]

    yield from sizes_of(
        "W1", (lambda _: ["ppax"]) if quick else systems, (64,) if quick else SIZES, seconds, quick, ROWS
    )


def of_physics(seconds: float, quick: bool, task: str, package: str) -> Iterator[Row]:
    """A physics task, beside Brax's PPO."""
    missing = [name for name in ("brax", package) if not installed(name)]
    if missing:
        yield {"workload": task, "note": f"not installed: {', '.join(missing)}"}
        return
    sizes = (16,) if quick else (2_048, 8_192)
    yield from sizes_of(task, lambda _: [f"ppax-{task}", f"brax-{task}"], sizes, seconds, quick, ROWS)


# ---------------------------------------------------------------- arms


class Arm(NamedTuple):
    """Another way to run the training program of W1."""

    system: str = "ppax"
    environment: Mapping[str, str] = {}
    rules: Mapping[str, Any] = {}  # entries of ppax/devices/platforms.py


def flags(*names: str) -> Mapping[str, str]:
    """Options of XLA, in the environment."""
    return {"XLA_FLAGS": " ".join(f"--xla_gpu_{name}" for name in names)}


ARMS = {
    "as it is": Arm(),
    "command buffers of loops": Arm(environment=flags("enable_command_buffer=+WHILE,+CONDITIONAL", SMALL_GRAPHS)),
    "command buffers of everything": Arm(environment=flags(SMALL_GRAPHS)),
    "no command buffers": Arm(environment=flags("enable_command_buffer=")),
    "all products by Triton": Arm(environment=flags("triton_gemm_any=true")),
    "no product by Triton": Arm(environment=flags("enable_triton_gemm=false")),
    "no tuning of products": Arm(environment=flags("autotune_level=0")),
    "float32 products with rounded factors": Arm(rules={"rounds_float32": False}),
    "products in bfloat16": Arm("ppax-bfloat16"),
    "rbg keys": Arm(environment={"JAX_DEFAULT_PRNG_IMPL": "rbg"}),
    "rollout not unrolled": Arm("ppax-unroll1"),
    "rollout unrolled 16 times": Arm("ppax-unroll16"),
    "sequential sums of GAE": Arm(rules={"parallel_scans": False}),
    "conditionals": Arm(rules={"branches": True}),
    "V of a rollout at once": Arm(rules={"few_streams": 2**30}),
}
NO_TRITON = flags("enable_triton_gemm=false")  # XLA tunes its own kernels in full float32 for a minute or more
MEMORY_ARMS = {
    "GRU, no product by Triton": Arm("ppax-gru", NO_TRITON),
    "GRU, no product by Triton, not unrolled": Arm("ppax-gru", NO_TRITON, {"unroll": 1}),
    "GRU, no product by Triton, unrolled 4 times": Arm("ppax-gru", NO_TRITON, {"unroll": 4}),
    "GRU, no product by Triton, rounded factors": Arm("ppax-gru", NO_TRITON, {"rounds_float32": False}),
    "GRU, no product by Triton, bfloat16": Arm("ppax-gru-bfloat16", NO_TRITON),
    "LSTM, no product by Triton": Arm("ppax-lstm", NO_TRITON),
    "minGRU, no product by Triton": Arm("ppax-mingru", NO_TRITON),
    "minGRU, no product by Triton, step by step": Arm("ppax-mingru", NO_TRITON, {"parallel_scans": False}),
    "LRU, no product by Triton": Arm("ppax-lru", NO_TRITON),
    "LRU, no product by Triton, step by step": Arm("ppax-lru", NO_TRITON, {"parallel_scans": False}),
    "GRU, rounded factors": Arm("ppax-gru", rules={"rounds_float32": False}),
    "PureJaxRL's GRU": Arm("purejaxrl-rnn"),
    "GRU": Arm("ppax-gru"),
}
QUICK_ARMS = ("as it is", "conditionals", "LRU, no product by Triton")


def arms(
    seconds: float, quick: bool, chosen: Mapping[str, Arm] = ARMS, larger: int = CHUNKED, rows: int = ROWS
) -> Iterator[Row]:
    """Training speed with other options of XLA, dtypes, keys and rules, each in a separate process.

    With 2,048 environments, and with more if it fits into the time; a run has `rows` steps of all environments.
    """
    begin, needed = time.monotonic(), 0.0
    for num_envs in (64,) if quick else (2_048, larger):
        left = seconds - (time.monotonic() - begin)
        if needed > left:
            yield {"num_envs": num_envs, "note": f"left out: it takes {needed:.0f} s or more, {left:.0f} s left"}
            return
        start, work = time.monotonic(), Work(num_envs, 1, 4 if quick else max(2, rows // (w1.NUM_STEPS * num_envs)), 0)
        workers = {}
        for name, arm in chosen.items():
            missing = arm.system.startswith("purejaxrl") and purejaxrl_folder() is None
            if not missing and (not quick or name in QUICK_ARMS):
                changed = {"PPAX_BENCHMARK_RULES": json.dumps(dict(arm.rules))}
                workers[name] = Worker(arm.system, work, changed | dict(arm.environment))
        result, notes = measure_at_once(workers, work, REPEATS, COMPILING * left)
        measured = [name for name in workers if name in result]
        for name in measured:
            own = _figures(result[name], result["iterations"])
            ratio = ratios(result, name, [measured[0]], speed, max)["best"]
            yield {"arm": name, "num_envs": num_envs, **own, "ratio": ratio}
        for note in notes:
            yield {"num_envs": num_envs, "note": note}
        needed = time.monotonic() - start


def of_memory(seconds: float, quick: bool) -> Iterator[Row]:
    """W3: memories, their loops unrolled or not, and PureJaxRL's GRU where it is installed."""
    yield from arms(seconds, quick, MEMORY_ARMS, 16_384, ROWS // 8)


# ---------------------------------------------------------------- layout and rules


def layout(seconds: float, quick: bool) -> Iterator[Row]:
    """Share of each stage of an iteration, and the fastest layout of the program (`ppax bench --tune`)."""
    import ours
    from ppax.config import describe
    from ppax.training import bench

    begin = time.monotonic()
    sizes = (64,) if quick else (2_048, CHUNKED)
    for i, num_envs in enumerate(sizes):
        agent, env = ours.ppax_parts(Work(num_envs, 1, 0, 0))
        if not quick:
            report = bench.measure(agent, env, w1.NUM_STEPS, 2.0)
            yield {"num_envs": num_envs, "shares": report.shares, "steps_per_second": report.steps_per_second}
        left = (seconds - (time.monotonic() - begin)) / (len(sizes) - i)
        choice = bench.tune(agent, env, w1.NUM_STEPS, min(left, QUICK_TUNE) if quick else left)
        yield {"num_envs": num_envs, "program": describe(choice.program), "speedup": choice.speedup}


@contextmanager
def ruled(**changes: Any) -> Iterator[None]:
    """Change rules of this platform for programs that are made inside."""
    import jax

    from ppax.devices import platforms

    name, before = jax.default_backend(), platforms.rules()
    platforms.RULES[name] = before._replace(**changes)
    jax.clear_caches()
    try:
        yield
    finally:
        platforms.RULES[name] = before
        jax.clear_caches()


def scan_program(quick: bool) -> Callable[[], float]:
    """Seconds of the gradient of an LRU, over the rows of a minibatch of W3."""
    from memory import gradient_program

    return gradient_program("lru", w1.NUM_STEPS, 2_048 if quick else 65_536, True)


def convolution_program(quick: bool) -> Callable[[], float]:
    """Seconds of four gradients of an Atari encoder, in a loop as in training."""
    import jax
    import jax.numpy as jnp

    from ppax.networks.encoders import NatureCNN

    encoder, images = NatureCNN(), jnp.ones((4, 512, 84, 84, 4))

    def loss(params: Any, batch: Any) -> Any:
        return (jax.vmap(encoder, (None, 0))(params, batch) ** 2).mean()

    def step(params: Any, batch: Any) -> tuple[Any, None]:
        return jax.tree.map(lambda x, g: x - 1e-3 * g, params, jax.grad(loss)(params, batch)), None

    params = encoder.init(jax.random.key(0), images[0, 0])
    program = jax.jit(lambda params, images: jax.lax.scan(step, params, images)[0]).lower(params, images).compile()
    return lambda: w1.timed(lambda: jax.block_until_ready(program(params, images)))[1]


def training_program(quick: bool, num_envs: int, num_seeds: int) -> Callable[[], float]:
    """Seconds of four iterations of W1, of many seeds at once where asked for."""
    import ours

    run, _ = ours.prepare_ppax(Work(num_envs, num_seeds, 0, 0))
    return lambda: run(4).seconds


RULES: dict[str, Callable[[bool], Callable[[], float]]] = {
    "parallel_scans": scan_program,
    "branches": partial(training_program, num_envs=2_048, num_seeds=1),
    "library_convolutions": convolution_program,
    "mapped_members": partial(training_program, num_envs=64, num_seeds=16),
}


def rules(seconds: float, quick: bool) -> Iterator[Row]:
    """Speed of the other entry of each rule that has two (ppax/devices/platforms.py), beside that of the table."""
    from ppax.devices import platforms

    begin, slowest = time.monotonic(), 0.0
    for name, prepare in RULES.items():
        left = seconds - (time.monotonic() - begin)
        if left < slowest or (quick and name != "parallel_scans"):
            yield {"rule": name, "note": "left out of --quick" if quick else f"left out: {left:.0f} s were left"}
            continue
        start, own = time.monotonic(), getattr(platforms.rules(), name)
        programs = {}
        for entry in (own, not own):
            with ruled(**{name: entry}):
                programs[entry] = prepare(quick)
                programs[entry]()  # the first run pays for what is set up once
        turns = [{entry: run() for entry, run in programs.items()} for _ in range(MOST_REPEATS)]
        times = {entry: statistics.median(turn[entry] for turn in turns) for entry in programs}
        found = [turn[own] / turn[not own] for turn in turns]
        ratio = {"median": statistics.median(found), "min": min(found), "max": max(found)}
        yield {"rule": name, "now": own, "seconds": times[own], "other_seconds": times[not own], "ratio": ratio}
        slowest = max(slowest, time.monotonic() - start)


STAGES: dict[str, Callable[[float, bool], Iterator[Row]]] = {
    "device": device,
    "core": core,
    "w1": of_cartpole,
    "layout": layout,
    "w3": of_memory,
    "arms": arms,
    "rules": rules,
    "ant": partial(of_physics, task="ant", package="brax"),
    "playground": partial(of_physics, task="playground", package="mujoco_playground"),
}


def main() -> None:
    """Run one stage."""
    parser = argparse.ArgumentParser(description="One stage of accelerator.py.")
    parser.add_argument("stage", choices=list(STAGES))
    parser.add_argument("seconds", type=float)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", type=int, nargs=2, help="of the stage core: which of how many parts of its checks")
    options = parser.parse_args()
    stage = STAGES[options.stage]
    if options.part:
        stage = partial(core, part=options.part[0], parts=options.part[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not look like a row
    for row in stage(options.seconds, options.quick):
        print(json.dumps(row), file=answers, flush=True)


if __name__ == "__main__":
    main()
