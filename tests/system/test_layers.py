"""Dependency direction of the package: a room imports only rooms of earlier levels."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import ppax

ROOT = Path(ppax.__file__).parent
# A room is a folder, a file at the top, or one of the files named here. Rooms of one level never import each other.
LEVELS = [
    {"names"},
    {"parts"},
    {"types"},
    {"protocols", "storage"},
    {"imports"},  # reads the user's settings file
    {"options"},
    {"program.platforms"},
    {"arrays", "program.sharding", "program.clusters", "program.hoisting", "program.tracing"},
    {"program.layout"},
    {"distributions"},
    {"advantages", "losses", "critics", "minibatches", "gradients", "schedules", "optimizers", "envs"},
    {"networks", "learning"},
    {"extensions", "recompute"},  # above the heart's parts, below PPO
    {"ppo"},
    {"agents"},
    {"collection"},
    {"training"},
    {"host"},
    {"program"},
    {"evaluation"},
    {"loggers", "imitation"},  # their settings are parts of a configuration
    {"checks", "config"},
    {"films"},
    {"run.directory"},
    {"reports"},  # below run: a TrainedRun displays itself
    {"policy"},  # below run, too: a TrainedRun gives its policy; its model card has curves of reports
    {"run"},
    {"policy.listing"},  # reads run directories
    {"policy.loading"},
    {"tools"},
    {"scores"},
    {"sweeps"},  # statistics over seeds are those of scores
    {"cli"},
    {"__init__", "__main__"},
]
LEVEL = {room: number for number, rooms in enumerate(LEVELS) for room in rooms}
# Rooms that may import heavy or optional libraries.
ONLY = {
    "flax": {"networks"},
    "equinox": {"networks"},
    **{name: {"envs"} for name in ("gymnax", "brax", "craftax", "jaxmarl", "jumanji", "mujoco_playground", "navix")},
    **{name: {"envs"} for name in ("ale_py", "envpool", "pettingzoo", "mpe2")},
    **{name: {"loggers"} for name in ("tensorboardX", "wandb", "mlflow")},
    "PIL": {"films"},
    "scipy": {"reports"},
    "matplotlib": {"scores", "reports", "tools", "sweeps"},
    "pandas": {"tools"},
    "imageio_ffmpeg": {"films"},
    "rich": {"loggers"},
    "cloudpickle": {"envs"},
    "optuna": {"sweeps"},
    "sqlalchemy": {"sweeps"},
    "ray": {"program.clusters"},  # the others are handed the module
    **{name: {"policy"} for name in ("jax2onnx", "onnx", "onnxruntime", "huggingface_hub")},
}
# Imports of a later room, inside a function. A teacher is read by ppax.load, which builds agents; it is part of one.
LATE = {("imitation", "policy.loading")}


def room_of(module: str) -> str:
    """Room of a dotted module or name below `ppax`: "program.layout.Program" -> "program.layout"."""
    first, second = [*module.split("."), ""][:2]
    return f"{first}.{second}" if f"{first}.{second}" in LEVEL else first


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "ppax" or node.module.startswith("ppax."):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            else:
                yield node.module


def violations() -> Iterator[str]:
    for path in sorted(ROOT.rglob("*.py")):
        here = room_of(module_of(path))
        for name in imports(path):
            top, _, rest = name.partition(".")
            if top == "ppax" and rest:
                there = room_of(rest)
                if there != here and (here, there) not in LATE and LEVEL[there] >= LEVEL[here]:
                    yield f"{path.relative_to(ROOT)} imports {name}"
            if top in ONLY and here not in ONLY[top]:
                yield f"{path.relative_to(ROOT)} imports {name}"


def test_rooms_import_only_earlier_levels():
    assert list(violations()) == []


def test_every_room_has_a_level():
    rooms = {room_of(module_of(path)) for path in ROOT.rglob("*.py")}
    assert rooms <= set(LEVEL)


@pytest.mark.parametrize("folder", ["advantages", "critics", "losses", "minibatches", "distributions"])
def test_parts_of_one_folder_import_at_most_its_base(folder):
    helpers = {"base", "boxes", "tanh"}
    for path in (ROOT / folder).glob("*.py"):
        if path.stem not in helpers | {"__init__"}:
            siblings = [name.split(".")[2] for name in imports(path) if name.startswith(f"ppax.{folder}.")]
            assert set(siblings) <= helpers, path


def isinstance_of(path: Path, classes: set[str]) -> bool:
    """Whether a file asks for one of these classes by `isinstance`, alone or in a union or tuple."""
    calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    asked = (call.args[1] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "isinstance")
    nodes = {node for arg in asked for node in ast.walk(arg)}
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return bool(classes & (names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}))


@pytest.mark.parametrize(
    ("classes", "allowed"),
    [
        # the chooser, and the check of a user's argument
        ({"HostEnv", "VectorEnv", "HostTraining"}, {"program/backends.py", "agents/arguments.py"}),
        ({"Groups", "SelfPlay"}, {"agents/arguments.py", "config/description.py"}),
    ],
)
def test_kinds_of_environments_and_agents_are_asked_for_in_one_place(classes, allowed):
    asking = {str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py") if isinstance_of(path, classes)}
    assert {name for name in asking if not name.startswith("envs/")} <= allowed


def test_no_module_has_the_name_of_a_public_function():
    modules = {path.stem for path in ROOT.glob("*.py")} | {path.parent.name for path in ROOT.glob("*/__init__.py")}
    functions = {name for name in ppax.__all__ if not isinstance(getattr(ppax, name), type(ast))}
    assert modules & functions == set()


@pytest.mark.parametrize("folder", sorted({path.parent for path in ROOT.rglob("__init__.py")} - {ROOT}), ids=str)
def test_no_module_has_the_name_of_a_function_exported_beside_it(folder):
    """`ppax.config.build` would be the function, and `import ppax.config.build` the module."""
    modules = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    own = ".".join(("ppax", *folder.relative_to(ROOT).parts))
    exported = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse((folder / "__init__.py").read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {name for name in modules & set(exported) if exported[name] != f"{own}.{name}"} == set()
