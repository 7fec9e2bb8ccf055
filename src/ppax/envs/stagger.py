"""Staggered first episodes: environments that start together do not end their episodes together.

After a reset of all environments the first episode of each is truncated at a random length, drawn uniformly from 1 to
the largest length of an episode. Otherwise thousands of environments with episodes of equal length are always at the
same step: one rollout has only beginnings of episodes, another only their ends, and all episodes finish at once. Isaac
Lab and rsl_rl do this by `init_at_random_ep_len`; here the shortened episodes are truncations, whose value is
bootstrapped, and are not logged.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.options import Option, check_value
from ppax.core.types import ConfigError, Key
from ppax.envs.wrappers.params import Randomised
from ppax.envs.wrappers.time import ActionRepeat, TimeLimit

LENGTH = 2**31 - 3  # folded into an environment's key: its first states are those of a run without `stagger`
STAGGER = Option("stagger", int, default=False, limits={"low": 2, "high": 2**31 - 2, "switch": True})


def checked_stagger(stagger: Any) -> bool | int:
    """Return `stagger` if it is a bool or a whole number of at least 2; else raise ConfigError."""
    checked: bool | int = check_value(STAGGER, stagger)
    return checked


def no_limit(name: str) -> ConfigError:
    """Return the error of `stagger = true` for the environment `name`, whose time limit is not known."""
    return ConfigError(
        f"stagger = True: {name} has no time limit that ppax can read; give the largest length of a first episode, in "
        "steps, as stagger = 500"
    )


def longest_episode(env: Any) -> Any:
    """Return the time limit of a compiled environment in steps of the agent, a number or a traced array.

    If the limit is drawn at resets, it is the largest that can be drawn; of several limits it is the smallest. It is
    None if there is no limit.
    """
    repeats, limit = 1, None
    while env is not None:
        if isinstance(env, Randomised):
            env = env.with_numbers(env.high)
        if isinstance(env, ActionRepeat):
            repeats *= env.repeats
        if isinstance(env, TimeLimit):
            own = jnp.ceil(jnp.asarray(env.max_steps, jnp.float32) / repeats).astype(jnp.int32)
            limit = own if limit is None else jnp.minimum(limit, own)
        env = getattr(env, "env", None)
    return limit


def first_lengths(env: Any, stagger: bool | int, keys: Key) -> Array | None:
    """Return the lengths at which first episodes of E environments are truncated, [E] int32; None without `stagger`.

    `stagger` is the largest length, or True for the time limit of `env`, one environment; `keys` [E] are those with
    which the environments are reset. Raises ConfigError if this time limit is needed and there is none.
    """
    if not stagger:
        return None
    longest = longest_episode(env) if stagger is True else stagger
    if longest is None:
        raise no_limit(type(env).__name__)

    def one(key: Key) -> Array:
        return jax.random.randint(jax.random.fold_in(key, LENGTH), (), 1, longest + 1)

    return jax.vmap(one)(keys)
