"""Dependency direction of the package: a room imports only rooms of earlier levels."""

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

import ppax

ROOT = Path(ppax.__file__).parent
# A room is a folder at the top. It imports only rooms of earlier levels, inside functions too.
LEVELS = [
    {"core"},
    {"devices", "distributions", "storage"},
    {"arrays", "loggers"},
    {"envs", "ppo"},
    {"networks"},
    {"agents", "extensions"},
    {"training"},
    {"checks", "config"},
    {"policy"},
    {"run"},
    {"reports"},
    {"scores"},
    {"sweeps"},
    {"cli"},
    {"__init__", "__main__"},
]
LEVEL = {room: number for number, rooms in enumerate(LEVELS) for room in rooms}
# Rooms that may import heavy or optional libraries.
ONLY = {
    "flax": {"networks"},
    "equinox": {"networks"},
    **{name: {"envs"} for name in ("gymnax", "brax", "craftax", "jaxmarl", "jumanji", "mujoco_playground", "navix")},
    **{name: {"envs"} for name in ("pgx", "popgym_arcade", "xminigrid", "dm_control", "minigrid")},
    **{name: {"envs"} for name in ("ale_py", "envpool", "pettingzoo", "mpe2")},
    **{name: {"loggers"} for name in ("tensorboardX", "wandb")},
    "mlflow": {"loggers", "policy"},
    "PIL": {"run"},
    "scipy": {"reports"},
    "matplotlib": {"scores", "reports", "sweeps"},
    "pandas": {"reports"},
    "imageio_ffmpeg": {"run"},
    "rich": {"loggers"},
    "cloudpickle": {"envs"},
    "optuna": {"sweeps"},
    "sqlalchemy": {"sweeps"},
    "ray": {"devices"},  # the others are handed the module
    **{name: {"policy"} for name in ("jax2onnx", "onnx", "onnxruntime")},
    "huggingface_hub": {"policy", "reports"},
}


def room_of(module: str) -> str:
    """Room of a dotted module or name below `ppax`; a name of `ppax` itself belongs to `__init__`."""
    first = module.split(".")[0]
    return first if first in LEVEL else "__init__"


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
            if top == "ppax":
                there = room_of(rest)
                if there != here and LEVEL[there] >= LEVEL[here]:
                    yield f"{path.relative_to(ROOT)} imports {name}"
            if top in ONLY and here not in ONLY[top]:
                yield f"{path.relative_to(ROOT)} imports {name}"


def test_rooms_import_only_earlier_levels():
    assert list(violations()) == []


def test_the_rooms_are_the_folders_of_the_package():
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"}
    files = {path.stem for path in ROOT.glob("*.py")}
    assert folders | files == set(LEVEL)


def modules() -> dict[str, Path]:
    named = {".".join(("ppax", *path.relative_to(ROOT).with_suffix("").parts)): path for path in ROOT.rglob("*.py")}
    return {name.removesuffix(".__init__"): path for name, path in named.items()}


def modules_of(node: ast.stmt, known: Collection[str]) -> set[str]:
    """Modules of the package that an import statement names."""
    names = {f"{node.module}.{alias.name}" for alias in node.names} if isinstance(node, ast.ImportFrom) else set()
    return {name if name in known else name.rpartition(".")[0] for name in names} & set(known)


def test_an_import_inside_a_function_hides_no_circle():
    """Slow and optional libraries are imported late, but no module that imports this one."""
    known = modules()
    trees = {name: ast.parse(path.read_text()) for name, path in known.items()}
    direct = {name: {one for node in tree.body for one in modules_of(node, known)} for name, tree in trees.items()}

    def reach(name: str, seen: set[str]) -> set[str]:
        for one in direct[name] - seen:
            seen.add(one)
            reach(one, seen)
        return seen

    for name, tree in trees.items():
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        late = {one for function in functions for node in ast.walk(function) for one in modules_of(node, known)}
        assert [one for one in late if name in reach(one, set())] == [], name


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
        ({"HostEnv", "VectorEnv", "HostTraining"}, {"training/backends.py", "training/arguments.py"}),
        ({"Groups", "SelfPlay"}, {"training/arguments.py", "config/description.py"}),
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
