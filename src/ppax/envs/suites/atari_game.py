"""Atari preprocessing of Mnih et al. 2015, https://doi.org/10.1038/nature14236, for host environments.

It has the details 1 to 9 for Atari of https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details.

This file imports nothing of ppax: it is pickled by value for worker processes.

Learning and logging use different rewards: with `end_on_life_loss` each life is an episode for learning, and with
`clip_rewards` rewards are clipped to their signs, while `info["episode_stats"]` has the score of the whole game.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

NOOP, FIRE = 0, 1


def arcade(game: str, render_mode: str | None = None) -> gymnasium.Env:
    """Return a game of the Arcade Learning Environment: one greyscale frame for each step, no sticky actions."""
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # suppresses the banner of each game
    gymnasium.register_envs(ale_py)
    options = {"frameskip": 1, "repeat_action_probability": 0.0, "obs_type": "grayscale", "render_mode": render_mode}
    return gymnasium.make(f"ALE/{game}-v5", disable_env_checker=True, **options)


class AtariGame(gymnasium.Env):
    """Atari game with DQN's preprocessing, of uint8 observations [stack, size, size].

    `make` creates the game itself, which must give single greyscale frames [H, W].

    * Random start: 1 to `noop_max` no-op frames after a reset, then FIRE if the game waits for it.
    * Frame skip: an action is applied for `frame_skip` frames. The picture is the pixelwise maximum of the last two
      frames, because some games draw objects only in every second frame.
    * Frame stack: the last `stack` pictures, scaled to `size`; after a reset all of them are the first picture.
    * Episodic life: with `end_on_life_loss` the loss of a life is `terminated`; the next reset continues the game.
    * Reward clipping: with `clip_rewards` a reward is replaced by its sign.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012

    def __init__(
        self,
        make: Callable[..., gymnasium.Env],
        noop_max: int = 30,
        frame_skip: int = 4,
        stack: int = 4,
        size: int = 84,
        end_on_life_loss: bool = True,
        clip_rewards: bool = True,
        render_mode: str | None = None,
    ):
        self.game = make(render_mode=render_mode)
        self.noop_max, self.frame_skip = noop_max, frame_skip
        self.end_on_life_loss, self.clip_rewards, self.render_mode = end_on_life_loss, clip_rewards, render_mode
        height, width = self.game.observation_space.shape or (0, 0)
        self._rows, self._columns = area_weights(size, height), area_weights(size, width).T
        self.observation_space = spaces.Box(0, 255, (stack, size, size), np.uint8)
        self.action_space = self.game.action_space
        meanings = self.game.unwrapped.get_action_meanings()  # type: ignore[attr-defined]
        self._fires = len(meanings) >= 3 and meanings[FIRE] == "FIRE"
        self._stack = np.zeros((stack, size, size), np.uint8)
        self._lives, self._goes_on = 0, False  # True: a life was lost, and the game continues

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Return observation and info at the start of the next life, or at the start of a new game.

        It is the next life if `end_on_life_loss` has ended the episode before and no seed is given.
        """
        super().reset(seed=seed)
        score, over, picture = 0.0, False, None
        if self._goes_on and seed is None:
            picture, score, over = self._life()
        if picture is None:
            picture, start_score = self._game(seed)
            score = score if over else start_score
        self._goes_on = False
        self._stack = np.broadcast_to(self._warped(picture), self._stack.shape).copy()
        return self._stack, {"episode_stats": (score, over), "lives": self._lives}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Return the result of the action, applied for `frame_skip` frames.

        `info["episode_stats"]` has the unclipped score.
        """
        before = self._lives
        picture, score, terminated, truncated = self._advance(action)
        over = terminated or truncated
        # 0 < lives: some games show no lives for a few frames before the game is over
        lost = self.end_on_life_loss and not over and 0 < self._lives < before
        self._goes_on = lost
        self._stack = np.concatenate([self._stack[1:], self._warped(picture)[None]])
        reward = float(np.sign(score)) if self.clip_rewards else score
        info = {"episode_stats": (score, over), "lives": self._lives}
        return self._stack, reward, terminated or lost, truncated, info

    def render(self) -> Any:
        """Return the screen of the Atari game in colour."""
        return self.game.render()

    def close(self) -> None:
        """Close the Atari game."""
        self.game.close()

    def _game(self, seed: int | None) -> tuple[np.ndarray, float]:
        """Return the first picture of a new game, [H, W], and the score of its random start."""
        while True:
            frame, info = self.game.reset(seed=seed)
            self._lives, seed, total, over = info.get("lives", 0), None, 0.0, False
            for _ in range(int(self.np_random.integers(1, self.noop_max + 1)) if self.noop_max else 0):
                frame, score, terminated, truncated, info = self.game.step(NOOP)
                self._lives, total, over = info.get("lives", 0), total + float(score), terminated or truncated
                if over:
                    break
            if self._fires and not over:
                frame, score, *ends = self._advance(FIRE)
                total, over = total + score, any(ends)
            if not over:
                return frame, total

    def _life(self) -> tuple[np.ndarray | None, float, bool]:
        """Return the first picture [H, W] of the next life, the rewards on the way to it, and whether the game is over.

        The rewards are the sum over the frames of this call. The picture is None if the game is over.
        """
        total = 0.0
        for action in (NOOP, FIRE) if self._fires else (NOOP,):
            frame, score, terminated, truncated = self._advance(action)
            total += score
            if terminated or truncated:
                return None, total, True
        return frame, total, False

    def _advance(self, action: Any) -> tuple[np.ndarray, float, bool, bool]:
        """Return picture [H, W], score, terminated and truncated of an action that is applied for `frame_skip` frames.

        The picture is the maximum of the last two frames.
        """
        before, total, frame = None, 0.0, None
        for _ in range(self.frame_skip):
            before = frame
            frame, score, terminated, truncated, info = self.game.step(action)
            frame, total, self._lives = np.array(frame), total + float(score), info.get("lives", 0)
            if terminated or truncated:
                break
        assert frame is not None
        return frame if before is None else np.maximum(before, frame), total, bool(terminated), bool(truncated)

    def _warped(self, frame: np.ndarray) -> np.ndarray:
        """Return a frame [H, W] scaled to [size, size] by area averaging."""
        return np.rint(self._rows @ (frame.astype(np.float32) @ self._columns)).astype(np.uint8)


def area_weights(small: int, large: int) -> np.ndarray:
    """Return the weights [small, large] of area averaging from `large` pixels to `small` pixels along one axis."""
    edges = np.linspace(0.0, large, small + 1)
    low, high = edges[:-1, None], edges[1:, None]
    pixel = np.arange(large)
    covered = np.clip(np.minimum(high, pixel + 1) - np.maximum(low, pixel), 0.0, None)
    weights: np.ndarray = (covered / covered.sum(axis=1, keepdims=True)).astype(np.float32)
    return weights
