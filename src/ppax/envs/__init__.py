"""Environments: `make` creates one by name; your own has to implement the protocol `ppax.protocols.Environment`."""

from ppax.envs import builtin
from ppax.envs.adaptive_ranges import AdaptiveRanges
from ppax.envs.curriculum import check_schedule, scheduled
from ppax.envs.hosting.faults import EnvError
from ppax.envs.hosting.host_env import HostEnv, host
from ppax.envs.hosting.tensor_batch import TensorBatch
from ppax.envs.making import (
    BUILTIN,
    Env,
    ended,
    for_evaluation,
    grouped,
    make,
    other_params,
    require_native,
    with_schedule,
)
from ppax.envs.sensors import lidar, lidar_rays
from ppax.envs.settings import ARGUMENTS, TIMEOUT, VECTORIZATIONS, EnvSettings
from ppax.envs.suites.registry import HOST_SUITES, SUITES
from ppax.envs.vector import PoolResets, VectorEnv
from ppax.envs.wrappers.action_filter import ActionFilter
from ppax.envs.wrappers.agent_groups import Group, Grouped
from ppax.envs.wrappers.clip_actions import ClipActions
from ppax.envs.wrappers.time import ActionRepeat, TimeLimit
from ppax.envs.wrappers.views import PartialView, TeamView
from ppax.envs.wrappers.wrapper import Wrapper

__all__ = [
    "ARGUMENTS",
    "BUILTIN",
    "HOST_SUITES",
    "SUITES",
    "TIMEOUT",
    "VECTORIZATIONS",
    "ActionFilter",
    "ActionRepeat",
    "AdaptiveRanges",
    "ClipActions",
    "Env",
    "EnvError",
    "EnvSettings",
    "Group",
    "Grouped",
    "HostEnv",
    "PartialView",
    "PoolResets",
    "TeamView",
    "TensorBatch",
    "TimeLimit",
    "VectorEnv",
    "Wrapper",
    "builtin",
    "check_schedule",
    "ended",
    "for_evaluation",
    "grouped",
    "host",
    "lidar",
    "lidar_rays",
    "make",
    "other_params",
    "require_native",
    "scheduled",
    "with_schedule",
]
