"""Your own Gymnasium environment, and a policy trained on it.

The chain: the large reward is at the right end, but each step to the left gives a small reward at once.
"""

import gymnasium
import numpy as np

import ppax

ITERATIONS = 40


class Chain(gymnasium.Env):
    """Ten places in a row; reward 10 and the end of the episode at the right end, reward 0.1 for a step to the left."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (10,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        """Start at one of the first three places, drawn from the environment's own generator."""
        super().reset(seed=seed)
        self.place, self.time = int(self.np_random.integers(3)), 0
        return self._observe(), {}

    def step(self, action):
        """Move one place; the right end terminates the episode, the time limit of 30 steps truncates it."""
        self.place, self.time = max(0, self.place + (1 if action else -1)), self.time + 1
        terminated = self.place == 9
        truncated = self.time == 30
        return self._observe(), 10.0 if terminated else 0.1 * (1 - action), terminated, truncated, {}

    def _observe(self):
        return np.eye(10, dtype=np.float32)[self.place]


def main():
    # Eight environments in this process; vectorization="async" steps slow environments in worker processes.
    # Instead of `Chain` you can pass a gymnasium.vector.VectorEnv, in any autoreset mode
    with ppax.envs.host(Chain, num_envs=8) as env:
        agent = ppax.PPO(ppax.networks.mlp(env), learning_rate=1e-3, gamma=0.97)
        run = ppax.fit(agent, env, total_steps=ITERATIONS * 128 * 8)
        score = run.evaluate(episodes=16).mean_return
    print(f"return {score:.1f} of 10.0")
    return score


if __name__ == "__main__":
    main()
