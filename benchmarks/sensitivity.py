"""Which default matters: each one halved and doubled on five environments of the public suite, ten seeds each.

    python benchmarks/sensitivity.py               # hours on two cores; goes on where it was interrupted
    python benchmarks/sensitivity.py --at-once 6   # compiles six programs at the same time: for a machine with a GPU
    python benchmarks/sensitivity.py --quick       # two seeds of a few iterations, nothing written

All seeds of all settings that differ in numbers alone are one program. As in `ppax score`, the score of a seed is the
mean return of 128 episodes of its final policy. A cell of the picture is the IQM over the seeds, 0 where it is that of
the untrained policy and 1 where it is that of the defaults. Discounts are changed by their horizon: 1 / (1 - gamma) is
halved and doubled, and 1 / (1 - lambda) of GAE. Where the rollout changes, the number of minibatches follows, as by
default: each keeps its number of rows. `off` leaves out a normalisation, or the decay of the learning rate.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import report
from ppax import config
from ppax.agents.precision import decide_dtype, machine_dtype
from ppax.devices.platforms import rules
from ppax.envs import for_evaluation
from ppax.reports.statistics import statistics_of
from ppax.run.restore import planned_iterations
from ppax.scores import scoring, suite
from ppax.training.evaluation import evaluate, evaluation_key
from ppax.training.loop import make_key
from ppax.training.sweeps import stacked, start_sweep, sweep
from report import Report

ROWS = ("Acrobot", "MountainCar", "MountainCarContinuous", "Pendulum", "CartPole-masked")  # of the public suite
SEEDS = 10
LOW = 0.75  # score below which the lowest seed of a cell is printed
NUMBERS = {  # name in the picture, and option
    "learning rate": "agent.learning_rate",
    "horizon of gamma": "agent.gamma",
    "horizon of lambda": "agent.advantage.gae_lambda",
    "clip range": "agent.loss.clip_eps",
    "entropy bonus": "agent.ent_coef",
    "value loss": "agent.vf_coef",
    "gradient norm": "agent.max_grad_norm",
    "epochs": "agent.num_epochs",
    "minibatches": "agent.minibatch.num_minibatches",
    "environments": "num_envs",
    "rollout length": "num_steps",
    "hidden width": "agent.network.hidden",
}
HORIZONS = ("agent.gamma", "agent.advantage.gae_lambda")
SWITCHES = {  # name in the picture, and options that leave it out
    "observations normalised": {"agent.normalize_obs": False},
    "rewards normalised": {"agent.normalize_reward": False},
    "advantages normalised": {"agent.normalize_advantage": "off"},
    "learning rate decays": {"agent.schedule.part": "constant"},
}


def variants(row: suite.SuiteRow) -> dict[str, dict[str, Any]]:
    """Options of each changed setting by its name, as `learning rate x2`."""
    usual = dict(config.flatten(config.resolve(row.run_config())))
    found: dict[str, dict[str, Any]] = {}
    for name, path in NUMBERS.items():
        for factor in (0.5, 2):
            value = changed(path, usual[path], factor)
            if value != usual[path]:
                found[f"{name} x{factor:g}"] = {path: value}
    return found | {f"{name} off": options for name, options in SWITCHES.items()}


def changed(path: str, value: Any, factor: float) -> Any:
    """A default multiplied by `factor`: a discount's horizon; whole numbers stay whole, and at least 1."""
    if path in HORIZONS:
        return round(1 - (1 - value) / factor, 6)
    if isinstance(value, list | tuple):
        return [changed(path, one, factor) for one in value]
    return max(1, round(value * factor)) if isinstance(value, int) else value * factor


def main() -> None:
    """Measure what is missing, save after each program, draw the picture."""
    parser = argparse.ArgumentParser(description="Each default halved and doubled on five environments.")
    parser.add_argument("--quick", action="store_true", help="two seeds of a few iterations; nothing written")
    parser.add_argument("--rows", nargs="*", default=ROWS, help="rows of the public suite, without `public-`")
    parser.add_argument("--at-once", type=int, default=1, help="number of programs compiled at the same time")
    parser.add_argument("--output", type=Path, default=report.RESULTS, help="folder of the results")
    options = parser.parse_args()
    task = "Scores with one default changed: 1 is the score of the defaults, 0 that of the untrained policy"
    name = None if options.quick else "sensitivity"
    sheet = Report(name, task, {"rows": list(ROWS), "seeds": SEEDS}, options.output)
    cells: dict[str, dict[str, Any]] = {}
    if sheet.path is not None and sheet.path.exists():
        cells = json.loads(sheet.path.read_text())["cells"]
    seeds = scoring.SCORE_SEEDS[: 2 if options.quick else SEEDS]
    for row in suite.read_suite(suite.PUBLIC):
        name = row.name.removeprefix("public-")
        if name not in options.rows:
            continue
        own = cells.setdefault(name, {})
        settings = {"defaults": {}, **variants(row)}
        steps = 20_000 if options.quick else row.steps
        missing = {
            setting: built_with(dataclasses.replace(row, steps=steps), settings[setting])
            for setting in settings
            if setting not in own
        }
        with ThreadPoolExecutor(options.at_once) as pool:
            programs = [pool.submit(scores, group, row.sampled, seeds) for group in groups(missing)]
            for program in as_completed(programs):
                for setting, (found, random) in program.result().items():
                    own[setting] = {"options": settings[setting], "scores": found, "random": random}
                    print(f"{name}, {setting}: IQM {statistics_of(found).iqm:.4g}", flush=True)
                sheet.save(cells=cells)
    if sheet.path is not None and all(name in cells for name in ROWS):
        draw(cells, sheet.content["hardware"], sheet.path.with_suffix(".png"))


def built_with(row: suite.SuiteRow, settings: dict[str, Any]) -> config.Built:
    """Agent, environment and run of a row with one default changed."""
    nested = config.overridden(row.options, config.unflatten(settings))
    built = config.build(dataclasses.replace(row, options=nested).run_config())
    return built._replace(agent=decide_dtype(built.agent, machine_dtype()))


def groups(settings: dict[str, config.Built]) -> list[dict[str, config.Built]]:
    """Settings that differ in numbers alone, so that one program trains them, by their names."""
    found: dict[Any, dict[str, config.Built]] = {}
    for name, built in settings.items():
        shapes = [np.shape(x) for x in jax.tree.leaves((built.agent, built.env))]
        program = (jax.tree.structure((built.agent, built.env)), built.run.num_steps, tuple(shapes))
        found.setdefault(program, {})[name] = built
    return list(found.values())


def scores(group: dict[str, config.Built], sampled: bool, seeds: Sequence[int]) -> dict[str, tuple[list[float], float]]:
    """Scores of the seeds with each setting of a group, and the score of the untrained policy."""
    members = [(built, seed) for built in group.values() for seed in seeds]
    first, _ = members[0]
    agents = stacked([built.agent for built, _ in members])
    keys = jnp.stack([make_key(seed) for _, seed in members])
    envs = scoring.for_members(first.env, len(members))
    states = start_sweep(agents, envs, first.run.num_steps, keys)
    eval_env, total = for_evaluation(first.env, first.run.eval.env_params), planned_iterations(first.env, first.run)

    def played(learners: Any, mode: bool) -> list[float]:
        found = []
        for i, (built, seed) in enumerate(members):
            learner = jax.device_put(jax.tree.map(lambda x, i=i: x[i], learners), jax.local_devices()[0])
            key, longest = evaluation_key(seed), built.run.eval.max_steps
            found.append(evaluate(built.agent, eval_env, learner, key, scoring.EPISODES, mode, longest).mean_return)
        return found

    random = np.reshape(played(states.learner, False), (len(group), len(seeds)))
    program = jax.jit(sweep, donate_argnames="states", compiler_options=rules().compiler_options)
    states, _ = program(agents, envs, states, np.int32(total), np.int32(total))
    if (np.asarray(states.iteration) < total).any():
        raise SystemExit(f"{', '.join(group)}: an iteration of a seed is not finite")
    trained = np.reshape(played(states.learner, not sampled), (len(group), len(seeds)))
    return {name: (trained[i].tolist(), float(random[i].mean())) for i, name in enumerate(group)}


class Cell(NamedTuple):
    """Scores of a setting, 0 for the untrained policy and 1 for the IQM of the defaults."""

    iqm: float
    lowest: float  # seed
    differs: bool  # the 95 % interval of its IQM does not overlap that of the defaults


def relative(own: dict[str, Any], setting: str) -> Cell:
    """The scores of a setting beside those of the defaults."""
    usual, this = (statistics_of(own[name]["scores"]) for name in ("defaults", setting))
    random = own["defaults"]["random"]
    iqm, lowest = ((score - random) / (usual.iqm - random) for score in (this.iqm, this.minimum))
    return Cell(iqm, lowest, this.high < usual.low or this.low > usual.high)


def draw(cells: dict[str, dict[str, Any]], hardware: dict[str, Any], path: Path) -> None:
    """The heat map: a row for each default, and two columns (halved, doubled) for each environment."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = [name for name in ROWS if "defaults" in cells.get(name, {})]
    labels = [*NUMBERS, *SWITCHES]
    grid = np.full((len(labels), 2 * len(names)), np.nan)
    filled: dict[tuple[int, int], Cell] = {}
    for column, name in enumerate(names):
        for line, label in enumerate(labels):
            for side, ending in enumerate(("x0.5", "x2") if label in NUMBERS else ("off",)):
                if f"{label} {ending}" in cells[name]:
                    place = line, 2 * column + side
                    filled[place] = relative(cells[name], f"{label} {ending}")
                    grid[place] = filled[place].iqm
    figure, axis = plt.subplots(figsize=(2.1 * len(names) + 3, 0.36 * len(labels) + 1.6), layout="constrained")
    image = axis.imshow(np.clip(grid, 0, 1.2), cmap="RdYlGn", vmin=0.0, vmax=1.2, aspect="auto")
    for (line, column), cell in filled.items():
        weight = "bold" if cell.differs else "normal"
        axis.text(column, line, f"{cell.iqm:.2f}", ha="center", va="center", fontsize=8, weight=weight)
        if cell.lowest < min(LOW, cell.iqm - 0.01):
            axis.text(column + 0.46, line, f"min {cell.lowest:.2f}", ha="right", va="center", fontsize=6)
    axis.set_xticks(range(2 * len(names)), ["halved\n(off)", "doubled"] * len(names), fontsize=8)
    axis.set_yticks(range(len(labels)), labels, fontsize=9)
    for column in range(1, len(names)):
        axis.axvline(2 * column - 0.5, color="white", lw=4)
    for column, name in enumerate(names):
        axis.text(2 * column + 0.5, -0.8, name, ha="center", fontsize=9, weight="bold")
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    figure.colorbar(image, label="score: 0 untrained, 1 defaults", shrink=0.7)
    bold = "bold: the 95 % interval does not overlap that of the defaults"
    text = f"IQM of {SEEDS} seeds; {bold}; min: lowest seed, where it is below {LOW:g}"
    figure.supxlabel(f"{text}; {hardware.get('devices', hardware['cpu'])}", fontsize=8, color="#555555")
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
