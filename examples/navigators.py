"""Crowd of 64 discs: one shared policy steers each disc to its own target and observes its neighbours by LIDAR."""

from pathlib import Path

import jax
import jax.numpy as jnp

import ppax

ITERATIONS, STEPS = 40, 200
FILM = Path("navigators.gif")


def main() -> float:
    """Train, print how the crowd approaches its targets, and write a video of one episode."""
    env = ppax.make("Navigator-64", num_envs=4)
    network = ppax.networks.network(env, distribution="squashed", log_std_init=-0.5)
    agent = ppax.PPO(
        network,
        learning_rate=3e-3,
        gamma=0.97,
        normalize_obs=True,
        minibatch=ppax.minibatches.Shuffle(8),
        schedule=ppax.schedules.Linear(),
    )
    run = ppax.fit(agent, env, total_steps=ITERATIONS * 100 * env.num_streams, num_steps=100)
    share = run.evaluate(episodes=256).mean_metrics["arrived"]
    print(f"{share:.0%} end within one radius of their targets")
    # the states of the environments, of which every 50th is kept: positions and targets, [frames, 4, 64, 2]
    path = ppax.trajectory(agent, env, run.state.learner, STEPS, jax.random.key(2), every=50).env_state
    distance = jnp.linalg.norm(path.target - path.position, axis=-1).mean(axis=(1, 2))
    print(f"mean distance to the target at the start and after 50, 100, 150 steps: {distance.round(3).tolist()}")
    film = ppax.film(run, FILM)
    print(f"{film.frames} pictures: {FILM}")
    return share


if __name__ == "__main__":
    main()
