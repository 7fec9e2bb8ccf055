"""Trained policies apart from their runs: act for single observations or batches, or inside a user's own program."""

from ppax.policy.policy import Policy
from ppax.policy.spec import PolicySpec
from ppax.policy.step import Stepped

__all__ = ["Policy", "PolicySpec", "Stepped"]
