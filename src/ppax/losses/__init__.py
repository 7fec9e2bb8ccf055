"""Losses, one a file: policy objectives, as per-row terms."""

from ppax.losses.clipped import ClippedSurrogate
from ppax.losses.dpo import DPO
from ppax.losses.kl_penalty import KLPenalty
from ppax.losses.no_policy import NoPolicyLoss
from ppax.losses.rollback import Rollback
from ppax.losses.spo import SPO

__all__ = [
    "DPO",
    "SPO",
    "ClippedSurrogate",
    "KLPenalty",
    "NoPolicyLoss",
    "Rollback",
]
