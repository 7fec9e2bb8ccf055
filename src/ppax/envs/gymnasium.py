"""Environments of Gymnasium by their ids: `ppax.make("gymnasium/LunarLander-v3")`."""

from __future__ import annotations

import dataclasses
import difflib
from functools import partial
from typing import Any

import gymnasium

from ppax.envs.host_env import HostEnv, host
from ppax.types import ConfigError

EXTRAS = ("mujoco", "box2d")  # by the word that Gymnasium's own error has


def ids() -> list[str]:
    """What Gymnasium has registered, of each environment the newest version."""
    newest: dict[tuple[str | None, str], gymnasium.envs.registration.EnvSpec] = {}
    for spec in gymnasium.registry.values():
        known = newest.setdefault((spec.namespace, spec.name), spec)
        if (spec.version or 0) > (known.version or 0):
            newest[spec.namespace, spec.name] = spec
    return sorted(spec.id for spec in newest.values())


def load(env_id: str, num_envs: int, vectorization: str = "sync", action_repeat: int = 1, **options: Any) -> HostEnv:
    """`num_envs` environments `env_id`, with its usual wrappers; "module:id" imports the module first.

    `options` go to `gymnasium.make`. Raises ConfigError for an unknown id and ImportError, naming the extra to install,
    for a missing library.
    """
    name = f"gymnasium/{env_id}"
    try:
        # who steps them resets them first, and ours checks more, once: two wrappers less around every step
        spec = dataclasses.replace(gymnasium.spec(env_id), order_enforce=False)
        make = partial(gymnasium.make, spec, **{"disable_env_checker": True} | options)
        return host(make, num_envs, name, vectorization, action_repeat=action_repeat)
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        about = f"{error} {gymnasium.spec(env_id).entry_point}".lower()
        extra = next((extra for extra in EXTRAS if extra in about), None)
        remedy = f'{extra} is not installed ({error}); pip install "ppax[{extra}]"' if extra else error
        raise ImportError(f"{name}: {remedy}") from error
    except gymnasium.error.UnregisteredEnv as error:
        nearest = difflib.get_close_matches(env_id, gymnasium.registry, n=1, cutoff=0.0)
        raise ConfigError(f"no environment {name!r}; did you mean 'gymnasium/{nearest[0]}'? ({error})") from error
