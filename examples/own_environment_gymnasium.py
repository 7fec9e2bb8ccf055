"""An environment of your own, written for Gymnasium, and a policy trained on it.

The chain: walk right to the far end, though a step to the left pays a little at once.
"""

import gymnasium
import numpy as np

import ppax

ITERATIONS = 40


class Chain(gymnasium.Env):
    """Ten places in a row; the far end pays 10 and ends the episode, a step to the left pays 0.1."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (10,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        """Begin at one of the first three places, which the environment's own generator draws."""
        super().reset(seed=seed)
        self.place, self.time = int(self.np_random.integers(3)), 0
        return self._look(), {}

    def step(self, action):
        """The end of the row ends the episode for good; after 30 steps it is cut, and what lay beyond still counts."""
        self.place, self.time = max(0, self.place + (1 if action else -1)), self.time + 1
        terminated = self.place == 9
        truncated = self.time == 30
        return self._look(), 10.0 if terminated else 0.1 * (1 - action), terminated, truncated, {}

    def _look(self):
        return np.eye(10, dtype=np.float32)[self.place]


def main():
    # eight of them in this process; vectorization="async" steps them in worker processes, for slow environments.
    # A gymnasium.vector.VectorEnv of your own can stand for `Chain` too, whatever its autoreset mode is
    with ppax.envs.host(Chain, num_envs=8) as env:
        agent = ppax.PPO(ppax.networks.mlp(env), learning_rate=1e-3, gamma=0.97)
        run = ppax.fit(agent, env, total_steps=ITERATIONS * 128 * 8)
        score = run.evaluate(episodes=16).mean_return
    print(f"return {score:.1f} of 10.0")
    return score


if __name__ == "__main__":
    main()
