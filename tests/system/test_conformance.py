"""Conformance of every public part: frozen, a pytree, hashable static fields, documented, round-trips."""

import dataclasses
import inspect
import itertools
import typing

import jax
import pytest

import ppax
from ppax import (
    advantages,
    config,
    critics,
    distributions,
    losses,
    minibatches,
    optimizers,
    protocols,
    schedules,
    types,
)
from ppax.envs import BUILTIN, TimeLimit, VectorEnv, builtin
from ppax.networks import head_for, mlp

ENV = ppax.make("CartPole-v1", 2)
PROTOCOLS = {
    "advantage": (protocols.Advantage, [advantages.GAE]),
    "loss": (protocols.Loss, [losses.ClippedSurrogate, losses.DPO, losses.KLPenalty]),
    "critic": (protocols.Critic, [critics.Regression, critics.TwoHot, critics.PopArt]),
    "minibatch": (protocols.Minibatches, [minibatches.Shuffle]),
    "distribution": (protocols.Distribution, [getattr(distributions, name) for name in distributions.__all__]),
    "network": (protocols.Network, [ppax.networks.Composed]),
    "environment": (protocols.Environment, [TimeLimit, *(getattr(builtin, name) for name in builtin.__all__)]),
}
PAIRS = [(protocol, cls) for protocol, classes in PROTOCOLS.values() for cls in classes]
EXAMPLES = [
    *(cls() for slot, choices in config.PARTS.items() if slot != "network" for cls in choices.values()),
    mlp(ENV),
    ppax.PPO(mlp(ENV)),
    ENV,
    *(make() for make in BUILTIN.values()),
]
PUBLIC = sorted(
    {
        *(cls for _, cls in PAIRS),
        *(type(example) for example in EXAMPLES),
        *(head for head in vars(head_for).values() if dataclasses.is_dataclass(head)),
        VectorEnv,
        types.Transition,
        types.TrainState,
    },
    key=lambda cls: cls.__name__,
)


@pytest.mark.parametrize(("protocol", "cls"), PAIRS, ids=lambda x: x.__name__)
def test_methods_have_the_protocols_names_and_arguments(protocol, cls):
    for name, verb in inspect.getmembers(protocol, inspect.isfunction):
        if name.startswith("_") and name != "__call__":
            continue
        own = inspect.signature(getattr(cls, name))
        assert list(own.parameters) == list(inspect.signature(verb).parameters), f"{cls.__name__}.{name}"
    for name, _ in inspect.getmembers(protocol, lambda x: isinstance(x, property)):
        assert hasattr(cls, name) or name in {field.name for field in dataclasses.fields(cls)}


@pytest.mark.parametrize("cls", PUBLIC, ids=lambda cls: cls.__name__)
def test_parts_are_frozen_documented_dataclasses(cls):
    assert cls.__dataclass_params__.frozen
    assert cls.__doc__
    assert not cls.__doc__.startswith(cls.__name__ + "(")  # the docstring that `dataclass` generates
    assert set(vars(cls)) & {"__post_init__"} == set()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda x: type(x).__name__)
def test_parts_round_trip_as_pytrees_and_numbers_are_leaves(example):
    leaves, structure = jax.tree.flatten(example)
    assert jax.tree.unflatten(structure, leaves) == example
    hash(structure)
    assert all(not isinstance(leaf, (str, bool)) and not callable(leaf) for leaf in leaves)
    # equal parts have the same tree structure: nothing recompiles
    again = jax.tree.unflatten(structure, [leaf for leaf in leaves])
    assert jax.tree.structure(again) == structure


@pytest.mark.parametrize("slot", config.PARTS)
def test_every_option_of_a_part_is_documented_and_typed(slot):
    for name, cls in config.PARTS[slot].items():
        assert name == name.lower()
        hints = typing.get_type_hints(cls)
        for field in dataclasses.fields(cls):
            assert field.name in hints
            if field.default is not dataclasses.MISSING:
                assert field.metadata.get("doc"), f"{cls.__name__}.{field.name} has no documentation"


def test_equal_parts_share_a_program():
    one, two = ppax.PPO(mlp(ENV)), ppax.PPO(mlp(ppax.make("CartPole-v1", 2)))
    assert jax.tree.structure(one) == jax.tree.structure(two)
    assert hash(jax.tree.structure(one)) == hash(jax.tree.structure(two))


def test_public_names_exist_and_are_listed_once():
    assert all(hasattr(ppax, name) for name in ppax.__all__)
    assert len(ppax.__all__) == len(set(ppax.__all__))


def test_schedules_and_optimizers_are_callable_parts():
    agent = ppax.PPO(mlp(ENV))
    for schedule in (schedules.Constant(), schedules.Linear(), schedules.Cosine()):
        assert jax.tree.structure(schedule(agent, 0.5)) == jax.tree.structure(agent)
    assert hasattr(optimizers.Adam()(1e-3), "update")


def test_parts_of_different_classes_are_different_programs():
    """`jax.tree_util.register_dataclass` alone makes classes with equal fields compare equal, so jit confuses them."""
    structures = {type(example): jax.tree.structure(example) for example in EXAMPLES}
    for one, other in itertools.combinations(structures, 2):
        assert structures[one] != structures[other], (one, other)

    @ppax.part
    class One:
        x: float = 1.0

    @ppax.part
    class Other:
        x: float = 1.0

    assert jax.tree.structure(One()) == jax.tree.structure(One(2.0)) != jax.tree.structure(Other())
