"""Sequences and targets that an update learns from, before its first gradient step."""

from unittest import mock

import jax


class _CutError(Exception):
    """Holds what `Recompute.cut` returned."""


def prepared(agent, learner, rollout):
    """Return the `Sequences` [M, L] of a rollout, as `PPO.update` cuts them; may be traced."""
    cut = type(agent.recompute).cut

    def stop(*arguments):
        raise _CutError(cut(*arguments))

    with mock.patch.object(type(agent.recompute), "cut", stop):
        try:
            agent.update(learner, rollout, jax.random.key(0))
        except _CutError as found:
            return found.args[0]
    raise AssertionError("update cut no rollout")
