"""Write the samples of this version: files that ppax writes, for `tests/system/test_samples.py` of all later ones.

    python tests/samples/make.py        # tests/samples/VERSION/, which must not exist

Samples are added and never changed; only those of a version that is not released yet may be removed and made again.

A run of Pendulum with a GRU, its policy exported, what that answers; a sweep of CartPole; a score.
"""

import json
import os
from pathlib import Path

os.environ["JAX_DEFAULT_MATMUL_PRECISION"] = "float32"

import numpy as np

import ppax
from ppax.scores import results

FOLDER = Path(__file__).parent / ppax.__version__
RUN = {
    "preset": "none",
    "num_envs": 2,
    "num_steps": 8,
    "total_steps": 64,
    "agent": {"learning_rate": 0.1, "num_epochs": 1, "network": {"hidden": [4], "memory": {"part": "gru", "width": 4}}},
    "log": {"every": 4, "keep": 1, "console": False, "checkpoint_seconds": 0.0},
    "eval": {"episodes": 2},
}
OBS = [[1.0, 0.0, 0.5], [0.0, -1.0, 2.0], [-0.6, 0.8, -3.0]]


def answers(policy):
    """Return actions and V of OBS, as three steps of an episode, so that those depend on the memory."""
    policy.reset()
    return [
        {name: np.asarray(x).tolist() for name, x in policy.act(obs, return_value=True)._asdict().items()}
        for obs in OBS
    ]


def main():
    FOLDER.mkdir()
    run = ppax.build("Pendulum-v1", **RUN).fit(FOLDER / "run")
    policy = ppax.load(FOLDER / "run")
    policy.export(FOLDER / "policy.zip", ("numpy",), return_value=True)
    known = {"run": answers(policy), "env_steps": run.env_steps, "total_steps": run.total_steps}
    swept = RUN | {"agent": {"num_epochs": 1, "network": {"hidden": [4]}}}
    sweep = ppax.sweep_runs(
        {"env": "CartPole-v1"} | swept, {"agent.learning_rate": [1e-3, 1e-4]}, seeds=[0], run_dir=FOLDER / "sweep"
    )
    known["sweep"] = [[member.values, member.score] for member in sweep.members]
    score = ppax.score("CartPole-v1", seeds=[0], episodes=2, options={"total_steps": 32} | swept)
    results.save_score(score, FOLDER)
    known["score"] = {"file": results.result_path(score.row, FOLDER).name, "iqm": score.statistics.iqm}
    (FOLDER / "known.json").write_text(json.dumps(known, indent=1) + "\n")
    for path in FOLDER.rglob("*"):
        if path.suffix == ".png" or path.name in (".lock", "metrics.csv"):
            path.unlink()


if __name__ == "__main__":
    main()
