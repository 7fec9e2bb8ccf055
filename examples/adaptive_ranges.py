"""Automatic domain randomisation: the range of a pole's length widens while the policy balances poles at its ends."""

import jax

import ppax

ITERATIONS = 40


def main() -> float:
    """Train on a range that widens by performance; print the range, and the return over the widest range."""
    widening = ppax.envs.AdaptiveRanges(
        ("env.half_length",), low=(0.1,), high=(2.5,), widen_at=60.0, narrow_at=30.0, step=0.1, episodes=8.0
    )
    env = ppax.make("CartPole-v1", num_envs=16, schedule=widening)
    agent = ppax.PPO(ppax.networks.mlp(env), learning_rate=1e-3)
    state = ppax.start(agent, env, num_steps=128, key=jax.random.key(0))
    train = jax.jit(ppax.train)
    for done in range(0, ITERATIONS, 10):
        state, metrics = train(agent, env, state, 10, ITERATIONS)
        low, high = (float(metrics[f"env.half_length.{end}"]) for end in ("low", "high"))
        print(f"{done + 10:3d}: lengths {low:.2f} to {high:.2f}, return {float(metrics['episode_return']):.0f}")
    played = ppax.evaluate(agent, env, state.learner, jax.random.key(1), episodes=64)  # over the widest range
    print(f"lengths 0.1 to 2.5: {played.mean_return:.1f}")
    return played.mean_return


if __name__ == "__main__":
    main()
