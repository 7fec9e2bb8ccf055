"""Imitation: extensions that distil teachers, clone demonstrated actions, or reward motions like demonstrated ones."""

from ppax.extensions.imitation.cloning import BehaviourCloning, clone
from ppax.extensions.imitation.demonstrations import Demonstrations
from ppax.extensions.imitation.distillation import Distillation, distill
from ppax.extensions.imitation.motions import MotionPrior, motion_prior
from ppax.extensions.imitation.selection import ByTask, ByValue

__all__ = [
    "BehaviourCloning",
    "ByTask",
    "ByValue",
    "Demonstrations",
    "Distillation",
    "MotionPrior",
    "clone",
    "distill",
    "motion_prior",
]
