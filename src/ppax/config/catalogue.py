"""Catalogue of the parts that come with ppax, by their names in run files.

A part is a swappable frozen dataclass, such as a loss.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from ppax.config.user_parts import user_class, user_class_name
from ppax.core import imports
from ppax.core.options import check_limits, options_of
from ppax.core.parts import Table
from ppax.core.protocols import MadeForSpaces
from ppax.extensions import (
    CAPS,
    L2C2,
    PPG,
    RND,
    ActionRate,
    CriticWarmup,
    EntropyTarget,
    FeatureNorm,
    HeldNoise,
    KLControl,
    NextObservation,
    OwnCritic,
    RewardSpreading,
    SelfPrediction,
    Symmetry,
)
from ppax.extensions.imitation import (
    BehaviourCloning,
    ByTask,
    ByValue,
    Distillation,
    MotionPrior,
    clone,
    distill,
    motion_prior,
)
from ppax.loggers import MLflow, TensorBoard, WandB
from ppax.networks import Composed, adapters, encoders, memories, modules, network
from ppax.ppo import recompute
from ppax.ppo.advantages import GAE, CanonicalVTrace, MonteCarlo, TDLambda, VTrace
from ppax.ppo.critics import PopArt, Quantile, Regression, TwoHot
from ppax.ppo.gradients import Plain
from ppax.ppo.losses import DPO, SPO, ClippedSurrogate, KLPenalty, NoPolicyLoss, Rollback
from ppax.ppo.minibatches import Prioritised, Shuffle, ShuffleRows
from ppax.ppo.optimizers import ActorCritic, Adam, Muon
from ppax.ppo.ppo import PPO
from ppax.ppo.schedules import Both, Constant, Cosine, Interpolated, Linear, Steps

# Parts of each kind by their names in a run file; the first is the default. `slot` declares a field that holds one.
PARTS: dict[str, dict[str, type]] = {
    "network": {
        "composed": Composed,
        "nnx": modules.NNXNetwork,
        "linen": modules.LinenNetwork,
        "equinox": modules.EquinoxNetwork,
    },
    "encoder": {
        "auto": encoders.Auto,
        "nature_cnn": encoders.NatureCNN,
        "impala_cnn": encoders.ImpalaCNN,
        "small_cnn": encoders.SmallCNN,
        "flat": encoders.Flat,
        "nnx": adapters.NNX,
        "linen": adapters.Linen,
        "equinox": adapters.Equinox,
    },
    "memory": {
        "none": memories.NoMemory,
        "gru": memories.GRU,
        "lstm": memories.LSTM,
        "mingru": memories.MinGRU,
        "lru": memories.LRU,
        "attention": memories.Attention,
        "window": memories.Window,
        "stack": memories.Stack,
    },
    "advantage": {
        "gae": GAE,
        "vtrace": VTrace,
        "vtrace_canonical": CanonicalVTrace,
        "td_lambda": TDLambda,
        "monte_carlo": MonteCarlo,
    },
    "loss": {
        "clipped": ClippedSurrogate,
        "kl_penalty": KLPenalty,
        "dpo": DPO,
        "spo": SPO,
        "rollback": Rollback,
        "none": NoPolicyLoss,
    },
    "extension": {
        "kl_control": KLControl,
        "entropy_target": EntropyTarget,
        "reward_spreading": RewardSpreading,
        "rnd": RND,
        "own_critic": OwnCritic,
        "ppg": PPG,
        "held_noise": HeldNoise,
        "feature_norm": FeatureNorm,
        "symmetry": Symmetry,
        "caps": CAPS,
        "l2c2": L2C2,
        "action_rate": ActionRate,
        "self_prediction": SelfPrediction,
        "next_observation": NextObservation,
        "distillation": Distillation,
        "behaviour_cloning": BehaviourCloning,
        "motion_prior": MotionPrior,
        "critic_warmup": CriticWarmup,
    },
    "selection": {"task": ByTask, "value": ByValue},
    "critic": {"regression": Regression, "two_hot": TwoHot, "popart": PopArt, "quantile": Quantile},
    "minibatch": {"shuffle": Shuffle, "shuffle_rows": ShuffleRows, "prioritised": Prioritised},
    "recompute": {"never": recompute.Never, "epoch": recompute.Epoch, "minibatch": recompute.Minibatch},
    "gradient": {"plain": Plain},
    "optimizer": {
        "adam": Adam,
        "muon": Muon,
        "actor_critic": ActorCritic,
    },
    "schedule": {
        "constant": Constant,
        "linear": Linear,
        "cosine": Cosine,
        "steps": Steps,
        "interpolated": Interpolated,
        "both": Both,
    },
    "logger": {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow},
}
# Ways in which a field holds parts, as entries of its metadata (core/parts.py): one, a list, some by key, or some in
# their order by name
ONE, LIST, TABLE, CHAIN = HOLDERS = ("slot", "slot_list", "slot_table", "slot_chain")
# Constructors of the parts that are made for the spaces of an environment, which is their first argument.
FROM_SPACES: dict[type, Callable[..., Any]] = {
    Composed: network,
    Distillation: distill,
    BehaviourCloning: clone,
    MotionPrior: motion_prior,
}


class Choices(dict[str, type]):
    """Dict of the classes of one kind of part (a swappable frozen dataclass), such as "loss", by names in a run file.

    A name that the dict lacks is looked up as the import path or registered name of a user's class.
    """

    def __init__(self, kind: str, parts: Mapping[str, type]):
        super().__init__(parts)
        self.kind = kind

    def __missing__(self, name: str) -> type:
        return self.find(name, self.kind)

    def find(self, name: str, place: str) -> type:
        """Return the class of the part `name`: one in this dict, or a user's by import path or registered name.

        `place` is the path of the option that has this name, for error messages. Raises ConfigError for an unknown
        name, Untrusted for code that the user does not trust.
        """
        found = self.get(name) or user_class(self.kind, name, place)
        if found is None:
            names = tuple(dict.fromkeys((*self, *imports.registered(self.kind))))
            check_limits(place, name, {"choices": names})  # raises ConfigError with the nearest name
            raise KeyError(name)
        return found

    def name_of(self, part: Any) -> str:
        """Return the name that run files have for the class of `part`.

        For a class that no run file can name, the result is its module and its name, joined by a dot.
        """
        return next((name for name, cls in self.items() if cls is type(part)), None) or user_class_name(part)


AGENT = Choices("agent", {"ppo": PPO})  # the agent itself; by import path a subclass


class PartField(NamedTuple):
    """Field of a dataclass that holds parts (swappable frozen dataclasses): how it holds them, and which may be chosen.

    `holds` is "slot" (one part), "slot_list" (a list), "slot_table" (parts by key) or "slot_chain" (parts by name, in
    their order).
    """

    holds: str  # one of HOLDERS
    choices: Choices


def part_fields(cls: type) -> dict[str, PartField]:
    """Return the fields of the dataclass `cls` that hold parts (swappable frozen dataclasses), by name."""
    found = {}
    for field in dataclasses.fields(cls):
        holds = next((one for one in HOLDERS if one in field.metadata), None)
        if holds is not None:
            kind = field.metadata[holds]
            choices = dict(field.metadata.get("first", {})) | PARTS.get(kind, {})
            found[field.name] = PartField(holds, Choices(kind, choices))
    return found


def choices_of(cls: type) -> dict[str, Choices]:
    """Return the classes that may be chosen for each field of `cls` that holds a part, by the field's name.

    A part is a swappable frozen dataclass; fields that hold several parts are left out.
    """
    return {name: field.choices for name, field in part_fields(cls).items() if field.holds == ONE}


def fields_holding(*holders: str) -> set[str]:
    """Return the names of all fields, of PPO and the parts that come with ppax, that hold parts in certain forms.

    A part is a swappable object, such as a loss. The forms in `holders` are "slot" (one part), "slot_list" (a list),
    "slot_table" (parts by key) and "slot_chain" (parts by name, in their order).
    """
    classes = (PPO, *(cls for kind in PARTS.values() for cls in kind.values()))
    return {name for cls in classes for name, field in part_fields(cls).items() if field.holds in holders}


def free_fields() -> set[str]:
    """Return the names of all fields, in the parts of the catalogue, that hold a table whose keys the user names."""
    classes = [cls for kind in PARTS.values() for cls in kind.values()]
    return {name for cls in classes for name, option in options_of(cls).items() if option.kind is Table}


def constructor(cls: type, env: Any) -> Callable[..., Any]:
    """Return a callable that makes a part (a swappable object) of class `cls` from its options.

    Where the class is made for the spaces of an environment, the callable has `env` as its first argument already.
    """
    if isinstance(cls, MadeForSpaces):
        return partial(cls.for_spaces, env)
    return partial(FROM_SPACES[cls], env) if cls in FROM_SPACES else cls
