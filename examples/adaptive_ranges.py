"""Automatic domain randomisation: the range of a pole's length widens while the policy balances poles at its ends."""

import jax

import ppax

ITERATIONS = 40


def main() -> float:
    """Train beside a policy that sees one length; print the range, and both returns over the widest range."""
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
    one_length = ppax.make("CartPole-v1", num_envs=16)
    narrow = train(agent, one_length, ppax.start(agent, one_length, 128, jax.random.key(0)), ITERATIONS).state
    widest = {
        name: ppax.evaluate(agent, env, one.learner, jax.random.key(1), episodes=64)
        for name, one in {"adaptive": state, "one length": narrow}.items()
    }
    for name, played in widest.items():
        print(f"lengths 0.1 to 2.5, trained on {name}: {played.mean_return:.1f}")
    return widest["adaptive"].mean_return


if __name__ == "__main__":
    main()
