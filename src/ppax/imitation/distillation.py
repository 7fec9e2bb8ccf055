"""Distillation of a teacher policy. Rusu et al. 2016, https://arxiv.org/abs/1511.06295

The loss of a row is KL(teacher || student), eq. 3 there with a temperature of 1, at the observations that the student
itself meets: on-policy distillation (Czarnecki et al. 2019, https://arxiv.org/abs/1902.02186), which is DAgger with
beta = 0 (Ross et al. 2011, https://arxiv.org/abs/1011.0686). Beside PPO's own loss it is kickstarting (Schmitt et al.
2018, https://arxiv.org/abs/1803.03835).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

from ppax.imitation.teachers import Teacher, teacher_of
from ppax.protocols import AuxiliaryTerms
from ppax.types import Batch, ConfigError, Params, PyTree, Scalar, number, part, static

REMEDY = 'teacher = "runs/teacher", a run directory or bundle; in Python ppax.imitation.distill(env, teacher)'


@part
class Distillation:
    """Distillation of a teacher policy: coef * KL(teacher || student) on the student's own steps. Rusu et al. 2016,
    https://arxiv.org/abs/1511.06295

    The teacher has the spaces and the distribution of the student, and no memory. In Python `ppax.imitation.distill`
    makes this part.
    """

    teacher: str = static("run directory or exported bundle of the teacher, as ppax.load reads it", default="")
    checksum: str = static(
        "SHA-256 of the teacher, which ppax writes into the run file: another teacher is refused", default=""
    )
    coef: Scalar = number("weight of the divergence of the student from the teacher in the loss", default=1.0, low=0.0)
    policy: Teacher | None = static("the teacher, as `distill` holds it", default=None)

    def __call__(self, params: Params, features: PyTree, batch: Batch) -> AuxiliaryTerms:
        """Terms of rows [N]; ConfigError where the distributions of teacher and student are not of one kind."""
        if self.policy is None:
            raise ConfigError(f"auxiliary.teacher: distillation needs a teacher: {REMEDY}")
        steps = batch.steps
        wanted = jax.lax.stop_gradient(self.policy.distribution(steps.obs, steps.action_mask))
        own = batch.again.forward(steps.obs, steps.action_mask).distribution
        _require_alike(wanted, own)
        divergence = wanted.kl(own)
        return AuxiliaryTerms({"distillation_loss": self.coef * divergence}, {"teacher_kl": divergence})


def distill(env: Any, teacher: Any = "", checksum: str = "", coef: Scalar = 1.0) -> Distillation:
    """Return the auxiliary loss that distils `teacher` for the spaces of `env`.

    `teacher` is the path of a run directory or bundle, which `ppax.load` reads, "hf://OWNER/NAME", or a `ppax.Policy`.
    A path is in the run file, so that a run continues from its directory; a policy has to be passed again. With a
    `checksum` the teacher is read when the loss is first computed, and has to be the same. ConfigError, naming the
    field, for a teacher that is missing or another, has other spaces, a memory, or several agents.
    """
    if isinstance(teacher, str) and not teacher:
        raise ConfigError(f'auxiliary.teacher = "": must be {REMEDY}')
    spaces = env.observation_space, env.action_space
    policy = teacher_of(str(teacher) if isinstance(teacher, Path) else teacher, checksum, *spaces)
    return Distillation(policy.source, policy.checksum if policy.source else "", coef, policy)


def _require_alike(wanted: Any, own: Any) -> None:
    """Raise ConfigError unless two distributions are of one kind, with the same bounds."""
    if jax.tree.structure(wanted) != jax.tree.structure(own):  # type: ignore[operator]
        names = type(wanted).__name__, type(own).__name__
        raise ConfigError(
            f"auxiliary.teacher: its actions have the distribution {names[0]}, those of the student {names[1]}; must "
            "be the same with the same bounds: give agent.network.distribution of the teacher's run"
        )
