"""Learning from others: distillation of a teacher policy, and behaviour cloning of demonstrations."""

from ppax.imitation.cloning import BehaviourCloning, clone
from ppax.imitation.demonstrations import Demonstrations
from ppax.imitation.distillation import Distillation, distill

__all__ = ["BehaviourCloning", "Demonstrations", "Distillation", "clone", "distill"]
