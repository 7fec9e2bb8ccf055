"""Environments of Gymnasium by their ids: `ppax.make("gymnasium/LunarLander-v3")`."""

from __future__ import annotations

import difflib
from functools import partial

import gymnasium

from ppax.envs.host import HostEnv, host
from ppax.types import ConfigError

EXTRAS = {"mujoco": "mujoco", "box2d": "box2d"}  # what Gymnasium's own error asks for, and our extra


def load(env_id: str, num_envs: int, vectorization: str = "sync", action_repeat: int = 1) -> HostEnv:
    """`num_envs` environments `env_id`, with its usual wrappers; "module:id" imports the module first.

    Raises ConfigError for an unknown id and ImportError, naming the extra to install, for a missing library.
    """
    make = partial(gymnasium.make, env_id)
    name = f"gymnasium/{env_id}"
    try:
        gymnasium.spec(env_id)
        return host(make, num_envs, name, vectorization, action_repeat=action_repeat)
    except gymnasium.error.DependencyNotInstalled as error:
        extra = next((extra for word, extra in EXTRAS.items() if word in str(error).lower()), None)
        raise ImportError(f'{name}: {error}; pip install "ppax[{extra}]"' if extra else f"{name}: {error}") from error
    except gymnasium.error.UnregisteredEnv as error:
        nearest = difflib.get_close_matches(env_id, gymnasium.registry, n=1, cutoff=0.0)
        raise ConfigError(f"no environment {name!r}; did you mean 'gymnasium/{nearest[0]}'? ({error})") from error
