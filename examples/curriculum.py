"""Curriculum: pole lengths are drawn at every reset from a range that widens from one length to half .. twice of it."""

import jax

import ppax

ITERATIONS = 40


def main() -> float:
    """Train on a widening range of lengths; print the range, and the return over poles of the whole range."""
    schedules = ppax.schedules
    wider = schedules.Both(
        schedules.Linear(("env.half_length.low",), end=0.5), schedules.Linear(("env.half_length.high",), end=2.0)
    )
    half_length = {"low": 0.5, "high": 0.5}
    env = ppax.make("CartPole-v1", num_envs=16, env_params={"half_length": half_length}, schedule=wider)
    agent = ppax.PPO(ppax.networks.mlp(env), learning_rate=1e-3)
    state = ppax.start(agent, env, num_steps=128, key=jax.random.key(0))
    train = jax.jit(ppax.train)
    for done in range(0, ITERATIONS, 10):
        state, metrics = train(agent, env, state, 10, ITERATIONS)
        low, high = (float(metrics[f"env.half_length.{end}"]) for end in ("low", "high"))
        print(f"{done + 10:3d}: lengths {low:.2f} to {high:.2f}, return {float(metrics['episode_return']):.0f}")
    played = ppax.evaluate(agent, env, state.learner, jax.random.key(1), episodes=64)  # at the end of the schedule
    print(f"lengths {0.25} to {1.0}: {played.mean_return:.1f}")
    return played.mean_return


if __name__ == "__main__":
    main()
