"""Time of one action: `policy.act` against Stable-Baselines3's `predict`, and the same step in onnxruntime.

    pip install "ppax[bench]" stable-baselines3 jax2onnx onnxruntime
    python benchmarks/latency.py              # some two minutes; results/latency.json and .png
    python benchmarks/latency.py --quick      # a few turns, nothing written

Both sides have an actor of the same sizes (tanh, separate from the critic), take one NumPy observation and return one
NumPy action, the mode of the distribution. ppax also normalises observations, which Stable-Baselines3 leaves to an
environment wrapper. torch runs on one thread, which is faster for a single observation. The systems take turns in one
process; a turn is the median time of CALLS calls of each, a ratio is the median over the turns, with its range.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import numpy as np
from gymnasium import spaces

import ppax
from interleave import spread
from ppax.policy.spec import PolicySpec
from report import Report, bar, panel

CALLS, TURNS, TARGET = 200, 60, 5.0


class Case(NamedTuple):
    """One policy and the number of observations of a call."""

    name: str
    observations: int  # numbers in one observation
    action: spaces.Space
    hidden: tuple[int, ...]
    batch: int | None = None  # None: one observation


CASES = (
    Case("CartPole, 2x64", 4, spaces.Discrete(2), (64, 64)),
    Case("Hopper, 2x64", 11, spaces.Box(-1.0, 1.0, (3,), np.float32), (64, 64)),
    Case("Humanoid, 2x256", 348, spaces.Box(-0.4, 0.4, (17,), np.float32), (256, 256)),
    Case("CartPole, batch of 64", 4, spaces.Discrete(2), (64, 64), 64),
)


class Still(gymnasium.Env):
    """Environment of which only the spaces are read."""

    def __init__(self, case: Case):
        self.observation_space = spaces.Box(-np.inf, np.inf, (case.observations,), np.float32)
        self.action_space = case.action


def systems(case: Case) -> dict[str, Callable[[], Any]]:
    """Calls of one action, by system."""
    rng, shape = (
        np.random.default_rng(0),
        (case.observations,) if case.batch is None else (case.batch, case.observations),
    )
    obs, env = rng.normal(size=shape).astype(np.float32), Still(case)
    spec = PolicySpec(env.observation_space, env.action_space, env=case.name)
    agent = ppax.PPO(ppax.networks.mlp(spec, hidden=case.hidden), normalize_obs=True)
    policy = ppax.Policy(agent, agent.init(spec.observation_space, jax.random.key(0)), spec)
    calls: dict[str, Callable[[], Any]] = {"ppax": lambda: policy.act(obs)}
    calls["stable-baselines3"] = stable_baselines3(case, env, obs)
    onnx = onnxruntime(policy, obs if case.batch else obs[None])
    return calls | ({} if onnx is None else {"onnxruntime": onnx})


def stable_baselines3(case: Case, env: gymnasium.Env, obs: np.ndarray) -> Callable[[], Any]:
    import stable_baselines3
    import torch

    torch.set_num_threads(1)
    model = stable_baselines3.PPO("MlpPolicy", env, policy_kwargs={"net_arch": list(case.hidden)}, device="cpu")
    return lambda: model.predict(obs, deterministic=True)


def onnxruntime(policy: ppax.Policy, obs: np.ndarray) -> Callable[[], Any] | None:
    """The same step as an ONNX model in onnxruntime, on one thread, without a wrapper; None where it is missing."""
    try:
        import jax2onnx
        import onnxruntime as runtime
    except ImportError:
        return None

    def step(obs: Any) -> Any:
        return policy.step((), obs, np.ones(obs.shape[0], bool)).action

    model = jax2onnx.to_onnx(step, [jax.ShapeDtypeStruct(obs.shape, np.float32)]).SerializeToString()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    given = {session.get_inputs()[0].name: obs}
    np.testing.assert_allclose(session.run(None, given)[0], policy.act(obs), rtol=1e-4, atol=1e-5)
    return lambda: session.run(None, given)


def turn(calls: dict[str, Callable[[], Any]], count: int) -> dict[str, float]:
    """Median microseconds of a call of each system."""
    took = {}
    for name, call in calls.items():
        times = []
        for _ in range(count):
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
        took[name] = statistics.median(times) * 1e6
    return took


def main(quick: bool) -> None:
    report = Report(
        None if quick else Path(__file__).stem,
        "One action of a trained policy: ppax against others",
        {
            "calls in a turn": CALLS,
            "turns": TURNS,
            "deterministic": True,
            "torch threads": 1,
        },
    )
    results, bars = {}, {"stable-baselines3": [], "onnxruntime": []}
    for case in CASES:
        calls = systems(case)
        for call in calls.values():
            call()
        turns = [turn(calls, CALLS) for _ in range(5 if quick else TURNS)]
        micro = {name: round(statistics.median(one[name] for one in turns), 1) for name in calls}
        ratios = {name: spread([one[name] / one["ppax"] for one in turns]) for name in calls if name != "ppax"}
        results[case.name] = {"microseconds": micro, "over ppax": ratios}
        for name, ratio in ratios.items():
            bars[name].append(bar(case.name, ratio, TARGET if name == "stable-baselines3" and not case.batch else None))
        print(f"{case.name}: {micro}, ratios { ({name: round(one['median'], 2) for name, one in ratios.items()}) }")
    titles = {
        "stable-baselines3": "time of Stable-Baselines3's predict over policy.act",
        "onnxruntime": "time of onnxruntime over policy.act",
    }
    panels = [panel(titles[name], shown, "higher") for name, shown in bars.items() if shown]
    report.save(results=results, panels=panels)
    report.finish()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few turns, nothing written")
    main(parser.parse_args().quick)
