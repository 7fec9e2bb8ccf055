"""Atari games of the Arcade Learning Environment as host environments: `ppax.make("atari/Breakout")`."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium

from ppax.envs.hosting.host_env import HostEnv, host
from ppax.envs.settings import DEFAULT, EnvSettings
from ppax.envs.suites.atari_game import AtariGame, arcade
from ppax.envs.suites.registry import known, library


def ids() -> list[str]:
    """Return the names of all games of the Arcade Learning Environment."""

    gymnasium.register_envs(library("ale_py", "atari"))
    specs = gymnasium.registry.values()
    return sorted(spec.name for spec in specs if spec.namespace == "ALE" and spec.version == 5)


def load(env_id: str, num_envs: int, settings: EnvSettings = DEFAULT, **rules: Any) -> HostEnv:
    """Return `num_envs` environments of an Atari game, in which every action is applied for 4 frames.

    `rules` are arguments of `AtariGame`: `ppax.make("atari/Breakout", env_params={"end_on_life_loss": False})`. Raises
    ConfigError for an unknown game and ImportError, naming the extra to install, without ale-py.
    """
    settings.refuse(("action_repeat",), "a game takes each action for 4 frames already")
    game = partial(AtariGame, partial(arcade, known("atari", env_id, ids())), **rules)
    return host(game, num_envs, f"atari/{env_id}", **settings.of_host())
