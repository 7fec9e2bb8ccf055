"""Losses, one a file: functions of distribution, value losses and batch, without access to the network."""

from ppax.losses.clipped import ClippedSurrogate
from ppax.losses.dpo import DPO
from ppax.losses.kl_penalty import KLPenalty

__all__ = ["DPO", "ClippedSurrogate", "KLPenalty"]
