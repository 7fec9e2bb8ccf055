"""Rows of the public suite with other settings than the defaults, on tuning seeds: why a score is what it is.

    python benchmarks/variants.py Swimmer                       # all variants of the row on seeds 0 to 9
    python benchmarks/variants.py Swimmer --only "defaults" "staggered first episodes" --seeds 4
    python benchmarks/variants.py Swimmer --steps 150_000       # after fewer steps

Scores are those of the row: mean return of 128 episodes of the final policy, with sampled actions where the row's are.
Each seed is written as soon as it is done, to benchmarks/results/public/variants.json, of which docs/evidence.md is
made; a call after an interruption goes on with the seed that is missing.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import ppax
from ppax.scores import scoring, suite
from report import commit

FILE = Path(__file__).parent / "results" / "public" / "variants.json"
# Stable-Baselines3's defaults where they differ from those of ppax in environments on the host
STABLE_BASELINES3 = {
    "normalize_obs": False,
    "normalize_reward": False,
    "schedule": {"part": "constant"},
    "network": {"log_std_init": 0.0},
}
ONE = {"num_envs": 1, "num_steps": 2048}
# Of the code of Craftax's authors, in its sweeps over a million steps, but for the layers: three of 512 units
CRAFTAX: dict[str, Any] = {
    "num_envs": 256,
    "num_steps": 16,
    "agent": {
        "learning_rate": 2e-4,
        "normalize_obs": False,
        "normalize_reward": False,
        "advantage": {"gae_lambda": 0.8},
        "minibatch": {"num_minibatches": 8},
    },
}
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "Swimmer": {
        "defaults": {},
        "settings of Stable-Baselines3": {**ONE, "agent": STABLE_BASELINES3},
        "the same with 8 environments of 256 steps": {"agent": STABLE_BASELINES3},
        "1 environment of 2,048 steps": ONE,
        "staggered first episodes": {"stagger": True},
    },
    "HalfCheetah": {
        "defaults": {},
        "staggered first episodes": {"stagger": True},
    },
    "Ant": {
        "defaults": {},
        "contact forces not observed": {"env_params": {"include_cfrc_ext_in_observation": False}},
        "observations not normalised": {"agent": {"normalize_obs": False}},
    },
    "Craftax": {
        "defaults": {},
        "observations not normalised": {"agent": {"normalize_obs": False}},
        "settings of its authors, layers of 64 units": CRAFTAX,
        "the same, three layers of 512 units": {
            **CRAFTAX,
            "agent": {**CRAFTAX["agent"], "network": {"hidden": [512] * 3}},
        },
    },
    "DoorKey": {
        "defaults": {},
        "settings for larger images": {
            "agent": {
                "num_epochs": 4,
                "learning_rate": 2.5e-4,
                "loss": {"clip_eps": 0.1},
                "minibatch": {"num_minibatches": 4},
            }
        },
    },
}


def main() -> None:
    """Measure the seeds that are missing."""
    parser = argparse.ArgumentParser(description="Rows of the public suite with other settings, on tuning seeds.")
    parser.add_argument("row", choices=sorted(VARIANTS), help="name without `public-`")
    parser.add_argument("--only", nargs="*", help="names of variants; default: all")
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds, from 0")
    parser.add_argument("--steps", type=int, help="default: those of the row")
    options = parser.parse_args()
    variants = VARIANTS[options.row]
    for name in options.only or ():
        if name not in variants:
            parser.error(f"{name!r}: must be {', '.join(map(repr, variants))}")
    row = next(row for row in suite.read_suite(suite.PUBLIC) if row.name == f"public-{options.row}")
    steps = options.steps or row.steps
    for seed in range(options.seeds):  # a seed of all variants, then the next: seeds can be compared early
        for name in options.only or variants:
            entry = {"row": options.row, "variant": name, "steps": steps, "seed": seed}
            if not any(entry.items() <= known.items() for known in read()):
                measure(row, entry, variants[name])


def read() -> list[dict[str, Any]]:
    """Results of all seeds so far."""
    return json.loads(FILE.read_text())["seeds"] if FILE.is_file() else []


def measure(row: suite.SuiteRow, entry: dict[str, Any], settings: dict[str, Any]) -> None:
    """Train and score one seed, and add it to the file."""
    varied = dataclasses.replace(row, steps=entry["steps"], options={**row.options, **settings})
    (member,) = scoring.measure(varied, [entry["seed"]]).members
    result = {
        **entry,
        "options": settings,
        "score": round(member.score, 4),
        "seconds": round(member.seconds),
        "about": {
            "time": time.strftime("%Y-%m-%d %H:%M:%S +0000", time.gmtime()),
            "commit": commit(Path(ppax.__file__).parent),
            "processor": scoring.processor(),
        },
    }
    print(f"{entry['row']}, {entry['variant']}, seed {entry['seed']}: {result['score']:g}", flush=True)
    lines = ",\n  ".join(json.dumps(one) for one in sorted([*read(), result], key=place))
    partial = FILE.with_suffix(".part")
    partial.write_text(f'{{\n "seeds": [\n  {lines}\n ]\n}}\n')
    partial.replace(FILE)


def place(result: dict[str, Any]) -> tuple[Any, ...]:
    """Order of results in the file: rows, steps and variants as above, then seeds."""
    names = list(VARIANTS)
    variants = list(VARIANTS[result["row"]])
    return names.index(result["row"]), result["steps"], variants.index(result["variant"]), result["seed"]


if __name__ == "__main__":
    main()
