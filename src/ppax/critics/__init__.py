"""Critics, one a file: from a network's value outputs to V, and the loss that trains them."""

from ppax.critics.popart import PopArt
from ppax.critics.quantile import Quantile
from ppax.critics.regression import Regression
from ppax.critics.two_hot import TwoHot

__all__ = ["PopArt", "Quantile", "Regression", "TwoHot"]
