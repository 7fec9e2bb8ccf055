"""The systems of predecessors.py. Runs inside a worker (worker.py).

rl8's CartPole (no episode ends; all restart after each rollout): 8,192 environments, 32 steps, separate 2x256 relu
actor and critic, four gradient steps of the whole batch, rewards scaled, Adam. What differs: rl8 calls `reset`
after each rollout and caps its value loss; ppax truncates every episode there (`iterations_per_env_reset = 1`).
Systems of ppax whose name ends in `-float32` or `-bfloat16` have that `compute_dtype`; rl8's mixed precision,
`enable_amp`, is refused without CUDA.

Sixty-four navigators in each of 64 boxes, observing with 16 rays: 64 steps, a shared MLP of three layers of 42 with
gelu, Muon, V-trace recomputed before each of four gradient steps, each on a quarter of all sequences by
priority. What differs: the
physics of JaxDEM is a general discrete element method, ppax's box is one made for the task; JaxDEM's rays are angular
bins with the nearest centre in each, ppax's meet the discs' edges; JaxDEM's action is squashed to a ball, ppax's
clipped to a box. Both take one physics step an action.
"""

from __future__ import annotations

import importlib
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import ours
import w1
from w1 import Prepared, Trained, Work, timed

FOLDERS = {"rl8": "RL8", "jaxdem": "JAXDEM"}  # environment variables
INSIDE = {"rl8": "examples/cartpole/env.py", "jaxdem": "jaxdem/rl/trainers/ppo_trainer.py"}
RL8: dict[str, Any] = {"num_envs": 8192, "num_steps": 32, "epochs": 4, "hidden": (256, 256)}
JAXDEM: dict[str, Any] = {"num_envs": 64, "agents": 64, "num_steps": 64, "minibatches": 4, "hidden": (42, 42, 42)}


def folder(system: str) -> Path | None:
    """Where its checkout lies; None where it was not named. Raises SystemExit where it is not there."""
    named = os.environ.get(FOLDERS[system])
    if named and not (Path(named) / INSIDE[system]).is_file():
        raise SystemExit(f"{FOLDERS[system]}={named}: there is no {INSIDE[system]}; name a checkout, or unset it")
    return Path(named).resolve() if named else None


def enter(system: str) -> None:
    """Let its checkout be imported from."""
    path = folder(system)
    assert path is not None, f"{FOLDERS[system]} is not set"
    sys.path.insert(0, str(path))


# ---------------------------------------------------------------- rl8


def prepare_rl8(work: Work) -> Prepared:
    """rl8's feedforward algorithm, collect and step, without its trainer's logs."""
    from rl8 import AlgorithmConfig

    enter("rl8")
    env = importlib.import_module("examples.cartpole.env")
    algorithm = AlgorithmConfig(
        horizon=RL8["num_steps"],
        num_envs=work.num_envs,
        num_sgd_iters=RL8["epochs"],
        model_config={"hiddens": RL8["hidden"]},
        device="cpu",
    ).build(env.CartPole)

    def train(iterations: int) -> None:
        for _ in range(iterations):
            algorithm.collect()
            algorithm.step()

    def run(iterations: int) -> Trained:
        _, elapsed = timed(lambda: train(iterations))
        return Trained(elapsed, iterations * RL8["num_steps"] * work.num_envs)

    return run, {}


def prepare_ppax_rl8(work: Work, dtype: str = "float32") -> Prepared:
    """The same by ppax: the preset `styles/rl8` on rl8's world."""
    import ppax
    from ppax.ppo.critics import Regression
    from ppax.ppo.minibatches import Shuffle

    env = ppax.make("rl8/CartPole", work.num_envs)
    agent = ppax.PPO(
        ppax.networks.mlp(env, hidden=RL8["hidden"], activation="relu"),
        vf_coef=1.0,
        critic=Regression(huber_delta=1.0),
        minibatch=Shuffle(1),
        learning_rate=1e-3,
        gamma=0.95,
        num_epochs=RL8["epochs"],
        max_grad_norm=5.0,
        normalize_reward=True,
        normalize_advantage="rollout",
        compute_dtype=dtype,
    )
    return _prepare(agent, env, RL8["num_steps"], work.seed, iterations_per_env_reset=1)


# ---------------------------------------------------------------- JaxDEM


def prepare_jaxdem(work: Work) -> Prepared:
    """JaxDEM's trainer, epoch by epoch as its `train` does without logs."""
    import jax
    import jax.numpy as jnp
    from flax import nnx

    enter("jaxdem")
    rl = importlib.import_module("jaxdem.rl")
    env = rl.Environment.create("multi_navigator", N=JAXDEM["agents"])
    model = rl.Model.create(
        "SharedActorCritic",
        key=nnx.Rngs(jax.random.key(work.seed)),
        observation_space_size=env.observation_space_size,
        action_space_size=env.action_space_size,
        architecture=JAXDEM["hidden"],
        action_space=rl.ActionSpace.create("max_norm", max_norm=6.0),
    )
    trainer = rl.Trainer.create(
        "PPO",
        env=env,
        model=model,
        key=jax.random.key(work.seed),
        num_envs=work.num_envs,
        num_steps_epoch=JAXDEM["num_steps"],
        num_minibatches=JAXDEM["minibatches"],
    )
    held = {"trainer": trainer, "epoch": 0}

    def train(iterations: int) -> None:
        for _ in range(iterations):
            held["trainer"], _, metrics = trainer.epoch(held["trainer"], jnp.asarray(held["epoch"], int))
            held["epoch"] += 1
        jax.block_until_ready((held["trainer"], metrics))

    _, seconds = timed(lambda: train(1))

    def run(iterations: int) -> Trained:
        _, elapsed = timed(lambda: train(iterations))
        return Trained(elapsed, iterations * JAXDEM["num_steps"] * work.num_envs * JAXDEM["agents"])

    return run, {"compile_seconds": seconds}


def prepare_ppax_jaxdem(work: Work, dtype: str = "float32") -> Prepared:
    """The same by ppax: the preset `styles/jaxdem` on its crowd of navigators."""
    import ppax
    from ppax.envs import TimeLimit, VectorEnv, builtin
    from ppax.envs.builtin.navigator import CROWD
    from ppax.ppo.advantages import VTrace
    from ppax.ppo.critics import Regression
    from ppax.ppo.minibatches import Prioritised
    from ppax.ppo.optimizers import Muon
    from ppax.ppo.schedules import Cosine

    crowd = builtin.Navigator(num_agents=JAXDEM["agents"], radius=0.04, **CROWD)
    env = VectorEnv(TimeLimit(crowd, 100_000), work.num_envs)
    agent = ppax.PPO(
        ppax.networks.mlp(env, hidden=JAXDEM["hidden"], activation="gelu", shared=True),
        advantage=VTrace(),
        vf_coef=2.0,
        ent_coef=0.001,
        critic=Regression(value_clip=0.2),
        minibatch=Prioritised(num_minibatches=JAXDEM["minibatches"], alpha=0.8, beta=0.2, weighted="advantage"),
        optimizer=Muon(),
        schedule=Cosine(),
        learning_rate=1e-2,
        num_epochs=1,
        max_grad_norm=1.5,
        seq_len=JAXDEM["num_steps"],
        recompute=ppax.recompute.Minibatch(),
        compute_dtype=dtype,
    )
    return _prepare(agent, env, JAXDEM["num_steps"], work.seed)


def _prepare(agent: Any, env: Any, num_steps: int, seed: int, **start: Any) -> Prepared:
    """One compiled program of ppax, the state donated."""
    import jax

    import ppax

    state = jax.jit(lambda key: ppax.start(agent, env, num_steps, key, **start))(jax.random.key(seed))
    program = ppax.compile(agent, env, state)
    held = {"state": state}

    def run(iterations: int) -> Trained:
        before = ours.count_steps(held["state"])
        result, elapsed = timed(lambda: jax.block_until_ready(program(agent, env, held["state"], iterations, 10**6)))
        held["state"] = result[0]
        return Trained(elapsed, ours.count_steps(held["state"]) - before)

    return run, {name: getattr(program, name) for name in w1.STAGES}


PREPARE = {
    "rl8": prepare_rl8,
    "jaxdem": prepare_jaxdem,
    **{f"ppax-rl8{end}": partial(prepare_ppax_rl8, dtype=dtype) for dtype, end in ours.DTYPES.items()},
    **{f"ppax-jaxdem{end}": partial(prepare_ppax_jaxdem, dtype=dtype) for dtype, end in ours.DTYPES.items()},
}
