"""Action distributions, one family in each file. `env_action` maps a stored action to the environment's space."""

from ppax.distributions.beta import Beta
from ppax.distributions.categorical import Categorical
from ppax.distributions.joint import Factorised, Joint
from ppax.distributions.normal import BallNormal, Normal, SquashedNormal

__all__ = ["BallNormal", "Beta", "Categorical", "Factorised", "Joint", "Normal", "SquashedNormal"]
