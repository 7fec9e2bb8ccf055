"""Fine-tuning: CartPole with doubled gravity, from random weights and from a run on the original."""

import ppax

ITERATIONS = 60  # of the original run; the runs on the changed environment have a twelfth of it


def main() -> dict[str, float]:
    """Train on the original, then on the changed environment from both starts; print and return mean returns."""
    env = ppax.make("CartPole-v1", num_envs=64)
    agent = ppax.PPO(ppax.networks.mlp(env), learning_rate=1e-3, normalize_reward=True)
    steps = env.num_envs * 32
    log = ppax.Log(console=False)
    original = ppax.fit(agent, env, ITERATIONS * steps, num_steps=32, log=log)

    changed = ppax.make("CartPole-v1", num_envs=64, env_params={"gravity": 19.6})
    scores = {}
    for name, start in (("random weights", None), ("warm start", original)):
        run = ppax.fit(agent, changed, ITERATIONS // 12 * steps, 1, num_steps=32, log=log, init_from=start)
        scores[name] = run.evaluate(episodes=64).mean_return
        print(f"{name}: {scores[name]:.0f} after {run.env_steps:,} steps")
    return scores


if __name__ == "__main__":
    main()
