"""Intrinsic rewards, one a file: rewards that an agent gives itself, with state of their own that learns."""

from ppax.intrinsic.no_intrinsic import NoIntrinsic
from ppax.intrinsic.own_critic import OwnCritic
from ppax.intrinsic.rnd import RND

__all__ = ["RND", "NoIntrinsic", "OwnCritic"]
