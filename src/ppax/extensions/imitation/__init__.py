"""Imitation: extensions for distillation of a teacher policy, and for cloning of demonstrations."""

from ppax.extensions.imitation.cloning import BehaviourCloning, clone
from ppax.extensions.imitation.demonstrations import Demonstrations
from ppax.extensions.imitation.distillation import Distillation, distill

__all__ = ["BehaviourCloning", "Demonstrations", "Distillation", "clone", "distill"]
