"""Protocols with shapes: agents, parts of an agent, environments, and what a run calls.

Axes as in `types.py`: T steps of a rollout, B streams, M sequences of L steps, N = M * L flat rows.
"""

from ppax.core.protocols.agents import Agent
from ppax.core.protocols.backends import Backend, Scene, Training, WholeEpisodes
from ppax.core.protocols.environments import Environment
from ppax.core.protocols.learning import (
    Advantage,
    GradientRule,
    Loss,
    LossGradient,
    Minibatches,
    Optimizer,
    PolicyTerms,
    Schedule,
)
from ppax.core.protocols.networks import Adapted, Critic, Distribution, MadeForSpaces, Network, Rescale
from ppax.core.protocols.runs import (
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
from ppax.core.protocols.searches import Copy, Search, Standings, Stop

__all__ = [
    "Adapted",
    "Advantage",
    "Agent",
    "Artifact",
    "Backend",
    "Callback",
    "ConditionState",
    "Copy",
    "Critic",
    "Distribution",
    "Environment",
    "FileLogger",
    "GradientRule",
    "LoggedRun",
    "Logger",
    "LoggerPart",
    "Loss",
    "LossGradient",
    "MadeForSpaces",
    "Minibatches",
    "Network",
    "Optimizer",
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
