"""ppax by its fastest public functions, and `ppax.fit` with all recording on. Runs inside a worker (worker.py)."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import w1
from w1 import Prepared, Trained, Work, compile_timed, timed

MEMORIES = {"gru": "GRU", "lstm": "LSTM", "mingru": "MinGRU", "lru": "LRU"}  # systems "ppax-gru", ...
RATES = 16  # learning rates of the system "sweep"
DTYPES = {"auto": "", "float32": "-float32", "bfloat16": "-bfloat16"}  # `compute_dtype`; how such a system's name ends


def ppax_parts(work: Work, memory: str | None = None, dtype: str | None = None) -> tuple[Any, Any]:
    """W1's agent and environments; W3's where a memory is named. Without `dtype` that is the default."""
    import ppax

    env = ppax.envs.make("CartPole-v1", num_envs=work.num_envs)
    agent = agent_for(env, memory)
    return (agent if dtype is None else dataclasses.replace(agent, compute_dtype=dtype)), env


def agent_for(env: Any, memory: str | None = None) -> Any:
    """W1's agent, or W3's."""
    from ppax.networks import memories, mlp

    if memory is None:
        return agent_with(mlp(env, hidden=w1.HIDDEN))
    return agent_with(remembering(env, getattr(memories, MEMORIES[memory])(w1.MEMORY_WIDTH)))


def remembering(env: Any, cell: Any, width: int = w1.MEMORY_WIDTH) -> Any:
    """W3's network with another memory."""
    from ppax.networks import network

    return network(env, memory=cell, hidden=(width,), head_hidden=(width,), activation="relu", shared=True)


def agent_with(built: Any) -> Any:
    """W1's agent with another network."""
    import ppax

    of_loss: dict[str, Any] = {"clip_eps": w1.CLIP_EPS}
    of_agent: dict[str, Any] = {}
    # an earlier version, as `speed.py --before` measures, has the weights of the terms in the loss
    has_weights = any(field.name == "vf_coef" for field in dataclasses.fields(ppax.PPO))
    (of_agent if has_weights else of_loss).update(vf_coef=w1.VF_COEF, ent_coef=w1.ENT_COEF)
    return ppax.PPO(
        built,
        **of_agent,
        advantage=ppax.advantages.GAE(gae_lambda=w1.GAE_LAMBDA),
        loss=ppax.losses.ClippedSurrogate(**of_loss),
        minibatch=ppax.minibatches.Shuffle(num_minibatches=w1.MINIBATCHES),
        optimizer=ppax.optimizers.Adam(eps=w1.ADAM_EPS),
        learning_rate=w1.LEARNING_RATE,
        gamma=w1.GAMMA,
        max_grad_norm=w1.MAX_GRAD_NORM,
        num_epochs=w1.EPOCHS,
    )


def compile_ppax(agent: Any, env: Any, state: Any) -> tuple[Callable[[Any, int], Any], dict[str, float]]:
    """ppax's training program, (state, iterations) -> (state, metrics), and the seconds of each stage."""
    import ppax

    program = ppax.compile(agent, env, state)
    seconds = {name: getattr(program, name) for name in w1.STAGES}
    return lambda state, iterations: program(agent, env, state, iterations, iterations), seconds


def compile_sweep(agent: Any, env: Any, states: Any) -> tuple[Callable[[Any, int], Any], dict[str, float]]:
    """The same for many seeds at once, with stacked states."""
    import jax

    import ppax

    program, seconds = compile_timed(jax.jit(ppax.sweep, donate_argnums=2), agent, env, states, 1)
    return lambda states, iterations: program(agent, env, states, iterations), seconds


def prepare_ppax(
    work: Work,
    afresh: bool = False,
    memory: str | None = None,
    dtype: str | None = None,
    **program: Any,
) -> Prepared:
    """One compiled program, the state donated; `afresh`: every run begins with new weights.

    `program`: fields of the agent's layout, as `chunk_rows`.
    """
    import jax

    import ppax

    agent, env = ppax_parts(work, memory, dtype)
    if program:
        agent = dataclasses.replace(agent, program=dataclasses.replace(agent.program, **program))
    many = work.num_seeds > 1

    def start(seed: Any) -> Any:
        key = jax.random.key(seed)
        if not many:
            return ppax.start(agent, env, w1.NUM_STEPS, key)
        return ppax.start_sweep(agent, env, w1.NUM_STEPS, jax.random.split(key, work.num_seeds))

    start = jax.jit(start)
    state, start_seconds = timed(lambda: jax.block_until_ready(start(work.seed)))
    program, seconds = (compile_sweep if many else compile_ppax)(agent, env, state)
    held = {"state": state}

    def run(iterations: int) -> Trained:
        if afresh:
            held["state"] = jax.block_until_ready(start(work.seed))
        before = count_steps(held["state"])
        result, elapsed = timed(lambda: jax.block_until_ready(program(held["state"], iterations)))
        held["state"] = result[0]
        return Trained(elapsed, count_steps(held["state"]) - before)

    return run, {"start_seconds": start_seconds, **seconds}


def count_steps(state: Any) -> int:
    """Valid steps of all seeds since they began; a counter is two words."""
    import numpy as np

    low, high = np.asarray(state.env_steps).reshape(-1, 2).astype(object).sum(axis=0)
    return int(low + (high << 32))


def prepare_fit(work: Work) -> Prepared:
    """`ppax.fit` with a run directory: metrics, logs and checkpoints. Its own clock starts after compilation."""
    import ppax
    from ppax.config import Log

    agent, env = ppax_parts(work)

    def run(iterations: int) -> Trained:
        with tempfile.TemporaryDirectory() as folder:
            total, log = work.rows(iterations), Log(console=False)
            trained = ppax.fit(agent, env, total, work.seed, Path(folder) / "run", num_steps=w1.NUM_STEPS, log=log)
            elapsed = time.time() - trained.started_at
        return Trained(elapsed, trained.env_steps)

    return run, {}


def prepare_sweep(work: Work) -> Prepared:
    """`ppax sweep` over 16 learning rates, with run directories, logs and checkpoints; the clock omits compilation."""
    import json

    import numpy as np

    import ppax
    from ppax.config import Built, Log, Run
    from ppax.config.run_settings import EvalSettings

    agent, env = ppax_parts(work)
    rates = np.geomspace(1e-4, 1e-2, RATES).round(6).tolist()

    def run(iterations: int) -> Trained:
        steps = iterations * w1.NUM_STEPS * work.num_envs
        sizes = {"num_envs": work.num_envs, "num_steps": w1.NUM_STEPS, "total_steps": steps}
        settings = Run(**sizes, seed=work.seed, log=Log(console=False), eval=EvalSettings(episodes=1))
        with tempfile.TemporaryDirectory() as folder:
            members, elapsed = timed(lambda: sweep(settings, folder).members)
            rows = [json.loads((member.run_dir / "metrics.jsonl").read_text().splitlines()[-1]) for member in members]
        return Trained(elapsed - rows[0]["compile_seconds"], sum(row["env_steps"] for row in rows))

    def sweep(settings: Run, folder: str) -> Any:
        seeds = work.num_seeds // RATES
        return ppax.sweep_runs(Built(agent, env, settings), {"agent.learning_rate": rates}, seeds=seeds, run_dir=folder)

    return run, {}
