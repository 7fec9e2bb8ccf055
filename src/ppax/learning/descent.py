"""Data and state of an update, and the optimiser step on its parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import optax
from jax import Array
from jax.flatten_util import ravel_pytree

from ppax.learning.batches import Experience, RowMasks
from ppax.learning.diagnostics import History
from ppax.learning.kl_control import KLState
from ppax.program.layout import only_if
from ppax.types import Key, LearnerState, Params, PyTree, Targets


class UpdateData(NamedTuple):
    """Inputs of an update that stay the same in all its gradient steps."""

    learner: LearnerState  # `params` are those before the first gradient step
    experience: Experience
    rows: RowMasks
    num_steps: int
    to_params: Callable[[Array], Params]  # parameter vector -> params
    key: Key  # of the draws of auxiliary losses


class UpdateState(NamedTuple):
    """Carry of the scan over gradient steps."""

    params: Params
    vector: Array  # [P] `params` flattened: an elementwise optimiser needs few operations on one vector
    opt_state: PyTree
    kl: KLState
    targets: Targets | None  # [M, L] with recompute = minibatch, else None
    epoch: Array  # [] number of the epoch, from 0


Step = tuple[UpdateState, History]  # result of a step of the scans over epochs and gradient steps


def descend(
    transformation: optax.GradientTransformationExtraArgs,
    elementwise: bool,
    to_params: Callable[[Array], Params],
    state: UpdateState,
    gradient: Array,
    goes_on: Array,
) -> UpdateState:
    """Optimiser step along `gradient` [P], which an elementwise optimiser gets as a vector, others as a tree.

    Parameters and optimiser state stay unchanged unless `goes_on` [].
    """

    def step() -> tuple[Array, PyTree]:
        if elementwise:
            updates, opt_state = transformation.update(gradient, state.opt_state, state.vector, epoch=state.epoch)
            return state.vector + updates, opt_state
        trees = to_params(gradient), state.opt_state, state.params
        tree, opt_state = transformation.update(*trees, epoch=state.epoch)
        return state.vector + ravel_pytree(tree)[0], opt_state

    vector, opt_state = only_if(goes_on, step, (state.vector, state.opt_state))
    return state._replace(params=to_params(vector), vector=vector, opt_state=opt_state)
