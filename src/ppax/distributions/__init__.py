"""Action distributions, one a file. `env_action` maps a stored action to that of the environment's space."""

from ppax.distributions.ball_normal import BallNormal
from ppax.distributions.beta import Beta
from ppax.distributions.categorical import Categorical
from ppax.distributions.factorised import Factorised
from ppax.distributions.joint import Joint
from ppax.distributions.normal import Normal
from ppax.distributions.squashed_normal import SquashedNormal

__all__ = ["BallNormal", "Beta", "Categorical", "Factorised", "Joint", "Normal", "SquashedNormal"]
