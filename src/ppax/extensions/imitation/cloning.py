"""Behaviour cloning: maximum likelihood of the actions of demonstrations.

Pomerleau 1991, https://doi.org/10.1162/neco.1991.3.1.88. Added to PPO's loss it is the term for demonstrations in DAPG
(Rajeswaran et al. 2018, https://arxiv.org/abs/1709.10087, eq. 5), with `coef` as its weight, which a schedule may
lower.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.core.parts import PATH
from ppax.core.types import ConfigError, PyTree, Scalar, number, part, static
from ppax.distributions import Beta, Categorical, Factorised, Joint, Normal, SquashedNormal
from ppax.distributions.boxes import along, centre_and_half
from ppax.extensions.imitation.demonstrations import FIELD, Demonstrations, LazyDemonstrations, read
from ppax.ppo.extension import Extension, Rows, Terms

REMEDY = 'demonstrations = "demos.npz"; in Python ppax.imitation.clone(env, demonstrations)'
KNOWN = (Beta, Categorical, Factorised, Joint, Normal, SquashedNormal)
EDGE = 1e-6  # share of the half width by which actions at the bounds are moved inside: there tanh has no inverse


@part
class BehaviourCloning(Extension):
    """Behaviour cloning: coef * negative log-likelihood of demonstrated actions. Pomerleau 1991,
    https://doi.org/10.1162/neco.1991.3.1.88

    Each row of a rollout is paired with one demonstrated step, drawn anew in every update. For networks without memory.
    In Python `ppax.imitation.clone` makes this part.
    """

    demonstrations: str = static(
        "file .npz with the arrays observations, actions, terminations and truncations, as Minari's",
        default="",
        outside=PATH,
    )
    checksum: str = static(
        "SHA-256 of the demonstrations, which ppax writes into the run file: others are refused", default=""
    )
    coef: Scalar = number("weight of the negative log-likelihood in the loss", default=1.0, low=0.0)
    data: LazyDemonstrations[Demonstrations] | None = static("the demonstrations, as `clone` holds them", default=None)

    def terms(self, rows: Rows) -> Terms:
        """Return coef * the negative log-likelihood [N] of demonstrated actions, one drawn at random for each row.

        Raises ConfigError for a network with memory, and for minibatches with importance weights, such as those of
        `Prioritised`.
        """
        if self.data is None:
            raise ConfigError(f"{FIELD}: behaviour cloning needs demonstrations: {REMEDY}")
        if jax.tree.leaves(rows.sequences.carry):
            raise ConfigError("behaviour cloning is for networks without memory: rows are drawn one by one")
        if rows.batch.weights is not None and rows.batch.weights.value is not None:
            raise ConfigError("behaviour cloning has no importance weights: use minibatch = shuffle")
        demonstrated = self.data.rows()
        drawn = rows.draw(demonstrated.size)
        obs, action = jax.tree.map(lambda x: jnp.asarray(x)[drawn], (demonstrated.obs, demonstrated.actions))
        distribution = rows.forward(obs).distribution
        log_prob = distribution.log_prob(as_sampled(distribution, action))
        return Terms({"cloning_loss": -self.coef * log_prob}, {"demonstration_log_prob": log_prob})


def clone(env: Any, demonstrations: Any = "", checksum: str = "", coef: Scalar = 1.0) -> BehaviourCloning:
    """Return the extension that clones `demonstrations` for the spaces of `env`.

    `demonstrations` is the path of an .npz file, or a mapping, with the arrays `observations`, `actions`,
    `terminations` and `truncations`, episodes one after the other. A path is kept in the run file, and read again when
    the run is continued; arrays have to be passed again. `checksum` is the SHA-256 of these arrays, which ppax writes
    into the run file; leave it out in your own calls. With a `checksum`, demonstrations are read only when the loss is
    first computed, and ConfigError is raised then if their checksum differs. Raises ConfigError, naming the array,
    where one does not fit the spaces, and for a file that is missing.
    """
    path = os.path.abspath(demonstrations) if isinstance(demonstrations, str | Path) and str(demonstrations) else ""
    if not path and isinstance(demonstrations, str):
        raise ConfigError(f'{FIELD} = "": must be {REMEDY}')
    load = partial(read, path or demonstrations, env.observation_space, env.action_space)
    data = None if checksum else load()
    known = checksum if data is None else data.checksum
    return BehaviourCloning(path, known if path else "", coef, LazyDemonstrations(known, load, data))


def as_sampled(distribution: Any, action: PyTree) -> PyTree:
    """Return the environment's actions [N, ...] in the form in which `distribution` samples them.

    It is the inverse of the distribution's `env_action`. Raises ConfigError for a distribution without such an inverse.
    """
    if type(distribution) is Joint:
        parts = distribution.components
        if isinstance(parts, dict):
            return {name: as_sampled(one, action[name]) for name, one in parts.items()}
        return tuple(map(as_sampled, parts, action))
    if type(distribution) is Categorical:
        return action - distribution.start
    if type(distribution) is Factorised:
        return action.reshape(len(action), -1) - np.asarray(distribution.start, action.dtype)[None]
    if type(distribution) in (Normal, SquashedNormal, Beta):
        return _in_box(distribution, action.reshape(len(action), -1).astype(jnp.float32))
    raise ConfigError(
        f"behaviour cloning needs a distribution whose map to actions has an inverse, not "
        f"{type(distribution).__name__}; must be one of {', '.join(known.__name__ for known in KNOWN)}"
    )


def _in_box(distribution: Any, x: Array) -> Array:
    """Return actions of a Box, vectors [N, d], in the form in which `distribution` samples them.

    A `Normal` samples them as they are, a `SquashedNormal` before tanh, a `Beta` scaled to [0, 1].
    """
    if type(distribution) is Normal:
        return x
    if type(distribution) is Beta:
        low, high = (along(bound, x.ndim) for bound in (distribution.low, distribution.high))
        return (x - low) / (high - low)  # its density keeps away from 0 and 1
    centre, half = (along(bound, x.ndim) for bound in centre_and_half(distribution.low, distribution.high))
    return jnp.arctanh(jnp.clip((x - centre) / half, -1.0 + EDGE, 1.0 - EDGE))
