"""Training speed, compile time and memory of ppax against rejax and PureJaxRL on CartPole-v1 (workload W1).

    pip install "ppax[bench]"
    export PUREJAXRL=...                          # a folder with purejaxrl/ppo.py in it; without it, rejax alone
    python benchmarks/speed.py                    # the table: 4 to 16384 environments; about twenty minutes
    python benchmarks/speed.py --seeds 16 64      # many seeds at 4 environments in one program, against PureJaxRL
    python benchmarks/speed.py --sweep --seeds 64 --iterations 976    # members of `ppax sweep`, with its start, instead
    python benchmarks/speed.py --overhead         # ppax.fit with all recording on, against the bare program
    PPAX_BEFORE=... python benchmarks/speed.py --before   # against another version of ppax, the checkout so named
    python benchmarks/speed.py ... --quick        # short runs, nothing written

Every system runs in a process of its own; the processes take turns, and only runs of the same turn are compared
(interleave.py). How each system is called, and what differs between them: peers.py. What is measured:

* speed: environment steps a second of whole training (rollout and update), compilation and evaluation excluded. The
  ratio is ppax to the faster of the peers in the same turn: with its defaults, and in float32 (peers.py).
* compile: seconds to trace, lower and compile the training program, in a fresh process each time, persistent cache
  off. The ratio is ppax to the faster of the peers in the same turn. Creating the first state (`start_seconds`) and
  imports are excluded; PureJaxRL makes its first state inside its program.
* memory: the highest resident set of the whole worker process (ru_maxrss), so interpreter, imports and compiler are in
  it; `memory_after_import_mb` is its value before anything was compiled. Memory of an accelerator is not included.
* overhead: rows a second from the first chunk of `ppax.fit` (run directory, logs, metrics, checkpoints; no console) to
  its return, over those of one call of the compiled program from the same seed for as many iterations.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import w1
from interleave import Answer, compile_seconds, compile_turns, measure, present, ratios, speed
from peers import BEFORE, FOLDER, FOLDER_BEFORE, purejaxrl_folder
from report import Report, bar, panel
from w1 import Work

SIZES = (4, 64, 512, 2048, 16384)
COMPILE_SIZES = (64, 2048)
OVERHEAD_SIZES = (64, 2048)
SPEED_TARGETS = {4: 1.5, 64: 1.8, 512: 2.2, 2048: 2.5, 16384: 3.0}
SEEDS_TARGET, COMPILE_TARGET, OVERHEAD_TARGET = 1.6, 1.0, 0.97
MEMORY_TARGETS = {16384: 0.35}
FLOAT32 = "ppax-float32"  # ppax without rounding, as all peers compute
COMPILE_ITERATIONS = 10  # of PureJaxRL's program, which fixes it


def table(options: argparse.Namespace, report: Report, peers: list[str]) -> None:
    """Speed and memory of every size, then compile time."""
    systems, results, compiled = ["ppax", *peers], [], []
    timed = ["ppax", FLOAT32, *peers]
    line = ("{:>8} {:>6}" + " {:>12}" * len(timed) + " {:>6} {:>14} {:>10}" + " {:>11}" * len(peers)).format
    heads = "ratio", "min .. max", "in float32"
    print(line("num_envs", "iters", *(f"{s}/s" for s in timed), *heads, *(f"/ {p}" for p in peers)))
    for num_envs in options.sizes:
        result = measure(timed, Work(num_envs, 1, 0, options.seed), options.repeats, options.seconds)
        result["ratio"] = ratios(result, "ppax", peers, speed, max)
        result["float32_ratio"] = ratios(result, FLOAT32, peers, speed, max)["best"]
        memory = {system: result[system]["peak_memory_mb"] for system in systems}
        result["memory_ratio"] = memory["ppax"] / min(memory[peer] for peer in peers)
        results.append(result)
        report.save(results=results, panels=table_panels(results, compiled))
        speeds = (f"{result[system]['steps_per_second']:,.0f}" for system in timed)
        exact = f"{result['float32_ratio']['median']:.2f}"
        each = (f"{result['ratio'][peer]['median']:.2f}" for peer in peers)
        texts = *as_text(result["ratio"]["best"]), exact
        print(line(num_envs, result["iterations"], *speeds, *texts, *each), flush=True)
    print_memory(results, systems)
    line = ("{:>8}" + " {:>11}" * len(systems) + " {:>6} {:>14}").format
    print(
        "\nseconds to trace, lower and compile, fresh processes\n" + line("num_envs", *systems, "ratio", "min .. max")
    )
    for num_envs in options.compile_sizes:
        result = compile_turns(systems, Work(num_envs, 1, COMPILE_ITERATIONS, options.seed), options.compiles)
        result["ratio"] = ratios(result, "ppax", peers, compile_seconds, min)
        compiled.append(result)
        report.save(compile=compiled, panels=table_panels(results, compiled))
        seconds = (f"{result[system]['compile_seconds']:.2f}" for system in systems)
        print(line(num_envs, *seconds, *as_text(result["ratio"]["best"])), flush=True)


def print_memory(results: list[Answer], systems: list[str]) -> None:
    """Peak memory of every size."""
    line = ("{:>8}" + " {:>11}" * len(systems) + " {:>6}").format
    print("\npeak memory of the process, MB\n" + line("num_envs", *systems, "ratio"))
    for result in results:
        memory = (f"{result[system]['peak_memory_mb']:.0f}" for system in systems)
        print(line(result["num_envs"], *memory, f"{result['memory_ratio']:.2f}"))


def table_panels(results: list[Answer], compiled: list[Answer]) -> list[dict[str, Any]]:
    """Speed, compile time and memory over those of the best peer."""
    speeds = [bar(r["num_envs"], r["ratio"]["best"], SPEED_TARGETS.get(r["num_envs"])) for r in results]
    exact = [bar(r["num_envs"], r["float32_ratio"], None) for r in results]
    compiles = [bar(r["num_envs"], r["ratio"]["best"], COMPILE_TARGET) for r in compiled]
    memory = []
    for r in results:
        ratio = dict.fromkeys(("median", "min", "max"), r["memory_ratio"])
        memory.append(bar(r["num_envs"], ratio, MEMORY_TARGETS.get(r["num_envs"])))
    return [
        panel("steps/s over the faster peer's, by environments", speeds, "higher"),
        panel("the same in float32", exact, "higher"),
        panel("compile time\nover the faster peer's", compiles, "lower"),
        panel("peak memory over the leaner peer's", memory, "lower"),
    ]


def seeds(options: argparse.Namespace, report: Report, peers: list[str]) -> None:
    """Many seeds in one program."""
    results = []
    system = "sweep" if options.sweep else "ppax"
    line = ("{:>8} {:>6}" + " {:>11}" * 2 + " {:>6} {:>14}").format
    print(line("seeds", "iters", f"{system}/s", "purejaxrl/s", "ratio", "min .. max"))
    for num_seeds in options.seeds:
        work = Work(options.sizes[0], num_seeds, options.iterations, options.seed)
        result = measure([system, "purejaxrl"], work, options.repeats, options.seconds)
        result["ratio"] = ratios(result, system, ["purejaxrl"], speed, max)
        results.append(result)
        bars = [bar(r["num_seeds"], r["ratio"]["best"], SEEDS_TARGET) for r in results]
        report.save(
            results=results,
            panels=[panel(f"steps/s over PureJaxRL's, by {'members' if options.sweep else 'seeds'}", bars, "higher")],
        )
        print(speed_line(line, result, [system, "purejaxrl"]), flush=True)


def overhead(options: argparse.Namespace, report: Report, peers: list[str]) -> None:
    """Everything on, against the bare program."""
    results = []
    line = "{:>8} {:>6} {:>12} {:>12} {:>6} {:>14}".format
    print(line("num_envs", "iters", "fit rows/s", "bare rows/s", "ratio", "min .. max"))
    for num_envs in options.sizes:
        work = Work(num_envs, 1, 0, options.seed)
        result = measure(["program", "fit"], work, options.repeats, options.seconds)
        result["ratio"] = ratios(result, "fit", ["program"], lambda run: run["rows"] / run["seconds"], max)
        results.append(result)
        bars = [bar(r["num_envs"], r["ratio"]["best"], OVERHEAD_TARGET) for r in results]
        report.save(results=results, panels=[panel("rows/s of fit over the bare program's", bars, "higher")])
        speeds = (f"{result[system]['rows_per_second']:,.0f}" for system in ("fit", "program"))
        print(line(num_envs, result["iterations"], *speeds, *as_text(result["ratio"]["best"])), flush=True)


def before(options: argparse.Namespace, report: Report, peers: list[str]) -> None:
    """This version against another: training speed, compile time and import time."""
    results = []
    line = ("{:>8} {:>6}" + " {:>11}" * 2 + " {:>6} {:>14}").format
    print(line("num_envs", "iters", "ppax/s", "before/s", "ratio", "min .. max"))
    for num_envs in options.sizes:
        result = measure(["ppax", BEFORE], Work(num_envs, 1, 0, options.seed), options.repeats, options.seconds)
        result["ratio"] = ratios(result, "ppax", [BEFORE], speed, max)
        results.append(result)
        bars = [bar(r["num_envs"], r["ratio"]["best"], 1.0) for r in results]
        report.save(results=results, panels=[panel("steps/s over the version before", bars, "higher")])
        print(speed_line(line, result, ["ppax", BEFORE]), flush=True)
    line = ("{:>8} {:>8}" + " {:>11}" * 2 + " {:>6} {:>14}").format
    print("\nseconds, fresh processes\n" + line("num_envs", "", "ppax", "before", "ratio", "min .. max"))
    compiled = []
    for num_envs in options.compile_sizes:
        result = compile_turns(["ppax", BEFORE], Work(num_envs, 1, COMPILE_ITERATIONS, options.seed), options.compiles)
        for what in ("compile", "import"):
            name = f"{what}_seconds"
            result[f"{what}_ratio"] = ratios(result, "ppax", [BEFORE], lambda run, name=name: run[name], min)["best"]
            seconds = (f"{result[system][name]:.2f}" for system in ("ppax", BEFORE))
            print(line(num_envs, what, *seconds, *as_text(result[f"{what}_ratio"])), flush=True)
        compiled.append(result)
        report.save(compile=compiled)


def speed_line(line: Any, result: Answer, systems: list[str]) -> str:
    """One size, as a line of the table."""
    size = result["num_seeds"] if result["num_seeds"] > 1 else result["num_envs"]
    speeds = (f"{result[system]['steps_per_second']:,.0f}" for system in systems)
    return line(size, result["iterations"], *speeds, *as_text(result["ratio"]["best"]))


def as_text(ratio: dict[str, float]) -> tuple[str, str]:
    """A ratio and its range."""
    return f"{ratio['median']:.2f}", f"{ratio['min']:.2f} .. {ratio['max']:.2f}"


def parse() -> argparse.Namespace:
    """Options of the command line, with the defaults of what is measured."""
    parser = argparse.ArgumentParser(description="Speed, compile time and memory of ppax against its peers (W1).")
    parser.add_argument("--sizes", type=int, nargs="+", help="numbers of environments")
    parser.add_argument("--compile-sizes", type=int, nargs="*", help="numbers of environments, for compile time")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--seeds", type=int, nargs="+", help="many seeds in one program instead of the table")
    parser.add_argument("--sweep", action="store_true", help="with --seeds: members of `ppax sweep`, 16 learning rates")
    what.add_argument("--before", action="store_true", help=f"another version of ppax, which {FOLDER_BEFORE} names")
    what.add_argument("--overhead", action="store_true", help="ppax.fit against the bare program instead")
    parser.add_argument("--repeats", type=int, help="turns of timed runs for each size (default 5)")
    parser.add_argument("--compiles", type=int, help="fresh processes of each system, for compile time (default 5)")
    parser.add_argument("--seconds", type=float, help="length of a timed run, about (default 3; overhead 20)")
    parser.add_argument("--iterations", type=int, default=0, help="with --seeds: length of a timed run, in iterations")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a smoke test: short runs, nothing written")
    options = parser.parse_args()
    sizes = SIZES if not options.quick else (4, 512)
    if options.seeds or options.overhead:
        sizes = (4,) if options.seeds else OVERHEAD_SIZES
    defaults = {"sizes": sizes, "compile_sizes": COMPILE_SIZES, "repeats": 5, "compiles": 5}
    defaults["seconds"] = 20.0 if options.overhead else 3.0
    if options.quick:
        defaults |= {"compile_sizes": (4,), "repeats": 3, "compiles": 1, "seconds": 0.5}
    for name, value in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def main() -> None:
    """Measure, print the table, write the results."""
    options = parse()
    name = next((name for name in ("seeds", "before", "overhead") if getattr(options, name)), "speed")
    run = {"seeds": seeds, "before": before, "overhead": overhead, "speed": table}[name]
    peers = ["rejax"] + (["purejaxrl"] if purejaxrl_folder() else [])
    if name == "seeds" and "purejaxrl" not in peers:
        raise SystemExit(f"--seeds compares with PureJaxRL: set {FOLDER} to a folder with purejaxrl/ppo.py in it")
    if name == "before" and FOLDER_BEFORE not in os.environ:
        raise SystemExit(f"--before: set {FOLDER_BEFORE} to a checkout of the version to compare with")
    if name == "speed" and "purejaxrl" not in peers:
        print(f"{FOLDER} is not set: rejax is the only peer")
    peers = present(peers) if name in ("speed", "seeds") else []
    if name in ("speed", "seeds") and not peers:
        raise SystemExit("there is no peer to compare with")
    own = {"repeats": options.repeats, "seconds": options.seconds, "seed": options.seed}
    tasks = {"speed": "CartPole-v1, separate 2x64 tanh actor and critic: ppax over the best peer"}
    tasks["seeds"] = f"CartPole-v1, {options.sizes[0]} environments, many seeds in one program: ppax over PureJaxRL"
    tasks["before"] = "CartPole-v1, separate 2x64 tanh actor and critic: ppax over a version before"
    tasks["overhead"] = "ppax.fit with run directory, logs and checkpoints over the bare program"
    if options.sweep:
        name, tasks["sweep"] = "sweep", "CartPole-v1, `ppax sweep` of 16 learning rates and their seeds: over PureJaxRL"
    report = Report(None if options.quick else name, tasks[name], w1.SETTINGS | own)
    run(options, report, peers)
    report.finish()


if __name__ == "__main__":
    main()
