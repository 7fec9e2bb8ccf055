"""Checks for NaN and infinity in rollouts and learners, and discarding of an iteration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.core.types import Rollout
from ppax.devices.layout import only_if
from ppax.envs import Env

T = TypeVar("T")


def bad_leaves(learner: Any) -> Iterator[Array]:
    """Yield flags [], True where leaves of a learner have NaN or, except in the optimiser's state, infinity.

    Each leaf of the optimiser's state, which may be infinite, gives one flag. All other floats together give one flag,
    because one reduction compiles faster than one per leaf.
    """
    others = []
    for path, x in jax.tree_util.tree_leaves_with_path(learner):
        if not jnp.issubdtype(x.dtype, jnp.floating):
            continue
        if any(getattr(key, "name", "") == "opt_state" for key in path):
            yield jnp.isnan(x).any()
        else:
            others.append(x.reshape(-1))
    if others:
        yield ~jnp.isfinite(jnp.concatenate(others)).all()


def either(accepted: Array, after: T, before: T) -> T:
    """Return `after` if `accepted` [], else `before`, the training states after and before one iteration.

    A discarded iteration's random key is used again by the next. This is intended, and JAX's check for reused keys does
    not object, because keys are selected as plain numbers.
    """
    is_key = [jnp.issubdtype(x.dtype, jax.dtypes.prng_key) for x in jax.tree.leaves(before)]
    new, old = (
        [jax.random.key_data(x) if key else x for x, key in zip(jax.tree.leaves(tree), is_key, strict=True)]
        for tree in (after, before)
    )
    kept = only_if(accepted, lambda: new, old)  # on a CPU a branch, which compiles faster than a select per array
    leaves, structure = jax.tree.flatten(before)
    keys = [
        jax.random.wrap_key_data(x, impl=jax.random.key_impl(like)) if key else x
        for x, like, key in zip(kept, leaves, is_key, strict=True)
    ]
    return jax.tree.unflatten(structure, keys)


def not_finite(env: Env, rollout: Rollout) -> dict[str, Array]:
    """Return masks by name, True for rewards, values and observations that training uses and that are not finite.

    The names are "reward", "value" and, for each float array of the observations, "observation" with the path of the
    array, such as "observation['camera']". Masks are [T, B]; for observations of a group of agents [T, E * A_g], for E
    environments with A_g agents of the group.
    """
    steps = rollout.steps
    cut = steps.truncated & ~steps.terminated
    # The final observation of a truncated episode is used too: its value is the bootstrap value
    seen = steps.valid | jnp.concatenate([jnp.zeros_like(cut[:1]), cut[:-1]])
    seen_by_group: dict[str, Array] = {}
    if env.sizes:
        edges = np.cumsum([size for _, size in env.sizes])[:-1].tolist()
        parts = jnp.split(seen.reshape(len(seen), env.num_envs, -1), edges, axis=2)
        seen_by_group = {name: x.reshape(len(seen), -1) for (name, _), x in zip(env.sizes, parts, strict=True)}
    wrong = {"reward": ~jnp.isfinite(steps.reward) & steps.valid, "value": ~jnp.isfinite(steps.value) & seen}
    for path, x in jax.tree_util.tree_leaves_with_path(steps.obs):
        if jnp.issubdtype(x.dtype, jnp.floating):
            own = seen_by_group[path[0].key] if seen_by_group else seen
            finite = jnp.isfinite(x).all(axis=tuple(range(2, x.ndim)))
            wrong[f"observation{jax.tree_util.keystr(path)}"] = ~finite & own
    return wrong
