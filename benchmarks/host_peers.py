"""The systems of host.py: CartPole-v1 on Gymnasium. Runs inside a worker (worker.py).

All train with W1's settings: separate 2x64 tanh actor and critic, 128 steps, 4 epochs of 4 minibatches. What differs:

* Stable-Baselines3 steps its own `DummyVecEnv`, counts every step, and sees the last observation of what was truncated.
* the CleanRL-style PPO is CleanRL's `ppo.py` by its structure (https://github.com/vwxyzjn/cleanrl), written again here
  for `SyncVectorEnv` of today; as there, truncation is a true end, and the row of a reset is learned from as any other.
* raw is Gymnasium's `SyncVectorEnv` with random actions that were drawn before: no policy and no learning.
* ppax counts valid steps alone: the rows in which an environment begins anew are none.
"""

from __future__ import annotations

from typing import Any

import ours
import w1
from w1 import Prepared, Trained, Work, timed

ENV = "CartPole-v1"


def prepare_ppax(work: Work, vectorization: str = "sync") -> Prepared:
    """`ppax.compile` on Gymnasium's environments."""
    import jax

    import ppax

    env = ppax.make(f"gymnasium/{ENV}", work.num_envs, vectorization=vectorization)
    agent = ours.agent_for(env)
    state = jax.jit(lambda key: ppax.start(agent, env, w1.NUM_STEPS, key))(jax.random.key(work.seed))
    program = ppax.compile(agent, env, state)
    held = {"state": state}

    def run(iterations: int) -> Trained:
        before = ours.count_steps(held["state"])
        result, elapsed = timed(
            lambda: jax.block_until_ready(program(agent, env, held["state"], iterations, iterations))
        )
        held["state"] = result[0]
        return Trained(elapsed, ours.count_steps(held["state"]) - before)

    return run, {"compile_seconds": program.compile_seconds}


def prepare_raw(work: Work) -> Prepared:
    """Random actions."""
    import gymnasium
    import numpy as np

    env = gymnasium.make_vec(ENV, work.num_envs, vectorization_mode="sync")
    env.reset(seed=work.seed)
    actions = np.random.default_rng(work.seed).integers(0, 2, (w1.NUM_STEPS, work.num_envs))

    def step(iterations: int) -> None:
        for _ in range(iterations):
            for action in actions:
                env.step(action)

    def run(iterations: int) -> Trained:
        _, elapsed = timed(lambda: step(iterations))
        return Trained(elapsed, work.rows(iterations))

    return run, {}


def prepare_sb3(work: Work) -> Prepared:
    """Stable-Baselines3 as its documentation has it, on the CPU."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    model = PPO(
        "MlpPolicy",
        make_vec_env(ENV, n_envs=work.num_envs, seed=work.seed),
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


def prepare_cleanrl(work: Work) -> Prepared:
    """PPO in one file, in CleanRL's style."""
    from cleanrl_style import Trainer

    trainer: Any = Trainer(ENV, work.num_envs, work.seed)

    def run(iterations: int) -> Trained:
        _, elapsed = timed(lambda: trainer.train(iterations))
        return Trained(elapsed, work.rows(iterations))

    return run, {}


PREPARE = {
    "host": prepare_ppax,
    "host-async": lambda work: prepare_ppax(work, "async"),
    "raw": prepare_raw,
    "sb3": prepare_sb3,
    "cleanrl": prepare_cleanrl,
}
