"""Simulators of PyTorch alone, on any device, whose starts need no random numbers."""

import torch
from gymnasium import spaces

NUM_ENVS, LIMIT = 8, 5


class Carts:
    """Carts on a line, pushed left or right to its middle, where an episode ends; after LIMIT steps it is cut.

    Every step writes all its results into the tensors that it returned before, over NaN, and overwrites the
    action too: what has been kept without a copy is spoilt. With `fresh` nothing is written twice.
    """

    num_envs = NUM_ENVS
    single_observation_space = spaces.Box(-9.0, 9.0, (2,))
    single_action_space = spaces.Box(-1.0, 1.0, (1,))

    def __init__(
        self, device="cpu", fresh=False, final="final_obs", masks=False, dicts=False, one_flag=False, method=False
    ):
        self.device, self.fresh, self.final, self.masks = torch.device(device), fresh, final, masks
        self.dicts, self.one_flag, self.method = dicts, one_flag, method
        if self.method:  # as sb3-contrib's, in the place of info["action_mask"]
            self.action_masks = self._allowed
        if masks:
            self.single_action_space = spaces.Discrete(3)
        if dicts:
            self.single_observation_space = spaces.Dict({"b": spaces.Box(-9, 9, (1,)), "a": spaces.Box(-9, 9, (1, 1))})
        self.returned, self.actions = {}, []
        self.number = torch.arange(NUM_ENVS, dtype=torch.float32, device=self.device)

    def reset(self):
        self.state, self.starts = torch.zeros((NUM_ENVS, 2), device=self.device), torch.zeros_like(self.number)
        self.age = torch.zeros_like(self.number)
        self._start(torch.ones_like(self.number, dtype=torch.bool))
        return self._obs("obs", self.state), self._masks()

    def step(self, action):
        self.actions.append(action.data_ptr())
        for x in () if self.fresh else self.returned.values():
            x.fill_(float("nan") if x.dtype.is_floating_point else True)
        if self.masks:
            push = (action - 1).to(torch.float32)
        else:
            push = action.clamp(-1.0, 1.0)[:, 0]
            if not self.fresh:
                action.fill_(float("nan"))
        speed = 0.5 * self.state[:, 1] + 0.4 * push
        self.state = torch.stack([self.state[:, 0] + speed, speed], dim=1)
        self.age = self.age + 1
        terminated, truncated = self.state[:, 0].abs() < 0.1, self.age >= LIMIT
        ended = terminated | truncated
        final, reward = self.state, -self.state[:, 0].abs()
        if bool(ended.any()):
            self._start(ended)
        info = self._masks()
        if self.final is not None and bool(ended.any()):
            info[self.final] = self._obs("final", final)
            info["final_info"] = {"distance": self._own("distance", final[:, 0].abs())}
        flags = self._own("terminated", terminated), self._own("truncated", truncated)
        if self.one_flag:
            flags = (self._own("done", ended),)
            info["time_outs"] = self._own("time_outs", truncated & ~terminated)
        return self._obs("obs", self.state), self._own("reward", reward), *flags, info

    def _start(self, where):
        """Begin episodes at places that follow from the numbers of environment and episode."""
        self.starts = self.starts + where
        place = 2.0 * torch.frac(0.618 * self.starts + 0.37 * self.number) - 1.0
        start = torch.stack([place, torch.zeros_like(place)], dim=1)
        self.state = torch.where(where[:, None], start, self.state)
        self.age = torch.where(where, 0.0, self.age)

    def _masks(self):
        if not self.masks or self.method:
            return {}
        return {"action_mask": self._allowed()}

    def _allowed(self):
        allowed = torch.ones((NUM_ENVS, 3), dtype=torch.bool, device=self.device)
        allowed[:, 2] = self.state[:, 0] < 0.5  # no pushing on beyond
        return self._own("mask", allowed)

    def _obs(self, name, state):
        if not self.dicts:
            return self._own(name, state)
        # views: one has gaps, as the columns of a simulator's state
        state = self._own(name, state)
        return {"b": state[:, 1:], "a": state[:, :1, None]}

    def _own(self, name, x):
        """Return `x` in the tensor of this name that was returned before."""
        if self.fresh or name not in self.returned:
            self.returned[name] = x.clone()
        return self.returned[name].copy_(x)
