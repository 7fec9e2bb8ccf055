"""Losses, one a file: policy objectives, as per-row terms."""

from ppax.ppo.losses.clipped import ClippedSurrogate
from ppax.ppo.losses.dpo import DPO
from ppax.ppo.losses.kl_penalty import KLPenalty
from ppax.ppo.losses.no_policy import NoPolicyLoss
from ppax.ppo.losses.rollback import Rollback
from ppax.ppo.losses.spo import SPO

__all__ = [
    "DPO",
    "SPO",
    "ClippedSurrogate",
    "KLPenalty",
    "NoPolicyLoss",
    "Rollback",
]
