"""PPO in one file, in the style of CleanRL's ppo.py and ppo_continuous_action.py: compared with ppax by host.py.

https://github.com/vwxyzjn/cleanrl. Box actions: samples of a normal with a learned log-std, clipped.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical, Distribution, Independent, Normal

import w1


def layer(size_in: int, size_out: int, gain: float = 2**0.5) -> nn.Linear:
    linear = nn.Linear(size_in, size_out)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.constant_(linear.bias, 0.0)
    return linear


def tower(size_in: int, size_out: int, gain: float) -> nn.Sequential:
    a, b = w1.HIDDEN
    return nn.Sequential(layer(size_in, a), nn.Tanh(), layer(a, b), nn.Tanh(), layer(b, size_out, gain))


class Trainer:
    """Environments, agent, optimiser; `train` does whole iterations."""

    def __init__(self, env_id: str, num_envs: int, seed: int):
        torch.manual_seed(seed)
        self.envs: Any = gymnasium.make_vec(env_id, num_envs, vectorization_mode="sync")
        obs_size = int(np.prod(self.envs.single_observation_space.shape))
        space = self.envs.single_action_space
        self.box = space if isinstance(space, gymnasium.spaces.Box) else None
        self.actor = tower(obs_size, int(space.n) if self.box is None else space.shape[0], 0.01)
        self.critic = tower(obs_size, 1, 1.0)
        self.log_std = nn.Parameter(torch.zeros(space.shape))
        self.params = [*self.actor.parameters(), *self.critic.parameters(), *([self.log_std] if self.box else [])]
        self.optimizer = torch.optim.Adam(self.params, lr=w1.LEARNING_RATE, eps=w1.ADAM_EPS)
        self.shape = w1.NUM_STEPS, num_envs
        self.obs = torch.zeros(*self.shape, obs_size)
        self.next_obs = torch.as_tensor(self.envs.reset(seed=seed)[0], dtype=torch.float32)
        self.next_done = torch.zeros(num_envs)

    def evaluate(self, obs: torch.Tensor, action: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
        out = self.actor(obs)
        distribution: Distribution = Categorical(logits=out)
        if self.box is not None:
            distribution = Independent(Normal(out, self.log_std.exp()), 1)
        action = distribution.sample() if action is None else action
        return action, distribution.log_prob(action), distribution.entropy(), self.critic(obs).flatten()

    def train(self, iterations: int) -> None:
        for _ in range(iterations):
            self.iterate()

    def iterate(self) -> None:
        steps, envs = self.shape
        one = torch.zeros(envs, dtype=torch.long) if self.box is None else torch.zeros(envs, *self.box.shape)
        actions = torch.stack([one] * steps)
        log_probs, rewards, dones, values = (torch.zeros(self.shape) for _ in range(4))
        for t in range(steps):
            self.obs[t], dones[t] = self.next_obs, self.next_done
            with torch.no_grad():
                actions[t], log_probs[t], _, values[t] = self.evaluate(self.next_obs)
            action = actions[t].numpy()
            if self.box is not None:
                action = action.clip(self.box.low, self.box.high)
            obs, reward, terminated, truncated, _ = self.envs.step(action)
            rewards[t] = torch.as_tensor(reward)
            self.next_obs = torch.as_tensor(obs, dtype=torch.float32)
            self.next_done = torch.as_tensor(np.logical_or(terminated, truncated), dtype=torch.float32)
        advantages = torch.zeros(self.shape)
        with torch.no_grad():
            next_value, trace = self.critic(self.next_obs).flatten(), torch.zeros(envs)
            next_done = self.next_done
            for t in reversed(range(steps)):
                delta = rewards[t] + w1.GAMMA * next_value * (1.0 - next_done) - values[t]
                advantages[t] = trace = delta + w1.GAMMA * w1.GAE_LAMBDA * (1.0 - next_done) * trace
                next_value, next_done = values[t], dones[t]
        rows = self.obs.flatten(0, 1), actions.flatten(0, 1), log_probs.flatten(), advantages.flatten()
        self.learn(*rows, (advantages + values).flatten())

    def learn(
        self,
        obs: torch.Tensor,
        actions: torch.Tensor,
        log_probs: torch.Tensor,
        advantages: torch.Tensor,
        returns: torch.Tensor,
    ) -> None:
        index, size = np.arange(len(actions)), len(actions) // w1.MINIBATCHES
        for _ in range(w1.EPOCHS):
            np.random.default_rng().shuffle(index)
            for start in range(0, len(index), size):
                i = torch.as_tensor(index[start : start + size])
                _, log_prob, entropy, value = self.evaluate(obs[i], actions[i])
                ratio, advantage = (log_prob - log_probs[i]).exp(), advantages[i]
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                clipped = ratio.clamp(1.0 - w1.CLIP_EPS, 1.0 + w1.CLIP_EPS)
                policy_loss = torch.max(-advantage * ratio, -advantage * clipped).mean()
                value_loss = 0.5 * ((value - returns[i]) ** 2).mean()
                loss = policy_loss + w1.VF_COEF * value_loss - w1.ENT_COEF * entropy.mean()
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.params, w1.MAX_GRAD_NORM)
                self.optimizer.step()
