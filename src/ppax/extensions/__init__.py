"""Extensions, one a file: what PPO can do without. `learning.extension.Extension` has the hooks."""

from ppax.extensions.entropy_target import EntropyTarget
from ppax.extensions.feature_norm import FeatureNorm
from ppax.extensions.kl_control import KLControl
from ppax.extensions.next_observation import NextObservation
from ppax.extensions.own_critic import OwnCritic
from ppax.extensions.ppg import PPG
from ppax.extensions.reward_spreading import RewardSpreading
from ppax.extensions.rnd import RND
from ppax.extensions.self_prediction import SelfPrediction
from ppax.extensions.symmetry import Symmetry

__all__ = [
    "PPG",
    "RND",
    "EntropyTarget",
    "FeatureNorm",
    "KLControl",
    "NextObservation",
    "OwnCritic",
    "RewardSpreading",
    "SelfPrediction",
    "Symmetry",
]
