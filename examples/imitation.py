"""Imitation on CartPole: a small student of a trained teacher, and a clone of the teacher's recorded episodes."""

import jax
import jax.numpy as jnp
import numpy as np

import ppax

ITERATIONS = 60  # of the teacher; each imitator has half as many


def main() -> dict[str, float]:
    """Train a teacher and its two imitators; print and return mean returns."""
    env = ppax.make("CartPole-v1", num_envs=16)
    log, steps = ppax.Log(console=False), env.num_envs * 64
    agent = ppax.PPO(ppax.networks.mlp(env), learning_rate=1e-3)
    run = ppax.fit(agent, env, ITERATIONS * steps, num_steps=64, log=log)
    scores = {"teacher": run.evaluate(episodes=64).mean_return}
    ways = {
        "student": ppax.imitation.distill(env, run.policy()),
        "clone": ppax.imitation.clone(env, recorded(agent, env, run.state.learner)),
    }
    for name, way in ways.items():
        alone = ppax.losses.NoPolicyLoss()  # imitation replaces PPO's policy loss
        pupil = ppax.PPO(ppax.networks.mlp(env, hidden=(16,)), loss=alone, extensions=(way,), learning_rate=3e-3)
        pupil_run = ppax.fit(pupil, env, ITERATIONS // 2 * steps, num_steps=64, log=log)
        scores[name] = pupil_run.evaluate(episodes=64).mean_return
    for name, score in scores.items():
        print(f"{name}: {score:.0f}")
    return scores


def recorded(agent, env, learner, steps: int = 500) -> dict[str, np.ndarray]:
    """Play `steps` steps in every environment; return their arrays, one environment after the other."""
    state = ppax.start(agent, env, steps, jax.random.key(1))
    learner = jax.tree.map(jnp.copy, learner)
    rows = ppax.collect(agent, env, learner, state.actor, steps, jax.random.key(2)).rollout.steps
    cut = rows.truncated.at[-1].set(True)
    arrays = {"observations": rows.obs, "actions": rows.action, "terminations": rows.terminated, "truncations": cut}
    valid = np.asarray(rows.valid).T.ravel()  # False in autoreset steps, which are left out
    return {name: np.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:])[valid] for name, x in arrays.items()}


if __name__ == "__main__":
    main()
