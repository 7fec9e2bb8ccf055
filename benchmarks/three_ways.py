"""Settings and scores of ten environments by Python, by a run file and by the command line: they must be equal.

    python benchmarks/three_ways.py                # ten environments, some eight minutes on two cores
    python benchmarks/three_ways.py CartPole-v1    # these alone

Each environment trains three times with seed 0: `ppax.build(ENV, total_steps=N).fit()`, `ppax train FILE` with a file
of two lines, `ppax train ENV --total-steps N`. A line each: whether the recorded run files are equal, the preset, the
three scores.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
import warnings
from pathlib import Path

TASKS = {
    "CartPole-v1": 500_000,
    "gymnax/Acrobot-v1": 500_000,
    "MountainCar-v0": 500_000,
    "Pendulum-v1": 500_000,
    "CartPole-v1-masked": 200_000,
    "gymnax/Catch-bsuite": 200_000,
    "Pursuit-3": 200_000,
    "gymnax/Breakout-MinAtar": 200_000,
    "gymnasium/CartPole-v1": 100_000,
    "gymnasium/InvertedPendulum-v5": 100_000,
}


def by_python(env: str, steps: int, run_dir: Path) -> float:
    """Score of `ppax.build`."""
    import ppax

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a preset at another number of steps
        run = ppax.build(env, total_steps=steps, log={"console": False}).fit(run_dir)
    return run.evaluate().mean_return


def by_command(arguments: list[str], run_dir: Path) -> float:
    """Score of `ppax train` with these arguments."""
    command = [
        sys.executable,
        "-m",
        "ppax",
        "train",
        *arguments,
        "--run-dir",
        str(run_dir),
        "--json",
        "--no-log.console",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1])["mean_return"])


def main() -> None:
    """Train and print."""
    for env in sys.argv[1:] or TASKS:
        with tempfile.TemporaryDirectory() as folder:
            path, steps = Path(folder), TASKS[env]
            (path / "mine.toml").write_text(f'env = "{env}"\ntotal_steps = {steps}\n')
            scores = {
                "python": by_python(env, steps, path / "python"),
                "file": by_command([str(path / "mine.toml")], path / "file"),
                "command": by_command([env, "--total-steps", str(steps)], path / "command"),
            }
            recorded = [tomllib.loads((path / way / "run.toml").read_text()) for way in scores]
            equal = "equal" if recorded[0] == recorded[1] == recorded[2] else "DIFFERENT"
            each = "  ".join(f"{way} {score:.2f}" for way, score in scores.items())
            print(f"{env:32} {steps:>8,}  {equal} settings, preset {recorded[0]['preset']}: {each}", flush=True)


if __name__ == "__main__":
    main()
