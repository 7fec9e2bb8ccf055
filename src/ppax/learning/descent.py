"""Optimiser step on the parameters of an update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optax
from jax import Array
from jax.flatten_util import ravel_pytree

from ppax.program.layout import only_if
from ppax.types import Params, PyTree


def optimizer_step(
    transformation: optax.GradientTransformationExtraArgs,
    elementwise: bool,
    to_params: Callable[[Array], Params],
    state: Any,
    gradient: Array,
    proceed: Array,
) -> Any:
    """Optimiser step along `gradient` [P], which an elementwise optimiser gets as a vector, others as a tree.

    Parameters and optimiser state stay unchanged unless `proceed` [].
    """

    def step() -> tuple[Array, PyTree]:
        if elementwise:
            updates, opt_state = transformation.update(gradient, state.opt_state, state.vector, epoch=state.epoch)
            return state.vector + updates, opt_state
        updates, opt_state = transformation.update(
            to_params(gradient), state.opt_state, state.trained, epoch=state.epoch
        )
        return state.vector + ravel_pytree(updates)[0], opt_state

    vector, opt_state = only_if(proceed, step, (state.vector, state.opt_state))
    return state._replace(trained=to_params(vector), vector=vector, opt_state=opt_state)
