"""Imitation: extensions for distillation of teacher policies, and for cloning of demonstrations."""

from ppax.extensions.imitation.cloning import BehaviourCloning, clone
from ppax.extensions.imitation.demonstrations import Demonstrations
from ppax.extensions.imitation.distillation import Distillation, distill
from ppax.extensions.imitation.selection import ByTask, ByValue

__all__ = ["BehaviourCloning", "ByTask", "ByValue", "Demonstrations", "Distillation", "clone", "distill"]
