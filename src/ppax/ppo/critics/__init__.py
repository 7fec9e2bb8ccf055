"""Critics, one a file: from a network's value outputs to V, and the loss that trains them."""

from ppax.ppo.critics.popart import PopArt
from ppax.ppo.critics.quantile import Quantile
from ppax.ppo.critics.regression import Regression
from ppax.ppo.critics.two_hot import TwoHot

__all__ = ["PopArt", "Quantile", "Regression", "TwoHot"]
