"""Auxiliary phases, one a file: further gradient steps after those of PPO's objective, with state of their own."""

from ppax.phases.no_phase import NoPhase
from ppax.phases.ppg import PPG

__all__ = ["PPG", "NoPhase"]
