"""Extensions of PPO, one in each file: optional features. Their base class, with its hooks, is in ppo/extension.py."""

from ppax.core.types import ExtensionState
from ppax.extensions.critic_warmup import CriticWarmup
from ppax.extensions.entropy_target import EntropyTarget
from ppax.extensions.feature_norm import FeatureNorm
from ppax.extensions.held_noise import HeldNoise
from ppax.extensions.kl_control import KLControl
from ppax.extensions.next_observations import Following, following, following_in_episode
from ppax.extensions.own_critic import OwnCritic
from ppax.extensions.ppg import PPG
from ppax.extensions.predictions import NextObservation, SelfPrediction
from ppax.extensions.reward_spreading import RewardSpreading
from ppax.extensions.rnd import RND, mean_reward
from ppax.extensions.smooth_actions import CAPS, L2C2, ActionRate
from ppax.extensions.symmetry import Symmetry
from ppax.ppo.extension import Acted, After, Before, Choice, Extension, Learned, Observed, Rows, Terms

__all__ = [
    "CAPS",
    "L2C2",
    "PPG",
    "RND",
    "Acted",
    "ActionRate",
    "After",
    "Before",
    "Choice",
    "CriticWarmup",
    "EntropyTarget",
    "Extension",
    "ExtensionState",
    "FeatureNorm",
    "Following",
    "HeldNoise",
    "KLControl",
    "Learned",
    "NextObservation",
    "Observed",
    "OwnCritic",
    "RewardSpreading",
    "Rows",
    "SelfPrediction",
    "Symmetry",
    "Terms",
    "following",
    "following_in_episode",
    "mean_reward",
]
