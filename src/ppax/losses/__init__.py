"""Objectives: one a file; they see distributions, values and a batch, never the network."""

from ppax.losses.clipped import ClippedSurrogate
from ppax.losses.dpo import DPO
from ppax.losses.kl_penalty import KLPenalty

__all__ = ["DPO", "ClippedSurrogate", "KLPenalty"]
