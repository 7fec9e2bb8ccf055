"""Use of a trained policy in a program of your own: train, load it from its run directory, drive an environment."""

import gymnasium

import ppax

ITERATIONS = 60


def main() -> float:
    """Train CartPole, then balance Gymnasium's pole with the loaded policy; returns the mean length of its episodes."""
    env = ppax.make("CartPole-v1", num_envs=64)
    agent = ppax.PPO(ppax.networks.mlp(env), learning_rate=1e-3, normalize_obs=True)
    log = ppax.Log(console=False, checkpoint_every=20, keep=None)
    ppax.fit(agent, env, ITERATIONS * 32 * 64, num_steps=32, run_dir="runs/pole", log=log)
    lengths = {}
    for saved in ppax.checkpoints("runs/pole"):
        policy = ppax.load("runs/pole", step=saved.step)
        lengths[saved.step] = sum(balance(policy, seed) for seed in range(5)) / 5
        print(f"after {saved.step:,} steps, {saved.metric} {saved.score:.0f}: {lengths[saved.step]:.0f} steps balanced")
    return lengths[saved.step]


def balance(policy: ppax.Policy, seed: int) -> int:
    """Length of one episode of Gymnasium's own CartPole."""
    game = gymnasium.make("CartPole-v1")
    obs, _ = game.reset(seed=seed)
    policy.reset()  # an episode begins: memory, if there is one, starts anew
    over, length = False, 0
    while not over:
        obs, _, terminated, truncated, _ = game.step(policy.act(obs))
        over, length = terminated or truncated, length + 1
    game.close()
    return length


if __name__ == "__main__":
    main()
