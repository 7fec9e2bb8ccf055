"""Trained policies, usable without their runs: for single observations, for batches, or inside a user's own program."""

from ppax.policy.actor import Stepped
from ppax.policy.policy import ActionValue, Policy
from ppax.policy.spec import PolicySpec

__all__ = ["ActionValue", "Policy", "PolicySpec", "Stepped"]
