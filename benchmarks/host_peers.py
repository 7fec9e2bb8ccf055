"""The systems of host.py, on Gymnasium. Runs inside a worker (worker.py).

All train with W1's settings: separate 2x64 tanh actor and critic, 128 steps, 4 epochs of 4 minibatches. What differs:

* Stable-Baselines3 steps its own `DummyVecEnv`, counts every step, and bootstraps truncated episodes.
* SBX is the same in JAX: its policy is compiled, the loop around it is Stable-Baselines3's.
* the CleanRL-style PPO has the structure of CleanRL's `ppo.py` (https://github.com/vwxyzjn/cleanrl), rewritten for the
  current `SyncVectorEnv`; as in CleanRL, truncation is treated as termination, and autoreset rows are trained on.
* raw is Gymnasium's `SyncVectorEnv` with random actions drawn beforehand: no policy and no learning.
* ppax counts valid steps only, not autoreset rows.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import ours
import w1
from w1 import Prepared, Trained, Work, timed

ENDLESS = 2**31 - 1  # iterations of a training of which runs are parts
ENVS = ("CartPole-v1", "HalfCheetah-v5")


def prepare_ppax(work: Work, env_id: str, overlap: int = 0) -> Prepared:
    """`ppax.compile` on Gymnasium's environments."""
    import jax

    import ppax
    from ppax.training.host import for_overlap

    env = ppax.make(f"gymnasium/{env_id}", work.num_envs)
    agent = ours.agent_for(env)
    agent = for_overlap(agent, env, w1.NUM_STEPS, overlap)  # as `fit` does
    state = jax.jit(lambda key: ppax.start(agent, env, w1.NUM_STEPS, key))(jax.random.key(work.seed))
    program = ppax.compile(agent, env, state)
    program.overlap = overlap
    held = {"state": state}

    def run(iterations: int) -> Trained:
        before = ours.count_steps(held["state"])
        result, elapsed = timed(lambda: jax.block_until_ready(program(agent, env, held["state"], iterations, ENDLESS)))
        held["state"] = result[0]
        return Trained(elapsed, ours.count_steps(held["state"]) - before)

    return run, {"compile_seconds": program.compile_seconds}


def prepare_raw(work: Work, env_id: str) -> Prepared:
    """Random actions."""
    import gymnasium
    import numpy as np

    env = gymnasium.make_vec(env_id, work.num_envs, vectorization_mode="sync")
    env.reset(seed=work.seed)
    env.action_space.seed(work.seed)
    actions = [np.asarray(env.action_space.sample()) for _ in range(w1.NUM_STEPS)]

    def step(iterations: int) -> None:
        for _ in range(iterations):
            for action in actions:
                env.step(action)

    def run(iterations: int) -> Trained:
        _, elapsed = timed(lambda: step(iterations))
        return Trained(elapsed, work.rows(iterations))

    return run, {}


def prepare_sb3(work: Work, env_id: str, library: str = "stable_baselines3") -> Prepared:
    """Stable-Baselines3 or SBX, as their documentation has it, on the CPU."""
    PPO = importlib.import_module(library).PPO
    from stable_baselines3.common.env_util import make_vec_env

    model = PPO(
        "MlpPolicy",
        make_vec_env(env_id, n_envs=work.num_envs, seed=work.seed),
        learning_rate=w1.LEARNING_RATE,
        n_steps=w1.NUM_STEPS,
        batch_size=w1.NUM_STEPS * work.num_envs // w1.MINIBATCHES,
        n_epochs=w1.EPOCHS,
        gamma=w1.GAMMA,
        gae_lambda=w1.GAE_LAMBDA,
        clip_range=w1.CLIP_EPS,
        ent_coef=w1.ENT_COEF,
        vf_coef=w1.VF_COEF,
        max_grad_norm=w1.MAX_GRAD_NORM,
        seed=work.seed,
        device="cpu",
    )

    def run(iterations: int) -> Trained:
        rows = work.rows(iterations)
        _, elapsed = timed(lambda: model.learn(rows, reset_num_timesteps=False, log_interval=None))
        return Trained(elapsed, rows)

    return run, {}


def prepare_cleanrl(work: Work, env_id: str) -> Prepared:
    """PPO in one file, in CleanRL's style."""
    from cleanrl_style import Trainer

    trainer: Any = Trainer(env_id, work.num_envs, work.seed)

    def run(iterations: int) -> Trained:
        _, elapsed = timed(lambda: trainer.train(iterations))
        return Trained(elapsed, work.rows(iterations))

    return run, {}


SYSTEMS = {
    "host": prepare_ppax,
    "overlap": functools.partial(prepare_ppax, overlap=1),
    "raw": prepare_raw,
    "sb3": prepare_sb3,
    "sbx": functools.partial(prepare_sb3, library="sbx"),
    "cleanrl": prepare_cleanrl,
}
PREPARE = {f"{name}/{env}": functools.partial(prepare, env_id=env) for name, prepare in SYSTEMS.items() for env in ENVS}
