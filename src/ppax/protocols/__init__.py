"""Protocols with shapes: agents, parts of an agent, environments, and what a run calls.

Axes as in `types.py`: T steps of a rollout, B streams, M sequences of L steps, N = M * L flat rows.
"""

from ppax.protocols.agents import Agent
from ppax.protocols.auxiliary import (
    Again,
    AuxiliaryGuide,
    AuxiliaryLoss,
    AuxiliaryModel,
    AuxiliaryStreams,
    AuxiliaryTerms,
    Followed,
    Guided,
)
from ppax.protocols.backends import Backend, Scene, Training, WholeEpisodes
from ppax.protocols.environments import Environment
from ppax.protocols.learning import (
    Advantage,
    GradientRule,
    Loss,
    LossGradient,
    Minibatches,
    Optimizer,
    PolicyTerms,
    Schedule,
)
from ppax.protocols.networks import Adapted, Critic, Distribution, MadeForSpaces, Network, Rescale
from ppax.protocols.rewards import IntrinsicReward, IntrinsicRewards, KeepingPhase, Phase, Phased
from ppax.protocols.runs import (
    Artifact,
    Callback,
    ConditionState,
    FileLogger,
    LoggedRun,
    Logger,
    LoggerPart,
    Row,
    StopCondition,
)
from ppax.protocols.searches import Copy, Search, Standings, Stop

__all__ = [
    "Adapted",
    "Advantage",
    "Again",
    "Agent",
    "Artifact",
    "AuxiliaryGuide",
    "AuxiliaryLoss",
    "AuxiliaryModel",
    "AuxiliaryStreams",
    "AuxiliaryTerms",
    "Backend",
    "Callback",
    "ConditionState",
    "Copy",
    "Critic",
    "Distribution",
    "Environment",
    "FileLogger",
    "Followed",
    "GradientRule",
    "Guided",
    "IntrinsicReward",
    "IntrinsicRewards",
    "KeepingPhase",
    "LoggedRun",
    "Logger",
    "LoggerPart",
    "Loss",
    "LossGradient",
    "MadeForSpaces",
    "Minibatches",
    "Network",
    "Optimizer",
    "Phase",
    "Phased",
    "PolicyTerms",
    "Rescale",
    "Row",
    "Scene",
    "Schedule",
    "Search",
    "Standings",
    "Stop",
    "StopCondition",
    "Training",
    "WholeEpisodes",
]
