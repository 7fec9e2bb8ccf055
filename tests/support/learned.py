"""Helpers of tests of updates: sequences that one learned from, targets that it recomputes, other extensions."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ppax.core.types import Batch, Targets, part
from ppax.extensions import After, Extension, ExtensionState
from ppax.ppo.extension import Chain
from ppax.ppo.recompute import Recomputation
from support.worlds import QUICK


@part
class Seen(Extension):
    """Extension whose state after an update is the batch that it learned from."""

    def after(self, agent, learner, state, inner, learned):
        return After(learner, learned.batch)


class Learned(NamedTuple):
    """Sequences of an update with their targets, and targets estimated again from the parameters that acted."""

    batch: Batch  # [M, L]
    recomputed: Targets | None  # [M, L]; None: these are never computed again


def learned(agent, learner, rollout):
    """Return what an update of `agent` learns from; targets are recomputed as `agent.recompute` does."""
    found = []

    @part
    class Watched(type(agent.recompute)):
        """Recomputation that hands out its inputs."""

        def before_epoch(self, recomputation: Recomputation, state):
            found.append(recomputation)
            return super().before_epoch(recomputation, state)

    watched = dataclasses.replace(agent, recompute=Watched(), extensions=(*agent.extensions, Seen()))

    def run(learner, rollout):
        found.clear()
        states = {**learner.extensions, "seen": ExtensionState()}
        streams = {**dict(rollout.extensions), "seen": ()}
        update = watched.update(
            learner._replace(extensions=states), rollout._replace(extensions=streams), jax.random.key(9)
        )
        batch, recomputation = update.learner.extensions["seen"].state, found[-1]
        if recomputation.inputs is None:
            return Learned(batch, None)
        if agent.recompute.whole_streams:
            return Learned(batch, recomputation.of(learner.params, jnp.arange(len(batch.steps.valid))))
        return Learned(batch, recomputation.over_rollout(learner.params))

    return jax.jit(run, compiler_options=QUICK)(learner, rollout)


def extended(agent, learner, rollout, *extensions, space=None):
    """Return agent, learner and rollout with these extensions in place of others, and with their first states.

    The optimiser's state stays: extensions with parameters need a new one, `agent.init`.
    """
    agent = dataclasses.replace(agent, extensions=extensions)
    states = Chain(extensions).init(agent, space, jax.random.key(8))
    streams = agent.init_streams(len(rollout.last_value))
    return agent, learner._replace(extensions=states), rollout._replace(extensions=streams)
