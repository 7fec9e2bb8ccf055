"""Advantage estimators, one a file, each written for one stream."""

from ppax.advantages.gae import GAE
from ppax.advantages.monte_carlo import MonteCarlo
from ppax.advantages.spread import spread_rewards
from ppax.advantages.td_lambda import TDLambda
from ppax.advantages.vtrace import VTrace
from ppax.advantages.vtrace_canonical import CanonicalVTrace

__all__ = ["GAE", "CanonicalVTrace", "MonteCarlo", "TDLambda", "VTrace", "spread_rewards"]
