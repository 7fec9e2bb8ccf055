"""Sequences that an update learned from, and targets that it recomputes, for tests that look inside `PPO.update`."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from worlds import QUICK

from ppax.extensions import After, Extension, ExtensionState
from ppax.recompute import Targeting
from ppax.types import Batch, Targets, part


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

        def before_epoch(self, targeting: Targeting, params, targets):
            found.append(targeting)
            return super().before_epoch(targeting, params, targets)

    watched = dataclasses.replace(agent, recompute=Watched(), extensions=(*agent.extensions, Seen()))

    def run(learner, rollout):
        found.clear()
        states = {**learner.extensions, "seen": ExtensionState()}
        streams = {**dict(rollout.extensions), "seen": ()}
        update = watched.update(
            learner._replace(extensions=states), rollout._replace(extensions=streams), jax.random.key(9)
        )
        batch, targeting = update.learner.extensions["seen"].state, found[-1]
        if targeting.sequences.inputs is None:
            return Learned(batch, None)
        if agent.recompute.whole_streams:
            return Learned(batch, targeting.of(learner.params, jnp.arange(len(batch.steps.valid))))
        return Learned(batch, targeting.over_rollout(learner.params))

    return jax.jit(run, compiler_options=QUICK)(learner, rollout)
