"""Catalogue of the parts that come with ppax, by their names in a run file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from ppax.advantages import GAE, CanonicalVTrace, MonteCarlo, TDLambda, VTrace
from ppax.critics import PopArt, Regression, TwoHot
from ppax.losses import DPO, ClippedSurrogate, FeatureNorm, KLPenalty, NoAuxiliary
from ppax.minibatches import Prioritised, Shuffle
from ppax.networks import Composed, encoders, memories, network
from ppax.optimizers import SGD, ActorCritic, Adam, AdamW, Muon, RMSProp
from ppax.schedules import Both, Constant, Cosine, Interpolated, Linear, Steps

SCHEDULES = {
    "constant": Constant,
    "linear": Linear,
    "cosine": Cosine,
    "steps": Steps,
    "interpolated": Interpolated,
    "both": Both,
}
OPTIMIZERS = {"adam": Adam, "adamw": AdamW, "sgd": SGD, "rmsprop": RMSProp, "muon": Muon, "actor_critic": ActorCritic}
ADVANTAGES = {
    "gae": GAE,
    "vtrace": VTrace,
    "vtrace_canonical": CanonicalVTrace,
    "td_lambda": TDLambda,
    "monte_carlo": MonteCarlo,
}
# Choices of each field that holds a part; the first is the default.
PARTS: dict[str, dict[str, type]] = {
    "network": {"mlp": Composed},
    "encoder": {
        "auto": encoders.Auto,
        "nature_cnn": encoders.NatureCNN,
        "impala_cnn": encoders.ImpalaCNN,
        "small_cnn": encoders.SmallCNN,
        "flat": encoders.Flat,
    },
    "memory": {
        "none": memories.NoMemory,
        "gru": memories.GRU,
        "lstm": memories.LSTM,
        "mingru": memories.MinGRU,
        "lru": memories.LRU,
        "attention": memories.Attention,
        "window": memories.Window,
    },
    "advantage": ADVANTAGES,
    "loss": {"clipped": ClippedSurrogate, "kl_penalty": KLPenalty, "dpo": DPO},
    "auxiliary": {"none": NoAuxiliary, "feature_norm": FeatureNorm},
    "critic": {"regression": Regression, "two_hot": TwoHot, "popart": PopArt},
    "minibatch": {"shuffle": Shuffle, "prioritised": Prioritised},
    "optimizer": OPTIMIZERS,
    "actor": OPTIMIZERS,  # of ActorCritic
    "schedule": SCHEDULES,
    "first": SCHEDULES,  # of Both
    "second": SCHEDULES,
}
# Fields of a part with other choices than the field of that name elsewhere.
INNER: dict[type, dict[str, dict[str, type]]] = {ActorCritic: {"critic": OPTIMIZERS}}
# Constructors of networks: they take the environment, for its spaces.
NETWORKS: dict[str, Callable[..., Any]] = {"mlp": network}


def slots_of(cls: type) -> dict[str, dict[str, type]]:
    """Fields of `cls` that hold parts, with the choices of each by name."""
    slots = PARTS | INNER.get(cls, {})
    return {field.name: slots[field.name] for field in dataclasses.fields(cls) if field.name in slots}


def choices_of(cls: type, name: str) -> dict[str, type]:
    """Parts that field `name` of `cls` may hold, by their names; the first is the default."""
    return (PARTS | INNER.get(cls, {}))[name]
