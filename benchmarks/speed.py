"""Training speed of ppax against rejax on CartPole-v1: same network, sizes and number of gradient steps.

    pip install "ppax[bench]"
    python benchmarks/speed.py            # about ten minutes on two cores
    python benchmarks/speed.py --quick    # two sizes, short runs, nothing written

For every number of environments two worker processes live side by side, one for each system. They take
turns: while one runs, the other waits for its next order. So a slow minute of the machine falls on both, and
only neighbouring runs are compared: the ratio is the median over pairs. What is measured:

* speed: environment steps a second of whole training (rollout and update), compilation and evaluation
  excluded. rejax's `train` alternates training with evaluation; here its `train_iteration` is looped without
  any. Both systems do `EPOCHS * MINIBATCHES` gradient steps for each `NUM_STEPS * num_envs` rows. In ppax a
  row on which an environment restarts is no environment step: its speed counts valid steps alone, and so do
  the ratios; `rows_per_second` counts all.
* compile: seconds to trace, lower and compile the training program in a fresh process, persistent cache off.
  Making the first state (`start_seconds`: compile and run) and imports are apart.
* memory: the highest resident set of the whole worker process (ru_maxrss), so interpreter, imports and
  compiler are in it; `memory_after_import_mb` is what there was before anything was compiled. Memory of an
  accelerator is not in it.

What differs, because each system is what it is: rejax takes two Adam steps, one for the actor and one for the
critic, where ppax takes one for both; rejax clips each element of the gradient and not its norm, clips the
value loss, and treats the time limit as a true end; ppax returns training metrics, rejax none.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import importlib.metadata
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SYSTEMS = ("ppax", "rejax")
SIZES = (4, 64, 512, 2048, 16384)
NUM_STEPS = 128
EPOCHS = 4
MINIBATCHES = 4
LEARNING_RATE = 3e-4
GAMMA = 0.99
GAE_LAMBDA = 0.95
CLIP_EPS = 0.2
ENT_COEF = 0.01
VF_COEF = 0.5
MAX_GRAD_NORM = 0.5
ADAM_EPS = 1e-8
HIDDEN = (64, 64)
PACKAGES = ("ppax", "rejax", "jax", "jaxlib", "flax", "optax", "gymnax", "numpy")
RESULTS = Path(__file__).parent / "results" / "speed.json"

# ---------------------------------------------------------------- the two systems, in a worker

Run = Callable[[int], int]  # number of iterations -> valid environment steps done


def prepare_ppax(num_envs: int, seed: int) -> tuple[Run, dict[str, float]]:
    """ppax as a user who wants speed calls it: one jitted program, the state donated."""
    import jax

    import ppax

    env = ppax.envs.make("CartPole-v1", num_envs=num_envs)
    agent = ppax.PPO(
        ppax.networks.mlp(env, hidden=HIDDEN),
        advantage=ppax.advantages.GAE(gae_lambda=GAE_LAMBDA),
        loss=ppax.losses.ClippedSurrogate(clip_eps=CLIP_EPS, vf_coef=VF_COEF, ent_coef=ENT_COEF),
        minibatch=ppax.minibatches.Shuffle(num_minibatches=MINIBATCHES),
        optimizer=ppax.optimizers.Adam(eps=ADAM_EPS),
        learning_rate=LEARNING_RATE,
        gamma=GAMMA,
        max_grad_norm=MAX_GRAD_NORM,
        num_epochs=EPOCHS,
    )
    start, start_seconds = timed(
        lambda: jax.block_until_ready(
            jax.jit(ppax.start, static_argnames="num_steps")(agent, env, num_steps=NUM_STEPS, key=jax.random.key(seed))
        )
    )
    jitted = jax.jit(ppax.train, donate_argnames="state")
    program, seconds = compile_timed(jitted, agent, env, start, 1)
    held = {"state": start, "steps": 0}

    def run(iterations: int) -> int:
        held["state"], metrics = program(agent, env, held["state"], iterations)
        jax.block_until_ready((held["state"], metrics))
        low, high = (int(word) for word in held["state"].env_steps)
        total = (high << 32) + low
        done, held["steps"] = total - held["steps"], total
        return done

    return run, {"start_seconds": start_seconds, **seconds}


def prepare_rejax(num_envs: int, seed: int) -> tuple[Run, dict[str, float]]:
    """rejax's training iteration in the loop of its own `train`, without the evaluations; state donated."""
    import jax
    from rejax import PPO

    agent = PPO.create(
        env="CartPole-v1",
        agent_kwargs={"hidden_layer_sizes": HIDDEN, "activation": "tanh"},
        num_envs=num_envs,
        num_steps=NUM_STEPS,
        num_epochs=EPOCHS,
        num_minibatches=MINIBATCHES,
        learning_rate=LEARNING_RATE,
        max_grad_norm=MAX_GRAD_NORM,
        gamma=GAMMA,
        gae_lambda=GAE_LAMBDA,
        clip_eps=CLIP_EPS,
        vf_coef=VF_COEF,
        ent_coef=ENT_COEF,
    )

    def train(state: Any, iterations: Any) -> Any:
        return jax.lax.fori_loop(0, iterations, lambda _, state: agent.train_iteration(state), state)

    start, start_seconds = timed(lambda: jax.block_until_ready(jax.jit(agent.init_state)(jax.random.key(seed))))
    program, seconds = compile_timed(jax.jit(train, donate_argnums=0), start, 1)
    held = {"state": start}

    def run(iterations: int) -> int:
        held["state"] = jax.block_until_ready(program(held["state"], iterations))
        return iterations * NUM_STEPS * num_envs

    return run, {"start_seconds": start_seconds, **seconds}


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What `work` returns, and the seconds it took."""
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def compile_timed(jitted: Any, *args: Any) -> tuple[Any, dict[str, float]]:
    """The compiled program, and the seconds of each stage."""
    traced, trace = timed(lambda: jitted.trace(*args))
    lowered, lower = timed(traced.lower)
    program, compiled = timed(lowered.compile)
    return program, {
        "trace_seconds": trace,
        "lower_seconds": lower,
        "xla_seconds": compiled,
        "compile_seconds": trace + lower + compiled,
    }


def peak_memory_mb() -> float:
    """The highest resident set this process ever had (Linux counts KiB, macOS bytes)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def work(system: str, num_envs: int, seed: int) -> None:
    """A worker: prepare, then obey orders from stdin, one JSON answer for each, until stdin closes."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not look like an answer

    def answer(value: dict[str, Any]) -> None:
        print(json.dumps(value), file=answers, flush=True)

    _, import_seconds = timed(lambda: (importlib.import_module("jax"), importlib.import_module(system)))
    import jax

    device = jax.devices()[0]
    after_import = peak_memory_mb()
    run, seconds = {"ppax": prepare_ppax, "rejax": prepare_rejax}[system](num_envs, seed)
    answer(
        {
            "import_seconds": import_seconds,
            **seconds,
            "memory_after_import_mb": after_import,
            "device": f"{device.platform}: {device.device_kind}",
        }
    )
    for line in sys.stdin:
        iterations = int(line)
        steps, elapsed = timed(lambda n=iterations: run(n))
        answer(
            {
                "seconds": elapsed,
                "valid_steps": steps,
                "rows": iterations * NUM_STEPS * num_envs,
                "peak_memory_mb": peak_memory_mb(),
            }
        )


# ---------------------------------------------------------------- the judge


class Worker:
    """One system at one size, in a process of its own.

    This process stays small (it never imports jax): Linux lets a child inherit its parent's peak memory.
    """

    def __init__(self, system: str, num_envs: int, seed: int):
        self.system = system
        environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
        environment["JAX_ENABLE_COMPILATION_CACHE"] = "false"
        options = ["--worker", system, "--sizes", str(num_envs), "--seed", str(seed)]
        command, pipe = [sys.executable, __file__, *options], subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
        self.prepared = self._read()

    def run(self, iterations: int) -> dict[str, float]:
        """Train for some iterations; what it took."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{iterations}\n")
        self.process.stdin.flush()
        return self._read()

    def stop(self) -> None:
        """Let the process end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the {self.system} worker ended early with code {self.process.wait()}")
        return json.loads(line)


def measure(num_envs: int, repeats: int, target_seconds: float, seed: int) -> dict[str, Any]:
    """Both systems at one size: `repeats` pairs of timed runs, taking turns."""
    workers = {}
    try:
        for system in SYSTEMS:  # one after the other, so that compile times are honest too
            workers[system] = Worker(system, num_envs, seed)
        iterations, pairs = calibrate(workers, target_seconds), []
        for repeat in range(repeats):
            order = SYSTEMS if repeat % 2 == 0 else SYSTEMS[::-1]  # neither always goes second
            pairs.append({system: workers[system].run(iterations) for system in order})
    finally:
        for worker in workers.values():
            worker.stop()
    result: dict[str, Any] = {"num_envs": num_envs, "iterations": iterations}
    for system in SYSTEMS:
        runs = [pair[system] for pair in pairs]
        result[system] = {
            **workers[system].prepared,
            "steps_per_second": statistics.median(x["valid_steps"] / x["seconds"] for x in runs),
            "rows_per_second": statistics.median(x["rows"] / x["seconds"] for x in runs),
            "peak_memory_mb": max(x["peak_memory_mb"] for x in runs),
            "runs": runs,
        }
    speeds = [{s: pair[s]["valid_steps"] / pair[s]["seconds"] for s in SYSTEMS} for pair in pairs]
    ratios = [pair["ppax"] / pair["rejax"] for pair in speeds]
    result["ratio"] = {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}
    return result


def calibrate(workers: dict[str, Worker], target_seconds: float) -> int:
    """How many iterations take about `target_seconds`, the same for both systems."""
    for worker in workers.values():
        worker.run(1)  # the first run pays for what is set up once
    iterations = 1
    while True:
        slowest = max(worker.run(iterations)["seconds"] for worker in workers.values())
        if slowest > target_seconds / 4:
            return max(1, round(iterations * target_seconds / slowest))
        iterations = max(2 * iterations, int(iterations * 0.5 * target_seconds / slowest))


def hardware() -> dict[str, Any]:
    """What the numbers were measured on."""
    model = platform.processor()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), model)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory_gb = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    return {"cpu": model, "cores": cores, "memory_gb": memory_gb, "system": platform.system()}


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that matter."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "source tree"
    return found


COLUMNS = "{:>8} {:>7} {:>11} {:>11} {:>6} {:>14} {:>8} {:>8} {:>8} {:>8}"


def header() -> str:
    """The table's two heading lines."""
    upper = COLUMNS.format("", "iters", "steps/s", "steps/s", "", "", "compile", "s", "peak", "MB")
    lower = COLUMNS.format("num_envs", "per run", "ppax", "rejax", "ratio", "min .. max", *(2 * SYSTEMS))
    return f"{upper}\n{lower}"


def row(result: dict[str, Any]) -> str:
    """One size, as a line of the table."""
    ratio, (ppax, rejax) = result["ratio"], (result[system] for system in SYSTEMS)
    return COLUMNS.format(
        result["num_envs"],
        result["iterations"],
        f"{ppax['steps_per_second']:,.0f}",
        f"{rejax['steps_per_second']:,.0f}",
        f"{ratio['median']:.2f}",
        f"{ratio['min']:.2f} .. {ratio['max']:.2f}",
        f"{ppax['compile_seconds']:.2f}",
        f"{rejax['compile_seconds']:.2f}",
        f"{ppax['peak_memory_mb']:.0f}",
        f"{rejax['peak_memory_mb']:.0f}",
    )


def parse() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description="Training speed of ppax against rejax on CartPole-v1.")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="numbers of environments")
    parser.add_argument("--repeats", type=int, default=5, help="pairs of timed runs for each size")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one timed run, about")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="4 and 512 environments, short runs")
    parser.add_argument("--output", type=Path, help=f"where to write (default results/{RESULTS.name})")
    parser.add_argument("--worker", choices=SYSTEMS, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure every size, print the table, write the results."""
    options = parse()
    if options.worker:
        work(options.worker, options.sizes[0], options.seed)
        return
    sizes, repeats, seconds, output = options.sizes, options.repeats, options.seconds, options.output
    if options.quick:
        sizes, repeats, seconds = [4, 512], 3, 0.5
    elif output is None:
        output = RESULTS
    report: dict[str, Any] = {
        "task": "CartPole-v1, separate 2x64 tanh actor and critic",
        "settings": {
            "num_steps": NUM_STEPS,
            "num_epochs": EPOCHS,
            "num_minibatches": MINIBATCHES,
            "learning_rate": LEARNING_RATE,
            "gamma": GAMMA,
            "gae_lambda": GAE_LAMBDA,
            "clip_eps": CLIP_EPS,
            "ent_coef": ENT_COEF,
            "vf_coef": VF_COEF,
            "max_grad_norm": MAX_GRAD_NORM,
            "adam_eps": ADAM_EPS,
            "repeats": repeats,
            "seed": options.seed,
        },
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "hardware": hardware(),
        "versions": versions(),
        "results": [],
    }
    print(header())
    for num_envs in sizes:
        result = measure(num_envs, repeats, seconds, options.seed)
        report["results"].append(result)
        print(row(result), flush=True)
        if output is not None:  # after every size, so that an interrupted run leaves what it has
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
