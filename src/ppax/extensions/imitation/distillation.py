"""Distillation of a teacher policy. Rusu et al. 2016, https://arxiv.org/abs/1511.06295

The loss of a row is KL(teacher || student), eq. 3 there with a temperature of 1, at the observations that the student
itself meets: on-policy distillation (Czarnecki et al. 2019, https://arxiv.org/abs/1902.02186), which is DAgger with
beta = 0 (Ross et al. 2011, https://arxiv.org/abs/1011.0686), or with their `beta` above 0. Added to PPO's loss it is
kickstarting (Schmitt et al. 2018, https://arxiv.org/abs/1803.03835).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from gymnasium import spaces
from jax import Array

from ppax.arrays.sequences import where_rows, zero_rows
from ppax.core.parts import PATH
from ppax.core.types import ConfigError, ExtensionState, Key, PyTree, Rollout, Scalar, number, part, static
from ppax.extensions.imitation.teachers import Teacher, initial_memory, teacher_of
from ppax.ppo.extension import Acted, Before, Choice, Extension, Rows, Terms
from ppax.ppo.losses import NoPolicyLoss

REMEDY = 'teacher = "runs/teacher", a run directory or bundle; in Python ppax.imitation.distill(env, teacher)'


@part
class Distillation(Extension):
    """Distillation of a teacher policy: coef * KL(teacher || student) on the student's own steps. Rusu et al. 2016,
    https://arxiv.org/abs/1511.06295

    With `beta`, DAgger (Ross et al. 2011, https://arxiv.org/abs/1011.0686): the teacher acts in some steps. The teacher
    has the spaces and the distribution of the student. In Python `ppax.imitation.distill` makes this part.
    """

    teacher: str = static(
        "run directory or exported bundle of the teacher, as ppax.load reads it", default="", outside=PATH
    )
    checksum: str = static(
        "SHA-256 of the teacher, which ppax writes into the run file: another teacher is refused", default=""
    )
    coef: Scalar = number("weight of the divergence of the student from the teacher in the loss", default=1.0, low=0.0)
    beta: Scalar | None = number(
        "DAgger: probability that the teacher acts in a step, with loss = none; none: the student acts always",
        default=None,
        low=0.0,
        high=1.0,
    )
    memory: tuple[str, ...] = static(
        "arrays of the teacher's memory in one stream, which ppax writes into the run file; empty without one",
        default=(),
    )
    policy: Teacher | None = static("the teacher, as `distill` holds it", default=None)

    def init(self, agent: Any, observation_space: spaces.Space, key: Key) -> ExtensionState:
        """Return no state; ConfigError where the teacher acts beside a policy loss, whose ratios would be wrong."""
        if self.beta is not None and not isinstance(agent.loss, NoPolicyLoss):
            raise ConfigError(
                f"distillation.beta: some actions are the teacher's, whose probability ratio in "
                f'{type(agent.loss).__name__} would be wrong; must be none, or with agent.loss = "none", in Python '
                "loss=ppax.losses.NoPolicyLoss()"
            )
        return ExtensionState()

    def terms(self, rows: Rows) -> Terms:
        """Terms of rows [N]; ConfigError where the distributions of teacher and student are not of one kind."""
        wanted, own = rows.extras, rows.policy.distribution
        _require_alike(wanted, own)
        # rows that are not valid are zeros, of which some densities have no logarithm: NaN would reach the gradient
        divergence = where_rows(rows.batch.steps.valid, wanted, jax.lax.stop_gradient(own)).kl(own)
        return Terms({"distillation_loss": self.coef * divergence}, {"teacher_kl": divergence})

    def init_streams(self, num_streams: int) -> PyTree:
        """Return the teacher's initial memory in each stream, which `before` advances over each rollout."""
        return initial_memory(self.memory, num_streams)

    def before(self, agent: Any, state: PyTree, streams: PyTree, rollout: Rollout, reward: Array) -> Before:
        """Make the distributions of the teacher's actions in a rollout [T, B], and advance its memory."""
        steps = rollout.steps
        obs, action_mask = zero_rows(steps.valid, (steps.obs, steps.action_mask))
        distribution, memory = self._teacher().follow(streams, obs, steps.first, action_mask)
        return Before(state, reward, distribution, memory)

    def init_acting(self, agent: Any, num_streams: int) -> PyTree:
        """Return the teacher's memory of each stream while it acts, and whether it has acted; () without `beta`.

        It advances with every collected step; the memory of `init_streams` advances once per rollout, in `before`.
        """
        if self.beta is None:
            return ()
        return initial_memory(self.memory, num_streams), jnp.zeros(num_streams, bool)

    def act(self, agent: Any, acting: PyTree, choice: Choice, key: Key) -> Acted:
        """Act with probability `beta` in each step of each stream, by a sample of the teacher's distribution."""
        act_key, choice_key = (jax.vmap(jax.random.fold_in, (0, None))(key, number) for number in range(2))
        acted = self._teacher().act(acting[0], choice.obs, choice.first, choice.action_mask, act_key)
        _require_alike(acted.distribution, choice.policy.distribution)
        beta = 0.0 if self.beta is None else self.beta  # without it nothing calls this
        acts = jax.vmap(lambda one: jax.random.bernoulli(one, beta))(choice_key)
        return Acted((acted.memory, acts), where_rows(acts, acted.action, choice.action))

    def _teacher(self) -> Teacher:
        if self.policy is None:
            raise ConfigError(f"distillation.teacher: distillation needs a teacher: {REMEDY}")
        return self.policy


def distill(
    env: Any,
    teacher: Any = "",
    checksum: str = "",
    coef: Scalar = 1.0,
    beta: Scalar | None = None,
    memory: tuple[str, ...] = (),
) -> Distillation:
    """Return the extension that distils `teacher` for the spaces of `env`.

    `teacher` is the path of a run directory or bundle, which `ppax.load` reads, "hf://OWNER/NAME", or a `ppax.Policy`.
    With `beta`, each step's action is the teacher's with this probability (DAgger), which takes
    `loss=ppax.losses.NoPolicyLoss()`. A path is in the run file, so that a run continues from its directory; a policy
    has to be passed again. With a `checksum` the teacher is read when it is first computed, and has to be the same, its
    `memory` too. ConfigError, naming the field, for a teacher that is missing or another, has other spaces, or several
    agents.
    """
    if isinstance(teacher, str) and not teacher:
        raise ConfigError(f'distillation.teacher = "": must be {REMEDY}')
    source = str(teacher) if isinstance(teacher, Path) else teacher
    policy = teacher_of(source, checksum, tuple(memory), env.observation_space, env.action_space)
    return Distillation(policy.source, policy.checksum if policy.source else "", coef, beta, policy.memory, policy)


def _require_alike(wanted: Any, own: Any) -> None:
    """Raise ConfigError unless two distributions are of one kind, with the same bounds."""
    if jax.tree.structure(wanted) != jax.tree.structure(own):  # type: ignore[operator]
        names = type(wanted).__name__, type(own).__name__
        raise ConfigError(
            f"distillation.teacher: its actions have the distribution {names[0]}, those of the student {names[1]}; "
            "must be the same with the same bounds: give agent.network.distribution of the teacher's run"
        )
