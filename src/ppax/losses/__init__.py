"""Losses, one a file: policy objectives (`Loss`) and auxiliary losses (`AuxiliaryLoss`), as per-row terms."""

from ppax.losses.clipped import ClippedSurrogate
from ppax.losses.dpo import DPO
from ppax.losses.feature_norm import FeatureNorm
from ppax.losses.kl_penalty import KLPenalty
from ppax.losses.no_auxiliary import NoAuxiliary
from ppax.losses.no_policy import NoPolicyLoss
from ppax.losses.rollback import Rollback
from ppax.losses.spo import SPO
from ppax.losses.symmetry import Symmetry

__all__ = [
    "DPO",
    "SPO",
    "ClippedSurrogate",
    "FeatureNorm",
    "KLPenalty",
    "NoAuxiliary",
    "NoPolicyLoss",
    "Rollback",
    "Symmetry",
]
