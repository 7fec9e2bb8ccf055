"""Advantage estimators, one a file, each written for one stream."""

from ppax.ppo.advantages.gae import GAE
from ppax.ppo.advantages.monte_carlo import MonteCarlo
from ppax.ppo.advantages.spread import spread_rewards
from ppax.ppo.advantages.td_lambda import TDLambda
from ppax.ppo.advantages.vtrace import VTrace
from ppax.ppo.advantages.vtrace_canonical import CanonicalVTrace

__all__ = ["GAE", "CanonicalVTrace", "MonteCarlo", "TDLambda", "VTrace", "spread_rewards"]
