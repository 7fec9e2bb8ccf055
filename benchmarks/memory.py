"""Training speed with memory against PureJaxRL's recurrent PPO (workload W3), and times by sequence length.

    pip install "ppax[bench,flax]"
    export PUREJAXRL=...                     # a folder with purejaxrl/ppo_rnn.py in it
    python benchmarks/memory.py              # W3: 4 to 2048 environments, GRU, LSTM, minGRU and LRU; about 20 minutes
    python benchmarks/memory.py --dtypes float32
    python benchmarks/memory.py --lengths    # time of an update against the length of its sequences, 16 to 1024
    python benchmarks/memory.py ... --quick  # short runs, nothing written

W3 is CartPole-v1, 128 steps, 4 epochs, 4 minibatches of whole environments; one torso for actor and critic: a dense
layer, a memory, a dense layer for each head, all 128 wide with relu. With ppax's default `compute_dtype = "auto"`,
which is bfloat16 if that makes matrix products faster (the results list the processor's units), and in float32, like
PureJaxRL. How systems are measured: speed.py and peers.py.

With --lengths, the loss and gradient of one gradient step are timed on 16 384 rows, cut into sequences of 16 to
1024 steps: with memory an update cannot be quicker than its longest chain of steps.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import w1
from interleave import measure, present, ratios, speed
from ours import DTYPES, MEMORIES
from peers import FOLDER, purejaxrl_folder
from report import Report, bar, panel
from speed import as_text
from w1 import Work

SIZES = (4, 64, 256, 2048)
TARGETS = {
    "gru": {64: 2.2, 2048: 2.0},
    "mingru": {64: 4.0, 2048: 4.0},
    "lru": {64: 4.0, 2048: 4.0},
    "lstm": {64: 2.0, 2048: 2.0},
}
LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
ROWS = 16_384
PEER = "purejaxrl-rnn"


def against_peer(options: argparse.Namespace, report: Report) -> None:
    """W3: every memory over PureJaxRL's GRU, at every size."""
    if not present([PEER]):
        raise SystemExit("there is no peer to compare with")
    kinds = [(name, dtype) for name in options.memories for dtype in options.dtypes]
    names = {kind: f"ppax-{kind[0]}{DTYPES[kind[1]]}" for kind in kinds}
    results: list[dict[str, Any]] = []
    line = ("{:>8} {:>20} {:>11}" + " {:>6} {:>14}").format
    print(line("num_envs", "system", "steps/s", "ratio", "min .. max"))
    for num_envs in options.sizes:
        result = measure([*names.values(), PEER], Work(num_envs, 1, 0, 0), options.repeats, options.seconds)
        result["ratio"] = {name: ratios(result, name, [PEER], speed, max)["best"] for name in names.values()}
        results.append(result)
        panels = []
        for kind, name in names.items():
            targets = TARGETS[kind[0]] if kind[1] == "auto" else {}
            bars = [bar(r["num_envs"], r["ratio"][name], targets.get(r["num_envs"])) for r in results]
            title = f"{MEMORIES[kind[0]]}, {kind[1]}: steps/s over PureJaxRL's GRU"
            panels.append(panel(title, bars, "higher"))
        report.save(results=results, panels=panels)
        for name in names.values():
            print(line(num_envs, name, f"{result[name]['steps_per_second']:,.0f}", *as_text(result["ratio"][name])))
        print(line(num_envs, PEER, f"{result[PEER]['steps_per_second']:,.0f}", "", ""), flush=True)


# ---------------------------------------------------------------- lengths


def by_length(options: argparse.Namespace, report: Report) -> None:
    """Milliseconds of loss and gradient, by memory and length of sequence; turns go through all of them."""
    memories = [*options.memories, "attention", "window", "none"]
    programs = {(m, n, True): gradient_program(m, n, options.rows, True) for m in memories for n in options.lengths}
    middle = options.lengths[len(options.lengths) // 2]
    programs |= {(m, middle, False): gradient_program(m, middle, options.rows, False) for m in memories}
    times: dict[Any, list[float]] = {key: [] for key in programs}
    for _ in range(options.repeats):
        for key, run in programs.items():
            times[key].append(run())
    line = ("{:>10}" + " {:>9}" * (1 + len(options.lengths))).format
    print(f"ms of a gradient over {options.rows} rows, by the length of their sequences;")
    print(f"resets: time with them over time without, at {middle} steps")
    print(line("memory", *options.lengths, "resets"))
    results = {}
    for m in memories:
        row = {n: 1e3 * statistics.median(times[m, n, True]) for n in options.lengths}
        pairs = zip(times[m, middle, True], times[m, middle, False], strict=True)
        results[m] = {"milliseconds": row, "resets": statistics.median(one / other for one, other in pairs)}
        print(line(m, *(f"{x:.1f}" for x in row.values()), f"{results[m]['resets']:.2f}"))
    report.save(results=results, panels=[])
    if report.path is not None:
        draw_lengths(report, {m: found["milliseconds"] for m, found in results.items()})


def gradient_program(memory: str, length: int, rows: int, resets: bool) -> Any:
    """Call it for the seconds that one loss and its gradient take.

    With `resets` half of the sequences have one inside; without, the compiler knows that there is none.
    """
    import jax
    import jax.numpy as jnp

    from ppax.networks.memories import Attention, NoMemory, Window

    width, size = w1.MEMORY_WIDTH, 64
    parts = {"attention": Attention(width), "window": Window(4, (width,)), "none": NoMemory()}
    part = parts[memory] if memory in parts else _cell(memory, width)
    params = part.init(jax.random.key(0), size)
    sequences = rows // length
    x = jax.random.normal(jax.random.key(1), (sequences, length, size))
    first = (jnp.arange(length)[None] == length // 2) & (jnp.arange(sequences)[:, None] % 2 == 0)
    carry = jax.tree.map(lambda c: jnp.broadcast_to(c, (sequences, *c.shape)), part.initial_carry(size))

    def loss(params: Any, x: Any, first: Any) -> Any:
        first = first if resets else jnp.zeros_like(first)
        flat = jax.vmap(part.project_in, (None, 0))(params, x.reshape(-1, size))
        inputs = jax.tree.map(lambda y: y.reshape(sequences, length, *y.shape[1:]), flat)
        out = jax.vmap(part.scan, (None, 0, 0, 0))(params, carry, inputs, first).features
        flat = jax.tree.map(lambda y: y.reshape(-1, *y.shape[2:]), out)
        return (jax.vmap(part.project_out, (None, 0))(params, flat) ** 2).mean()

    program = jax.jit(jax.grad(loss, (0, 1))).lower(params, x, first).compile()
    jax.block_until_ready(program(params, x, first))

    def run() -> float:
        start = time.perf_counter()
        jax.block_until_ready(program(params, x, first))
        return time.perf_counter() - start

    return run


def _cell(name: str, width: int) -> Any:
    from ppax.networks import memories

    return getattr(memories, MEMORIES[name])(width)


def draw_lengths(report: Report, results: dict[str, dict[int, float]]) -> None:
    """One line a memory, both axes in powers of two."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    assert report.path is not None
    figure, axis = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for memory, row in results.items():
        axis.plot(list(row), list(row.values()), marker="o", markersize=4, label=memory)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(list(next(iter(results.values()))), [str(n) for n in next(iter(results.values()))])
    axis.set_xlabel("steps in a sequence")
    axis.set_ylabel("ms for loss and gradient")
    axis.set_title(report.content["task"], fontsize=10)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8, ncols=2)
    output = report.path.with_suffix(".png")
    figure.savefig(output, dpi=130)
    print(f"\nwritten: {report.path} and {output}")


def main() -> None:
    """Measure, print the table, write the results."""
    parser = argparse.ArgumentParser(description="What memory costs: against PureJaxRL (W3), and by length.")
    parser.add_argument("--lengths", type=int, nargs="*", help="time by the length of sequences instead (16 to 1024)")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of environments")
    parser.add_argument("--memories", nargs="+", default=list(MEMORIES), choices=list(MEMORIES))
    parser.add_argument("--dtypes", nargs="+", default=["auto", "float32"], choices=list(DTYPES))
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--repeats", type=int, default=5, help="turns of timed runs")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a timed run of the slowest, about")
    parser.add_argument("--quick", action="store_true", help="a smoke test: short runs, nothing written")
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.repeats, options.seconds, options.rows = (4,), 2, 0.5, 2048
    own = {"repeats": options.repeats, "seconds": options.seconds, "width": w1.MEMORY_WIDTH}
    if options.lengths is not None:
        options.lengths = options.lengths or list(LENGTHS)
        task = f"loss and gradient of {options.rows} rows, memory {w1.MEMORY_WIDTH} wide, by the length of sequences"
        by_length(options, Report(None if options.quick else "memory_lengths", task, own))
        return
    if purejaxrl_folder() is None:
        raise SystemExit(f"set {FOLDER} to a folder with purejaxrl/ppo_rnn.py in it")
    report = Report(
        None if options.quick else "memory",
        "CartPole-v1 with memory (W3): ppax over PureJaxRL's GRU",
        w1.SETTINGS | own,
    )
    against_peer(options, report)
    report.finish()


if __name__ == "__main__":
    main()
