"""Environments of Gymnasium by their ids: `ppax.make("gymnasium/LunarLander-v3")`."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from functools import partial
from typing import Any

import gymnasium

from ppax.envs.host_env import HostEnv, host
from ppax.types import ConfigError

EXTRAS = ("mujoco", "box2d")  # by the word that Gymnasium's own error has


def load(
    env_id: str,
    num_envs: int,
    vectorization: str = "sync",
    action_repeat: int = 1,
    params: Mapping[str, Any] | None = None,
) -> HostEnv:
    """`num_envs` environments `env_id`, with its usual wrappers; "module:id" imports the module first.

    `params` go to `gymnasium.make`. Raises ConfigError for an unknown id and for parameters that it does not take, and
    ImportError, naming the extra to install, for a missing library.
    """
    options = dict(params or {})
    make = partial(gymnasium.make, env_id, **options)
    name = f"gymnasium/{env_id}"
    try:
        gymnasium.spec(env_id)
        env = host(make, num_envs, name, vectorization, action_repeat=action_repeat)
        return dataclasses.replace(env, options=tuple(options.items()))
    except TypeError as error:
        if not options:
            raise
        raise ConfigError(f"env_params of {name}: {error}") from error
    except gymnasium.error.DependencyNotInstalled as error:
        extra = next((extra for extra in EXTRAS if extra in str(error).lower()), None)
        remedy = f'{extra} is not installed; pip install "ppax[{extra}]"' if extra else error
        raise ImportError(f"{name}: {remedy}") from error
    except gymnasium.error.UnregisteredEnv as error:
        nearest = difflib.get_close_matches(env_id, gymnasium.registry, n=1, cutoff=0.0)
        raise ConfigError(f"no environment {name!r}; did you mean 'gymnasium/{nearest[0]}'? ({error})") from error
