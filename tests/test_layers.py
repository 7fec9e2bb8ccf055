"""The dependency direction of the package: each module imports only what stands before it."""

import ast
from pathlib import Path

import ppax

ROOT = Path(ppax.__file__).parent
FOLDERS = {"advantages", "critics", "losses", "minibatches", "distributions", "networks"}
PARTS = FOLDERS | {"schedules", "optimizers", "normalize", "accumulate", "program"}
PARTS |= {"experience", "kl_control", "update_metrics"}
# What each layer may import from ppax, beside itself. Folders count as one.
BASE = {"types", "parts", "sequences", "counter", "metrics", "parallel", "terms", "values"}
BASE |= {"masks", "boxes", "squash"}
ALLOWED = {
    "parts": set(),
    "types": {"parts"},
    "counter": set(),
    "metrics": {"parts", "types"},
    "parallel": set(),
    "program": {"types", "parallel"},
    "sequences": {"types"},
    "terms": {"types", "sequences", "metrics"},
    "values": {"types"},
    "masks": {"types"},
    "boxes": set(),
    "squash": set(),
    **{name: set(BASE) for name in PARTS},
    "networks": BASE | {"distributions"},  # a head makes a distribution
    "envs": BASE | {"options"},  # the numbers of an environment are settings too
    "policy": BASE | {"normalize"},
    "ppo": BASE | PARTS | {"policy"},
    "independent": BASE | {"policy", "ppo", "program", "update_metrics"},
    "groups": BASE | {"policy", "ppo", "independent", "program", "update_metrics"},
    "pool": {"types"},
    "self_play": BASE | {"policy", "ppo", "groups", "pool", "program", "update_metrics"},
    "multi_agent": BASE | {"self_play", "pool", "ppo", "independent", "groups", "program"},
    "collect": BASE | {"ppo", "multi_agent", "envs"},
    "arguments": {"types", "ppo", "independent", "groups", "self_play", "multi_agent", "envs", "networks"},
    "train": BASE | {"multi_agent", "envs", "collect", "arguments", "networks", "options", "self_play"},
    "stop": {"types"},
    "conditions": {"types", "stop"},
    "host": BASE
    | {
        "ppo",
        "independent",
        "multi_agent",
        "envs",
        "collect",
        "train",
        "distributions",
        "program",
    },  # the loop of Python
    "ending": BASE
    | {"multi_agent", "envs", "compiled", "stop", "conditions", "config", "checkpoint", "loggers", "safe_files"},
    "footprint": {"types"},
    "restore": BASE
    | {"footprint", "record", "multi_agent", "envs", "train", "program", "config", "checkpoint", "run_dir", "ending"},
    "compiled": BASE | {"multi_agent", "envs", "train", "host", "program"},
    "sweep": BASE | {"ppo", "independent", "groups", "self_play", "multi_agent", "envs", "train", "arguments"},
    "record": {"types", "multi_agent", "envs", "options", "config"},
    "faults": {"types", "multi_agent", "envs", "collect", "train"},
    "bench": BASE | {"ppo", "envs", "collect", "train", "compiled", "program", "host"},
    "selftest": BASE | PARTS | {"ppo", "envs", "collect", "train", "host"},
    "evaluate": BASE | {"multi_agent", "envs", "collect", "host"},
    "play": BASE | {"multi_agent", "envs", "collect", "evaluate", "host"},
    "video": {"types", "safe_files"},
    "safe_files": set(),
    "options": {"types"},
    "config_groups": {"types", "options", "catalogue", "ppo"},
    "settings": {"types", "envs", "config_groups", "options", "pool"},
    "catalogue": PARTS,
    "config": BASE | PARTS | {"ppo", "independent", "groups", "multi_agent", "envs", "options", "catalogue"},
    "checkpoint": BASE | {"safe_files", "manifest"},
    "manifest": {"safe_files"},
    "loggers": {"safe_files", "backoff"},
    "backoff": set(),
    "provenance": {"parallel"},
    "origin": {"types", "multi_agent", "envs", "train", "config", "options", "checkpoint", "run_dir"},
    "saving": {"types", "backoff", "checkpoint", "ending", "origin", "run_dir"},
    "signals": set(),
    "run_dir": {"types", "config", "options", "safe_files"},
    "cache": set(),
}
ALLOWED["config"] |= {"config_groups", "self_play", "pool", "settings"}
TOP = {
    "fit",
    "trained",
    "tuned",
    "__main__",
    "cli",
    "cli_options",
    "cli_bench",
    "cli_check",
    "cli_common",
    "cli_envs",
    "cli_play",
    "cli_selftest",
    "__init__",
}  # may import anything; nothing below may import them
# Who may import heavy or optional libraries at all, and whether at import time.
ONLY = {
    "flax": {"networks"},
    "equinox": {"networks"},
    **{name: {"envs"} for name in ("gymnax", "brax", "craftax", "jaxmarl", "jumanji", "mujoco_playground", "navix")},
    **{name: {"envs"} for name in ("ale_py", "envpool", "pettingzoo", "mpe2")},
    "tensorboardX": {"loggers"},
    "PIL": {"video"},
    "imageio_ffmpeg": {"video"},
    "rich": {"loggers"},
    "cloudpickle": {"envs"},
}


def layer(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module
            if node.module == "ppax":
                yield from (f"ppax.{alias.name}" for alias in node.names)


def violations():
    for path in sorted(ROOT.rglob("*.py")):
        here = layer(path)
        for name in imports(path):
            top, _, rest = name.partition(".")
            if top == "ppax" and rest and here not in TOP:
                there = rest.split(".")[0]
                if there != here and there not in ALLOWED[here]:
                    yield f"{path.relative_to(ROOT)} imports {name}"
            if top in ONLY and here not in ONLY[top]:
                yield f"{path.relative_to(ROOT)} imports {name}"


def test_imports_go_one_way():
    assert list(violations()) == []


def test_parts_of_one_folder_do_not_import_each_other():
    for folder in ("advantages", "critics", "losses", "minibatches", "distributions"):
        for path in (ROOT / folder).glob("*.py"):
            if path.name != "__init__.py":
                assert not [name for name in imports(path) if name.startswith(f"ppax.{folder}")], path


def test_files_can_be_read_in_one_sitting():
    sizes = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in ROOT.rglob("*.py")}
    assert {name: lines for name, lines in sizes.items() if lines > 350} == {}
