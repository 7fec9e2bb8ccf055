"""Conformance of every public part: frozen, a pytree, hashable static fields, documented, round-trips."""

import dataclasses
import inspect
import itertools
import re
import typing
from pathlib import Path

import jax
import pytest

import ppax
from ppax import config, distributions
from ppax.config.catalogue import choices_of
from ppax.core import protocols, types, unknown_names
from ppax.core.parts import slot_chains, slot_lists, slots
from ppax.envs import BUILTIN, ActionRepeat, PartialView, TeamView, TimeLimit, VectorEnv, builtin
from ppax.extensions.imitation.selection import Selection
from ppax.networks import encoders, heads, mlp
from ppax.networks.encoders import Encoder
from ppax.networks.memories.memory import MemoryPart
from ppax.ppo import optimizers, schedules
from ppax.ppo.recompute import Recompute

ENV = ppax.make("CartPole-v1", 2)


class Schedule(typing.Protocol):
    """The alias `protocols.Schedule` with the names of its arguments."""

    def __call__(self, agent, progress, env_steps): ...


SLOTS = {
    "network": protocols.Network,
    "encoder": Encoder,
    "memory": MemoryPart,
    "advantage": protocols.Advantage,
    "loss": protocols.Loss,
    "extension": ppax.Extension,
    "selection": Selection,
    "recompute": Recompute,
    "critic": protocols.Critic,
    "minibatch": protocols.Minibatches,
    "gradient": protocols.GradientRule,
    "optimizer": protocols.Optimizer,
    "schedule": Schedule,
    "logger": protocols.LoggerPart,
}
CATALOGUE = [(slot, name, cls) for slot, choices in config.PARTS.items() for name, cls in choices.items()]
OTHERS = {
    "distribution": (protocols.Distribution, [getattr(distributions, name) for name in distributions.__all__]),
    "environment": (
        protocols.Environment,
        [TimeLimit, ActionRepeat, PartialView, TeamView, *(getattr(builtin, name) for name in builtin.__all__)],
    ),
}
PAIRS = [
    # Auto stands for one of the other encoders, which `readers` chooses
    *((SLOTS[slot], cls) for slot, _, cls in CATALOGUE if cls is not encoders.Auto),
    *((protocol, cls) for protocol, classes in OTHERS.values() for cls in classes),
]
EXAMPLES = [
    *(cls() for slot, _, cls in CATALOGUE if slot != "network"),
    mlp(ENV),
    ppax.PPO(mlp(ENV)),
    ENV,
    *(make() for make in BUILTIN.values()),
]
PUBLIC = sorted(
    {
        *(cls for _, cls in PAIRS),
        *(type(example) for example in EXAMPLES),
        *(head for head in vars(heads).values() if dataclasses.is_dataclass(head)),
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


@pytest.mark.parametrize(("slot", "name", "cls"), CATALOGUE, ids=lambda x: getattr(x, "__name__", x))
def test_every_option_of_a_part_is_documented_and_typed(slot, name, cls):
    assert name == name.lower()
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        assert field.name in hints
        named = field.metadata.get("named")  # in a run file the name of the table, not an option
        if field.default is not dataclasses.MISSING and not named:
            assert field.metadata.get("doc"), f"{cls.__name__}.{field.name} has no documentation"
        if "anneal_to" in field.metadata:
            assert field.metadata["anneal_to"] in hints


def test_every_kind_of_part_has_a_protocol_and_a_slot():
    owners = [ppax.PPO, *(cls for _, _, cls in CATALOGUE)]
    kinds = {kind for cls in owners for kind in (*slots(cls).values(), *slot_chains(cls).values())}
    kinds |= set(slot_lists(config.Log).values())
    assert set(SLOTS) == set(config.PARTS) == kinds


@pytest.mark.parametrize("cls", [ppax.PPO, *(cls for _, _, cls in CATALOGUE)], ids=lambda cls: cls.__name__)
def test_the_default_of_a_slot_is_the_first_part_of_its_kind(cls):
    for field in dataclasses.fields(cls):
        if "slot" in field.metadata and field.default is not dataclasses.MISSING:
            choices = choices_of(cls)[field.name]
            assert field.default == next(iter(choices.values()))()
            assert set(choices) >= set(config.PARTS[field.metadata["slot"]])


def test_equal_parts_share_a_program():
    one, two = ppax.PPO(mlp(ENV)), ppax.PPO(mlp(ppax.make("CartPole-v1", 2)))
    assert jax.tree.structure(one) == jax.tree.structure(two)
    assert hash(jax.tree.structure(one)) == hash(jax.tree.structure(two))


def test_public_names_exist_and_are_listed_once():
    assert all(hasattr(ppax, name) for name in ppax.__all__)
    assert len(ppax.__all__) == len(set(ppax.__all__))


def test_names_in_readme_and_documents_are_public():
    root = Path(__file__).parents[2]
    pages = [root / "README.md", root / "CONTRIBUTING.md", *root.glob("docs/**/*.md"), *root.glob("examples/*.py")]
    named = {name for page in pages for name in re.findall(r"\bppax\.([A-Za-z_]+)", page.read_text())}
    modules = {path.stem for path in Path(ppax.__file__).parent.iterdir()}
    elsewhere = {name for row in unknown_names.TABLE for column in row[2:6] for name in column}  # which ppax answers
    group = {"parts"}  # of entry points, in a pyproject.toml
    assert named - set(ppax.__all__) - modules - elsewhere - group == set()


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
