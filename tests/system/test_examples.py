"""Every example runs and reaches a result above that of an untrained policy."""

import ast
import importlib
import importlib.util
from pathlib import Path

import jax
import numpy as np
import pytest

SERVED = {"serve"}  # runs until it is stopped: test_serve.py
EXAMPLES = sorted(path for path in (Path(__file__).parents[2] / "examples").glob("*.py") if path.stem not in SERVED)
# long compilation, or a long import
LONG = {"hunters", "match", "mpe", "navigators", "pursuit", "serve_mlflow", "simulator_tensors", "tic_tac_toe"}
OPTIONAL = {
    "hunters": "mpe2",
    "mpe": "jaxmarl",
    "navigators": "PIL",
    "pursuit": "PIL",
    "serve_mlflow": "mlflow",
    "simulator_tensors": "mujoco_warp",
    "tic_tac_toe": "pettingzoo",
}

SHORTER = {"motion_prior": 120, "own_update": 20, "rollers": 25, "sweep": 24}  # iterations

# Bounds of the results of `main`, below those observed; in comments the result of an untrained policy
RESULTS = {
    "adaptive_ranges": lambda score: score >= 60.0,  # 22
    "fine_tuning": lambda scores: scores["warm start"] >= 1.5 * scores["random weights"],  # 1.6 to 6.7 with five seeds
    "by_hand": lambda score: score >= 100.0,  # 9 to 25
    "curriculum": lambda score: score >= 60.0,  # 22
    "drive_a_policy": lambda length: length >= 150.0,  # 9
    "hunters": lambda scores: scores["agent after"] >= -40.0 and scores["adversary after"] >= 8.0,  # -88 and 6.7
    "imitation": lambda scores: (
        scores["teacher"] >= 100.0 and min(scores.values()) >= 0.8 * scores["teacher"]
    ),  # 22 without training
    "masked_actions": lambda score: score >= 2.0,  # 0.4; at most 3
    "match": lambda wins: min(wins.values()) >= 0.6,  # 0.48 between equals, with 4 % drawn
    "memory": lambda scores: scores["GRU"] >= 0.9 and abs(scores["NoMemory"]) <= 0.3,  # 0: guessing
    # reward of the task, and distance from the recorded motion: 2 without the prior, 1 straight ahead
    "motion_prior": lambda found: found["with"][0] >= 0.9 and found["with"][1] <= 0.6,
    "mpe": lambda scores: scores["central critic"] > -24.0,  # -35 and below
    "navigators": lambda share: share >= 0.5,
    "own_environment_gymnasium": lambda score: score >= 9.9,  # below 2; staying left pays 3
    "own_environment_jax": lambda score: score >= 0.85,  # drifting: -0.5; at most 0.91
    "own_network_actor_critic": lambda score: score >= 60.0,  # 22
    # without training 0 with directions; a fruit that is pointed at is as often ripe as not
    "own_network_entities": lambda scores: scores["directions"] >= 2.0 and scores["pointing"] >= 5.0,
    "own_network_equinox": lambda score: score >= 60.0,  # 22
    "own_network_linen": lambda score: score >= 60.0,
    "own_network_nnx": lambda score: score >= 60.0,
    "own_parts": lambda length: length <= 5.5,  # untrained 10 and more; the shortest way takes 5
    "own_update": lambda scores: min(scores.values()) >= 100.0,  # 22 without training
    "privileged_teacher": lambda scores: min(scores.values()) >= 20.0,  # of 24 doors; untrained below 1
    "pursuit": lambda shares: all(0.0 < share <= 1.0 for share in shares),  # prey and hunters learn against each other
    "rollers": lambda returns: returns[0] < 2.0 and returns[1] >= 4.0,  # before and after training
    "serve_mlflow": lambda length: length >= 150.0,  # 9
    "simulator_tensors": lambda length: length >= 100.0,  # 16; at most 200
    # return and mean change of the action; untrained: -1200
    "smooth_actions": lambda scores: scores["with"][0] >= -400.0 and scores["with"][1] <= 0.7 * scores["without"][1],
    "sweep": lambda table: np.all(np.mean(table, axis=1)[2:] >= 100.0),  # 22; for the two larger rates
    "tic_tac_toe": lambda results: results["first"] >= 0.85,  # random moves: 0.3
    "use_a_bundle": lambda length: length >= 150.0,  # 9
}


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "examples").glob("*.py")), ids=lambda x: x.stem)
def test_example_imports_public_names_only(path):
    """A module is public if `__all__` of the package above has its name, and so up to ppax."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert not [one.name for one in node.names if one.name.startswith("ppax.")]
        elif isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "ppax":
            parts = node.module.split(".")
            for depth in range(1, len(parts)):
                above = importlib.import_module(".".join(parts[:depth]))
                assert parts[depth] in above.__all__, f"{node.module} is not public"
            module = importlib.import_module(node.module)
            public = getattr(module, "__all__", vars(module))
            assert {one.name for one in node.names} <= set(public), f"{node.module} has other public names"


def example(path):
    marks = [pytest.mark.nightly] if path.stem in LONG else []
    if path.stem == "serve_mlflow":
        marks.append(pytest.mark.filterwarnings("ignore"))  # MLflow warns of its own code while it is imported
    return pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.usefixtures("vmapped_keys")
@pytest.mark.parametrize("path", map(example, EXAMPLES))
def test_example_reaches_its_result(path, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # for films
    if path.stem in OPTIONAL:
        pytest.importorskip(OPTIONAL[path.stem])
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.ITERATIONS = SHORTER.get(path.stem, module.ITERATIONS)
    with jax.numpy_rank_promotion("allow"):
        result = module.main()
    assert capsys.readouterr().out.count("\n") >= 1
    assert RESULTS[path.stem](result), result
