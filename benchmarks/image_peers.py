"""The systems of images.py. Runs inside a worker (worker.py).

All train with W1's settings and the same network, one torso for actor and critic: on Atari the three convolutions of
DQN and a layer of 512; on MinAtar one convolution of 3 x 3 and a layer of 128. What differs:

* Stable-Baselines3 runs its `CnnPolicy` on its own `DummyVecEnv` with ppax's `AtariGame`, a Gymnasium environment, so
  that frames, lives and rewards are the same. It counts every step.
* before is an earlier version of ppax, from another checkout.
* ppax counts valid steps only, not autoreset rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import ours
import w1
from peers import BEFORE
from w1 import Prepared, Trained, Work, timed

ATARI, MINATAR = "atari/Breakout", "gymnax/Breakout-MinAtar"
HIDDEN = {ATARI: 512, MINATAR: 128}


def prepare_ppax(work: Work, env_id: str) -> Prepared:
    """`ppax.compile` of the environment's network in W1's agent."""
    import jax

    import ppax
    from ppax.networks import encoders, network

    env = ppax.make(env_id, work.num_envs)
    encoder: Any = encoders.NatureCNN(layout="chw") if env_id == ATARI else encoders.SmallCNN()
    built = network(env, encoder=encoder, hidden=(HIDDEN[env_id],), activation="relu", shared=True)
    agent = dataclasses.replace(ours.agent_for(env), network=built)
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


def prepare_sb3(work: Work, env_id: str) -> Prepared:
    """Stable-Baselines3's PPO with its `CnnPolicy`, on the CPU."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

    from ppax.envs.suites.atari_game import AtariGame, arcade

    game = env_id.split("/")[1]
    envs = VecMonitor(DummyVecEnv([partial(AtariGame, partial(arcade, game))] * work.num_envs))
    envs.seed(work.seed)
    model = PPO(
        "CnnPolicy",
        envs,
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


PREPARE: dict[str, Callable[[Work], Prepared]] = {
    f"sb3/{ATARI}": partial(prepare_sb3, env_id=ATARI),
    **{
        f"{name}/{env_id}": partial(prepare_ppax, env_id=env_id)
        for name in ("images", BEFORE)
        for env_id in (ATARI, MINATAR)
    },
}
