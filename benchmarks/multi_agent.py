"""simple_spread with weights shared by its three agents: ppax against JaxMARL's IPPO, in alternating runs.

    python benchmarks/multi_agent.py                 # agent-steps a second, and their ratio
    python benchmarks/multi_agent.py --score 1e6     # instead, returns of both after that many steps, also of MAPPO

JaxMARL's baselines are in no package: the environment variable JAXMARL names a checkout, of which
`baselines/IPPO/ippo_ff_mpe.py` is run.
Both have its default settings: the same environment, network, sizes, and number of gradient steps. JaxMARL fixes the
number of updates when it is compiled and starts from fresh weights in each run; it clips the value loss, as does ppax
here, and treats the time limit as termination. Empty modules replace the packages that only its command line and logs
need (hydra, omegaconf, wandb). ppax counts valid steps only, not autoreset rows.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import types
from functools import partial
from pathlib import Path
from typing import Any

from report import Report, bar, panel

TARGET = 1.5
ENV, AGENTS, EPISODE = "MPE_simple_spread_v3", 3, 25
CONFIG: dict[str, Any] = {
    "LR": 2.5e-4,
    "NUM_ENVS": 16,
    "NUM_STEPS": 128,
    "UPDATE_EPOCHS": 4,
    "NUM_MINIBATCHES": 4,
    "GAMMA": 0.99,
    "GAE_LAMBDA": 0.95,
    "CLIP_EPS": 0.2,
    "ENT_COEF": 0.01,
    "VF_COEF": 0.5,
    "MAX_GRAD_NORM": 0.5,
    "ACTIVATION": "tanh",
    "ENV_NAME": ENV,
    "ENV_KWARGS": {},
    "ANNEAL_LR": True,
}
ROWS = CONFIG["NUM_ENVS"] * CONFIG["NUM_STEPS"] * AGENTS  # of an iteration
UNUSED = ("hydra", "omegaconf", "wandb")


def prepare_ppax(iterations: int, central_critic: bool = False) -> Any:
    """A function of a seed that trains: seconds, agent-steps, mean return of an agent at the end."""
    import jax

    import ppax
    from ppax.arrays import counter
    from ppax.ppo.critics import Regression
    from ppax.ppo.losses import ClippedSurrogate

    env = ppax.make(f"jaxmarl/{ENV}", CONFIG["NUM_ENVS"], central_critic=central_critic)
    agent = ppax.PPO(
        ppax.networks.network(env),
        loss=ClippedSurrogate(clip_eps=CONFIG["CLIP_EPS"]),
        ent_coef=CONFIG["ENT_COEF"],
        critic=Regression(value_clip=CONFIG["CLIP_EPS"]),
        learning_rate=CONFIG["LR"],
        schedule=ppax.schedules.Linear(),
        minibatch=ppax.minibatches.Shuffle(CONFIG["NUM_MINIBATCHES"]),
        num_epochs=CONFIG["UPDATE_EPOCHS"],
    )
    start = jax.jit(ppax.start, static_argnames="num_steps")
    program = ppax.compile(agent, env, start(agent, env, CONFIG["NUM_STEPS"], jax.random.key(0)))

    def run(seed: int) -> tuple[float, int, float]:
        state = jax.block_until_ready(start(agent, env, CONFIG["NUM_STEPS"], jax.random.key(seed)))
        last = max(1, iterations // 20)
        begin = time.perf_counter()
        state, _ = program(agent, env, state, iterations - last, iterations)
        state, metrics = program(agent, env, state, last, iterations)
        score = float(metrics["episode_return"])
        return time.perf_counter() - begin, counter.to_int(state.env_steps), score

    return run


def prepare_jaxmarl(iterations: int) -> Any:
    """The same for JaxMARL's IPPO."""
    for name in UNUSED:
        sys.modules[name] = types.ModuleType(name)
    vars(sys.modules["hydra"])["main"] = lambda **_: lambda function: function
    vars(sys.modules["omegaconf"])["OmegaConf"] = None
    vars(sys.modules["wandb"])["log"] = lambda metric: None  # called once an iteration, with its metrics
    path = Path(os.environ["JAXMARL"]) / "baselines" / "IPPO" / "ippo_ff_mpe.py"
    source = path.read_text(encoding="utf-8")
    module = sys.modules["ippo_ff_mpe"] = types.ModuleType("ippo_ff_mpe")
    exec(compile(source, str(path), "exec"), module.__dict__)

    import jax

    steps = iterations * CONFIG["NUM_STEPS"] * CONFIG["NUM_ENVS"]
    train = jax.jit(module.make_train(dict(CONFIG) | {"TOTAL_TIMESTEPS": steps}))
    program = train.lower(jax.random.PRNGKey(0)).compile()

    def run(seed: int) -> tuple[float, int, float]:
        begin = time.perf_counter()
        out = jax.block_until_ready(program(jax.random.PRNGKey(seed)))
        seconds = time.perf_counter() - begin
        returns = out["metrics"]["returned_episode_returns"][-max(1, iterations // 20) :]
        return seconds, iterations * ROWS, float(returns.mean()) / AGENTS  # its wrapper logs the sum over agents

    return run


SYSTEMS = {"ppax": prepare_ppax, "jaxmarl": prepare_jaxmarl, "mappo": partial(prepare_ppax, central_critic=True)}


def work(system: str, iterations: int) -> None:
    """A worker: a line with a seed comes in, a line with the result goes out."""
    run = SYSTEMS[system](iterations)
    run(0)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        print(json.dumps(run(int(line))), flush=True)


class Worker:
    """One system in a process of its own."""

    def __init__(self, system: str, iterations: int):
        command = [sys.executable, __file__, "--worker", system, "--iterations", str(iterations)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        while self.read() != "ready":
            pass

    def read(self) -> Any:
        """The next line that is data."""
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            try:
                return json.loads(line)
            except ValueError:
                continue  # what a library has to say
        raise RuntimeError("a worker has died")

    def run(self, seed: int) -> tuple[float, int, float]:
        """One training."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seed}\n")
        self.process.stdin.flush()
        seconds, steps, score = self.read()
        return seconds, steps, score


def side_by_side(iterations: int, turns: int, systems: tuple[str, ...] = ("ppax", "jaxmarl")) -> dict[str, Any]:
    """All in turns: medians, and the median of the ratios within turns."""
    workers = {name: Worker(name, iterations) for name in systems}
    results = [{name: worker.run(seed) for name, worker in workers.items()} for seed in range(1, turns + 1)]
    for worker in workers.values():
        worker.process.terminate()
    speed = {name: [r[name][1] / r[name][0] for r in results] for name in workers}
    ratios = [a / b for a, b in zip(speed["ppax"], speed["jaxmarl"], strict=True)]
    return {
        "agent_steps_per_second": {name: statistics.median(x) for name, x in speed.items()},
        "ratio": [min(ratios), statistics.median(ratios), max(ratios)],
        "return_of_an_agent": {name: [round(r[name][2], 2) for r in results] for name in workers},
    }


def scores(options: argparse.Namespace) -> None:
    """Returns at the end of training, over seeds: means and their standard errors."""
    steps = int(options.score)
    title = f"{ENV}: mean return of an agent after {steps} steps, over {options.turns} seeds"
    report = Report("multi_agent_scores", title, CONFIG | {"turns": options.turns, "steps": steps})
    rounds = steps // (CONFIG["NUM_STEPS"] * CONFIG["NUM_ENVS"])
    result = side_by_side(rounds, options.turns, tuple(SYSTEMS))["return_of_an_agent"]
    for name, each in result.items():
        mean, error = statistics.mean(each), statistics.stdev(each) / len(each) ** 0.5
        print(f"{name:8} {mean:8.2f} +- {error:.2f}   {each}")
    report.save(results=[result])
    print(f"\nwritten: {report.path}")


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=40, help="of a timed run")
    parser.add_argument("--score", type=float, help="environment steps of runs whose returns are compared")
    parser.add_argument("--worker", choices=tuple(SYSTEMS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(options.worker, options.iterations)
    if options.score:
        return scores(options)
    own = {"turns": options.turns, "iterations": options.iterations}
    report = Report("multi_agent", f"{ENV}, one policy for three agents: ppax over JaxMARL's IPPO", CONFIG | own)
    result = side_by_side(options.iterations, options.turns)
    print(json.dumps(result, indent=1))
    low, median, high = result["ratio"]
    ratio = bar("16 environments", {"median": median, "min": low, "max": high}, TARGET)
    report.save(results=[result], panels=[panel("agent-steps/s over JaxMARL's", [ratio], "higher")])
    report.finish()
    return None


if __name__ == "__main__":
    main()
