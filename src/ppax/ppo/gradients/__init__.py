"""Gradients of gradient steps, one a file: from that of the minibatch's loss, at any parameters, to the optimiser's."""

from ppax.ppo.gradients.plain import Plain

__all__ = ["Plain"]
