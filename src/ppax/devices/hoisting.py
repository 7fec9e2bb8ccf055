"""Hoisting: operations of a loop's body that read only the loop's inputs are moved out, and done for all steps at once.

An example: a step draws random numbers from its own key, without the loop's state. With few streams (agents in
environments) the draws are a dozen tiny kernels in every step; before the loop, a dozen kernels draw for all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax import Array
from jax.extend import core

from ppax.core.types import PyTree

Step = Callable[[Any, Any], tuple[Any, Any]]


class Loop(NamedTuple):
    """Loop over T steps as `jax.lax.scan` takes it: its body, and the inputs of all steps."""

    step: Step
    inputs: PyTree  # leaves [T, ...]


class Division(NamedTuple):
    """Operations of a loop's body, divided into those before the loop and those inside it, in their order."""

    ahead: list[Any]  # done before the loop: they read the input but not the state, or constants alone
    inside: list[Any]  # done in the loop: they read the state, or constants alone (these are done in both)
    made: list[Any]  # input variable, and results of the operations that read it but not the state


def hoisted(step: Step, inputs: Array, state: PyTree, most: int) -> Loop:
    """Return a loop equivalent to `step` over `inputs` [T, ...], with work that reads only `inputs` moved before it.

    `state` is the loop's first state. Operations inside branches and inner loops are not moved. Nothing is moved if the
    results stored for the loop would have more than `most` elements in all, nor under `jax.disable_jit`, where there is
    no program to divide.
    """
    if jax.config.jax_disable_jit:  # type: ignore[attr-defined]
        return Loop(step, inputs)
    first = jax.ShapeDtypeStruct(inputs.shape[1:], inputs.dtype)
    program, shapes = jax.make_jaxpr(step, return_shape=True)(state, first)
    *of_state, of_input = program.jaxpr.invars
    ahead, inside, made = _divided(program.jaxpr, of_input)
    read = {x for equation in inside for x in equation.invars if isinstance(x, core.Var)}
    read |= {x for x in program.jaxpr.outvars if isinstance(x, core.Var)}
    needed = [x for x in made if x in read]
    if len(inputs) * sum(x.aval.size for x in needed) > most:
        return Loop(step, inputs)
    before = _function(program, ahead, [of_input], needed)
    rest = _function(program, inside, [*of_state, *needed], program.jaxpr.outvars)

    def shorter(state: PyTree, values: list[Array]) -> tuple[PyTree, PyTree]:
        result: tuple[PyTree, PyTree] = jax.tree.unflatten(
            jax.tree.structure(shapes), rest(*jax.tree.leaves(state), *values)
        )
        return result

    return Loop(shorter, jax.vmap(before)(inputs))


def _divided(jaxpr: Any, of_input: Any) -> Division:
    """Return the operations of a loop's body `jaxpr`, divided by whether they can be done before the loop.

    `of_input` is the variable of the body's input.
    """
    constants, division = set(jaxpr.constvars), Division([], [], [of_input])
    made = {of_input}
    for equation in jaxpr.eqns:
        variables = {x for x in equation.invars if isinstance(x, core.Var)}
        if not equation.effects and variables <= constants:
            constants.update(equation.outvars)
            division.ahead.append(equation)
            division.inside.append(equation)
        elif not equation.effects and variables <= constants | made:
            made.update(equation.outvars)
            division.made.extend(equation.outvars)
            division.ahead.append(equation)
        else:
            division.inside.append(equation)
    return division


def constant_result(function: Callable[..., PyTree], *arguments: Any) -> list[Array] | None:
    """Return the arrays of `function(*arguments)` if its program computes them from constants alone; else None.

    For example, constant flags show that an environment never ends an episode. `arguments` may be shapes: no operation
    that reads them is done.
    """
    program = jax.make_jaxpr(function)(*arguments)
    constants, alone = set(program.jaxpr.constvars), []
    for equation in program.jaxpr.eqns:
        if not equation.effects and {x for x in equation.invars if isinstance(x, core.Var)} <= constants:
            constants.update(equation.outvars)
            alone.append(equation)
    if not {x for x in program.jaxpr.outvars if isinstance(x, core.Var)} <= constants:
        return None
    result: list[Array] = _function(program, alone, [], program.jaxpr.outvars)()
    return result


def _function(program: Any, equations: Sequence[Any], invars: Sequence[Any], outvars: Sequence[Any]) -> Any:
    """Return the operations `equations` of a program as a function, with arguments `invars` and results `outvars`."""
    jaxpr = program.jaxpr.replace(eqns=list(equations), invars=list(invars), outvars=list(outvars))
    return core.jaxpr_as_fun(core.ClosedJaxpr(jaxpr, program.consts))
