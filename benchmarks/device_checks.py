"""Checks of ppax on the devices that JAX finds, against a reference: float64 NumPy, another program, or a repeated run.

For accelerator.py. The oracles are those of the tests (tests/reference.py, tests/support); pytest is not needed. Some
accelerators round factors of float32 products to 10 bits unless JAX is told otherwise. Equations are checked without
that rounding (`jax_default_matmul_precision = "highest"`); ppax avoids it by itself, which the last row checks.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).parent.parent / "tests"
sys.path[:0] = [str(TESTS)]

import jax  # noqa: E402
import numpy as np  # noqa: E402

import ours  # noqa: E402
import ppax  # noqa: E402
from ppax.checks.context import differing_leaves  # noqa: E402
from ppax.config import Log  # noqa: E402
from ppax.devices.platforms import rules  # noqa: E402
from ppax.networks import memories  # noqa: E402
from ppax.networks.encoders import convolve_by_library, convolve_by_products  # noqa: E402
from support import memory_oracles, reference_cases, rounded, sharded  # noqa: E402
from w1 import Work  # noqa: E402

# A changed number of the algorithm moves the reference's parameters by 2e-5 at least (tests/system/test_reference.py);
# accelerators round exp and tanh less well than a CPU, where parameters differ by 7e-7
REFERENCE = 5 * reference_cases.PARAMS_ATOL
EQUATIONS = 2e-5  # relative; of memories and convolutions
RATIO = {"float32": 1e-5, "bfloat16": 5e-2}
LEARNED = 60.0  # mean return of CartPole after LEARNING iterations; an untrained policy has some 22
LEARNING = 30
WIDTH, ENVS, STEPS = 32, 16, 32
CELLS = {
    "none": memories.NoMemory(),
    "gru": memories.GRU(WIDTH),
    "lru": memories.LRU(WIDTH),
    "mingru": memories.MinGRU(WIDTH),
    "lstm": memories.LSTM(WIDTH),
    "attention": memories.Attention(WIDTH, steps=8, heads=4),
    "window": memories.Window(steps=4, hidden=(WIDTH,)),
    "stack of mingru": memories.Stack(memories.MinGRU(WIDTH), 2),
}


class Outcome(NamedTuple):
    """Result of a check."""

    passed: bool | None  # None: it does not apply, or has no limit
    value: float | None = None  # largest deviation, or what `note` says
    allowed: float | None = None
    note: str = ""


class Check(NamedTuple):
    """A check and its name."""

    name: str
    run: Callable[[], Outcome]


def within(value: float, allowed: float, note: str = "") -> Outcome:
    """Outcome that passes if `value` is at most `allowed`; NaN fails."""
    return Outcome(bool(value <= allowed), float(value), allowed, note)


def run_all(checks: list[Check], seconds: float) -> Iterator[dict[str, Any]]:
    """Run checks for about `seconds`, and yield a row for each; those that would take longer are left out."""
    begin, slowest = time.monotonic(), 0.0
    for check in checks:
        left = seconds - (time.monotonic() - begin)
        if left < slowest:
            yield {
                "check": check.name,
                **Outcome(None, note=f"left out: {left:.0f} s were left")._asdict(),
                "seconds": 0.0,
            }
            continue
        start = time.monotonic()
        try:
            outcome = check.run()
        except Exception as error:  # a check that cannot run is a failed one
            lines = str(error).strip().splitlines() or [type(error).__name__]
            outcome = Outcome(False, note=" ".join(" ".join(lines[:8]).split())[:300])
        spent = time.monotonic() - start
        slowest = max(slowest, spent)
        yield {"check": check.name, **outcome._asdict(), "seconds": round(spent, 2)}


# ---------------------------------------------------------------- equations


def check_reference(case: Any) -> Outcome:
    """Two updates, against the reference learner in float64."""
    off = reference_cases.distance(case, reference_cases.replay(case, reference_cases.hyper_of(case)))
    return within(off, REFERENCE, "parameters after two updates")


def check_memory(name: str) -> Outcome:
    """Features of a sequence with resets, against float64 equations step by step."""
    got, exact = memory_oracles.features(name, "often")
    return within((np.abs(got - exact) / (1.0 + np.abs(exact))).max(), EQUATIONS, "features")


def check_rounding() -> Outcome:
    """Values of a network in bfloat16, against float64 with rounded factors."""
    got, exact = rounded.values(64, 64)
    return within(np.abs(got - exact).max(), EQUATIONS, "values")


def check_convolution() -> Outcome:
    """XLA's convolution, against products of patches."""
    rng = np.random.default_rng(0)
    x, kernel = rng.normal(size=(20, 20, 4)).astype(np.float32), rng.normal(size=(8, 8, 4, 16)).astype(np.float32)
    one, other = (
        jax.jit(f, static_argnums=(2, 3))(x, kernel, 4, "SAME") for f in (convolve_by_library, convolve_by_products)
    )
    return within(np.abs(one - other).max() / np.abs(other).max(), EQUATIONS, "outputs")


# ---------------------------------------------------------------- training


def trained(agent: Any, env: Any, iterations: int, steps: int = STEPS) -> tuple[Any, dict[str, Any]]:
    """State and metrics after some iterations."""
    options = rules().run_once_options
    start = jax.jit(ppax.start, static_argnames="num_steps", compiler_options=options)
    train = jax.jit(ppax.train, donate_argnames="state", compiler_options=options)
    state, metrics = train(agent, env, start(agent, env, steps, jax.random.key(0)), iterations, iterations)
    return state, jax.device_get(metrics)


def agent_of(cell: str, dtype: str = "float32") -> tuple[Any, Any]:
    """W1's agent with a memory, and CartPole."""
    env = ppax.make("CartPole-v1", ENVS)
    return dataclasses.replace(ours.agent_with(ours.remembering(env, CELLS[cell], WIDTH)), compute_dtype=dtype), env


def check_ratio(cell: str, dtype: str) -> Outcome:
    """The probability ratio before the first gradient step is 1, and moves after it."""
    _, metrics = trained(*agent_of(cell, dtype), 1)
    if not metrics["ratio_max"] > 1.0 + 1e-4:
        return Outcome(False, float(metrics["ratio_max"]), None, "the ratio does not move")
    return within(metrics["ratio_first_max_dev"], RATIO[dtype], "deviation from 1")


def check_repeats(cell: str) -> Outcome:
    """The same iterations again give the same bits."""
    agent, env = agent_of(cell)
    one, other = (trained(agent, env, 3)[0] for _ in range(2))
    return _same_bits(one, other, "leaves that differ")


def check_resume(cell: str) -> Outcome:
    """A run that is resumed has the bits of one that is not."""
    agent, env = agent_of(cell)
    total = 4 * STEPS * ENVS
    with tempfile.TemporaryDirectory() as folder:
        half = Path(folder) / "half"
        fit = partial(ppax.fit, agent, env, num_steps=STEPS, log=Log(console=False))
        whole = fit(total, run_dir=Path(folder) / "whole")
        fit(total // 2, run_dir=half)
        resumed = ppax.resume(half, console=False, total_steps=total)
    return _same_bits(whole.state, resumed.state, "leaves that differ")


def _same_bits(one: Any, other: Any, note: str) -> Outcome:
    differ = differing_leaves(one, other)
    advice = "; deterministic programs: XLA_FLAGS=--xla_gpu_deterministic_ops=true" if differ else ""
    return within(len(differ), 0, note + advice)


def check_sharding() -> Outcome:
    """Training on several devices, against one."""
    available = len(jax.local_devices())
    devices = next((d for d in (4, 2) if d <= available), 1)  # of 4 environments
    if devices == 1:
        return Outcome(None, note="one device: nothing to shard over")
    sharded.require_same("memory", devices)
    return Outcome(True, devices, None, "devices")


def check_learning(dtype: str) -> Outcome:
    """CartPole is learned."""
    agent, env = ours.ppax_parts(Work(64, 1, LEARNING, 0), dtype=dtype)
    _, metrics = trained(agent, env, LEARNING, 128)
    found = float(metrics["episode_return"])
    return Outcome(found >= LEARNED, found, LEARNED, "mean return, at least")


def check_selftest(cell: str) -> Outcome:
    """`ppax.selftest` on this device."""
    report = ppax.selftest(*agent_of(cell), STEPS, jax.random.key(0))
    failed = [f"{check.name}: {check.text}" for check in report.checks if check.passed is False]
    return within(len(failed), 0, "; ".join(failed)[:300] or f"{len(report.checks)} checks")


def check_unset_precision() -> Outcome:
    """Two updates against the reference in float64, where JAX's precision of products is not set."""
    jax.config.update("jax_default_matmul_precision", None)
    outcome = check_reference(reference_cases.CASES[8])
    jax.config.update("jax_default_matmul_precision", "highest")
    return outcome


def all_checks(quick: bool) -> list[Check]:
    """Checks in order of importance; `quick`: a few that are cheap."""
    jax.config.update("jax_default_matmul_precision", "highest")
    case_of = reference_cases.CASES
    cases = {"all on": case_of[8], "masked": case_of[4], "separate": case_of[0], "normal": case_of[1]}
    cases |= {"popart": reference_cases.LAID_OUT, "shared": case_of[2], "pad": case_of[9]}
    names = [name for name in memory_oracles.MEMORIES if name != "none"]
    cells = list(CELLS)
    if quick:
        cases, names, cells = {"all on": case_of[8]}, ["gru", "lru"], ["lru"]
    first, *others = (
        Check(f"reference update, {name}", partial(check_reference, case)) for name, case in cases.items()
    )
    ratios = [
        Check(f"ratio 1, {cell}, {dtype}", partial(check_ratio, cell, dtype))
        for cell in cells
        for dtype in (("float32", "bfloat16") if not quick else ("bfloat16",))
    ]
    of_memories = [Check(f"memory, {name}", partial(check_memory, name)) for name in names]
    exact = [Check("bfloat16 products", check_rounding), Check("convolution", check_convolution)]
    resume = Check("resume, bit for bit", partial(check_resume, "none" if quick else "gru"))
    if quick:
        return [first, *of_memories, *exact, *ratios, resume]
    again = Check("the same bits again", partial(check_repeats, "gru"))
    runs = [resume, Check("sharding", check_sharding), again]
    runs += [Check(f"learns CartPole, {dtype}", partial(check_learning, dtype)) for dtype in RATIO]
    rest = [
        Check("selftest, gru", partial(check_selftest, "gru")),
        Check("reference update, precision not set", check_unset_precision),
    ]
    return [first, *ratios[:4], *runs, *of_memories, *exact, *others, *ratios[4:], *rest]
