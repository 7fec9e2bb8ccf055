"""Rooms of MiniGrid as environments whose observations are arrays of numbers, https://minigrid.farama.org.

Chevalier-Boisvert et al., "Minigrid & Miniworld", 2023, https://arxiv.org/abs/2306.13831.

This file imports nothing of ppax: it is pickled by value for worker processes.
"""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

VIEWS = ("partial", "full", "pixels", "full_pixels")
KINDS = (11, 6, 4)  # MiniGrid's kinds of objects, colours, and states of a door or directions of the agent
DIRECTIONS = 4
SENTENCES = 75, 20  # longest mission of BabyAI: of several instructions, of one, in words
# words of all missions of MiniGrid and BabyAI; a word that is none of them gets the number after them
WORDS = tuple(
    "a after and at avoid ball behind blue box corresponding door end fetch find from front get go goal green "  # noqa: SIM905
    "grey hallway in key lava left matching must near next object of on open opening pick purple put reach red "
    "right room rooms square the then to traverse unlock up use yellow you your".split()
)
NUMBER = {word: i + 1 for i, word in enumerate(WORDS)}  # 0: no word


class MiniGridRoom(gymnasium.Env):
    """Room of MiniGrid or BabyAI, with observations that a network can read.

    * `image`, as `view` says. "partial": what the agent sees, as planes of 0 and 1, [7, 7, objects + colours + states].
      "full": the whole grid, in which the agent is an object, as such planes. "pixels": a picture of what the agent
      sees, uint8 [H, W, 3]. "full_pixels": a picture of the whole grid.
    * `direction`: the direction in which the agent looks, from 0 to 3.
    * `mission`, where the mission differs between episodes: [mission_words], the index of each of its words in the
      vocabulary WORDS, from 1, then zeros. `mission_words` is by default the length of the room's longest mission.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(
        self,
        env_id: str,
        view: str = "partial",
        mission_words: int | None = None,
        render_mode: str | None = None,
        **options: Any,
    ):
        import minigrid
        from minigrid import wrappers

        if view not in VIEWS:
            raise ValueError(f"view = {view!r}: must be one of {', '.join(VIEWS)}")
        gymnasium.register_envs(minigrid)
        self.room = gymnasium.make(env_id, disable_env_checker=True, render_mode=render_mode, **options)
        self.render_mode = render_mode
        wrapper = {
            "full": wrappers.FullyObsWrapper,
            "pixels": wrappers.RGBImgPartialObsWrapper,
            "full_pixels": wrappers.RGBImgObsWrapper,
        }.get(view)
        self.room = self.room if wrapper is None else wrapper(self.room)
        self.action_space = self.room.action_space
        given: Any = self.room.observation_space
        self._pixels = view.endswith("pixels")
        self._length = longest_mission(self.room.unwrapped) if mission_words is None else int(mission_words)
        shape = given["image"].shape
        image = (
            spaces.Box(0, 255, shape, np.uint8)
            if self._pixels
            else spaces.Box(0, 1, (*shape[:2], sum(KINDS)), np.uint8)
        )
        space: dict[str, spaces.Space] = {"image": image, "direction": spaces.Discrete(DIRECTIONS)}
        if self._length:
            space["mission"] = spaces.MultiDiscrete([len(WORDS) + 2] * self._length)
        self.observation_space = spaces.Dict(space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Return the first observation in a newly generated room."""
        super().reset(seed=seed)
        obs, info = self.room.reset(seed=seed, options=options)
        return self._observe(obs), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return the result of one step; MiniGrid's time limit is a truncation."""
        obs, reward, terminated, truncated, info = self.room.step(int(action))
        return self._observe(obs), float(reward), bool(terminated), bool(truncated), info

    def render(self) -> Any:
        """Return a picture of the room from above."""
        return self.room.render()

    def close(self) -> None:
        """Close MiniGrid's environment."""
        self.room.close()

    def _observe(self, obs: dict[str, Any]) -> dict[str, Any]:
        image = np.asarray(obs["image"], np.uint8)
        seen = {"image": image if self._pixels else planes(image), "direction": np.int64(obs["direction"])}
        return seen | ({"mission": numbers(obs["mission"], self._length)} if self._length else {})


def planes(grid: np.ndarray) -> np.ndarray:
    """Return a grid [H, W, 3] of object, colour and state as planes of 0 and 1, [H, W, objects + colours + states]."""
    each = [grid[..., i, None] == np.arange(size) for i, size in enumerate(KINDS)]
    return np.concatenate(each, axis=-1).astype(np.uint8)


def numbers(mission: str, length: int) -> np.ndarray:
    """Return the index of each word of a mission in the vocabulary WORDS, from 1, followed by zeros, [length].

    A word that is not in WORDS gets the index after the last one. Raises ValueError for a mission of more words than
    `length`, because its beginning alone would be another mission.
    """
    words = mission.replace(",", " ").split()
    if len(words) > length:
        raise ValueError(
            f"mission_words = {length}: {mission!r} has {len(words)} words; nearest valid value: {len(words)}"
        )
    found = np.zeros(length, np.int64)
    found[: len(words)] = [NUMBER.get(word, len(WORDS) + 1) for word in words]
    return found


def longest_mission(room: Any) -> int:
    """Return the number of words of the longest mission of a room; 0 if it is always the same."""
    space = room.observation_space["mission"]
    if type(space).__name__ == "BabyAIMissionSpace":  # it names no missions
        several = set(getattr(room, "instr_kinds", ("action",))) != {"action"}
        return SENTENCES[0 if several else 1]
    if space.ordered_placeholders is None:
        return 0
    missions = {space.mission_func(*chosen) for chosen in itertools.product(*space.ordered_placeholders)}
    return max(len(mission.split()) for mission in missions) if len(missions) > 1 else 0
