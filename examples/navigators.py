"""Crowd of 64 discs: one shared policy steers each disc to its own target and observes its neighbours by LIDAR."""

from pathlib import Path

import jax
import jax.numpy as jnp
from jax import Array
from ppax.types import ActorState, LearnerState

import ppax
from ppax.envs import VectorEnv
from ppax.run import films
from ppax.training.collection import start_actor
from ppax.training.episodes import act_and_step

ITERATIONS, STEPS = 40, 200
FILM = Path("navigators.gif")


def arrived(agent: ppax.PPO, env: VectorEnv, learner: LearnerState, key: Array) -> Array:
    """Return the fraction of agents within one radius of their targets at the time limit."""

    def step(actor: ActorState, key: Array) -> tuple[ActorState, None]:
        return act_and_step(agent, env, learner, actor, True, key).actor, None

    start_key, *keys = jax.random.split(key, STEPS)
    actor, _ = jax.lax.scan(step, start_actor(agent, env, start_key), jnp.stack(keys))
    crowd = actor.env_state.env.inner  # the environment inside TimeLimit
    return (jnp.linalg.norm(crowd.target - crowd.position, axis=-1) < env.env.env.radius).mean()


def main() -> float:
    """Train and write a video of one episode with the most likely actions."""
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
    state = ppax.start(agent, env, num_steps=100, key=jax.random.key(0))
    train = ppax.compile(agent, env, state)
    for quarter in range(1, 5):
        state, metrics = train(agent, env, state, ITERATIONS // 4, ITERATIONS)
        print(f"after {quarter * ITERATIONS // 4} iterations: reward of a step {float(metrics['reward_mean']):.3f}")
    share = float(jax.jit(arrived)(agent, env, state.learner, jax.random.key(2)))
    print(f"{share:.0%} end within one radius of their targets")
    played = films.play(agent, env, state.learner, jax.random.key(1))
    print(f"{films.write_video(FILM, played.frames[::2], 15)} pictures: {FILM}")
    return share


if __name__ == "__main__":
    main()
