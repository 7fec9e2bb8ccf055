"""Write the generated pages and drawings.

options.md from the fields of parts; settings.md; the rules of the doctor in not_learning.md; the tables in evidence.md
and README.md from benchmarks/results/; the drawings images/*.svg by pictures.py; the scores that `ppax presets` shows.

python docs/generate.py            # write the pages and drawings, copy the benchmarks' pictures
python docs/generate.py --check    # exit code 1 where a page on disk differs
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import operator
import re
import shutil
import statistics
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pictures

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "benchmarks" / "results"
COMMANDS = {
    "speed": "python benchmarks/speed.py",
    "overhead": "python benchmarks/speed.py --overhead",
    "seeds": "python benchmarks/speed.py --seeds 16 64",
    "sweep": "python benchmarks/speed.py --sweep --seeds 64 --iterations 976",
    "memory": "python benchmarks/memory.py",
    "memory_lengths": "python benchmarks/memory.py --lengths",
    "host": "python benchmarks/host.py",
    "images": "python benchmarks/images.py",
    "startup": "python benchmarks/startup.py",
    "predecessors": "python benchmarks/predecessors.py",
    "multi_agent": "python benchmarks/multi_agent.py",
    "fine_tuning": "python benchmarks/fine_tuning.py",
    "teachers": "python benchmarks/teachers.py",
    "stagger": "python benchmarks/stagger.py",
    "motion_prior": "python benchmarks/motion_prior.py",
    "smooth_actions": "python benchmarks/smooth_actions.py",
    "smooth_actions_gymnasium_Hopper-v5": (
        "python benchmarks/smooth_actions.py --task gymnasium/Hopper-v5 --iterations 150 --seeds 3"
    ),
    "obs_statistics": "python benchmarks/obs_statistics.py",
    "changed_spaces": "python benchmarks/changed_spaces.py",
    "simba": "python benchmarks/simba.py",
    "latency": "python benchmarks/latency.py",
    "accelerator": "python benchmarks/accelerator.py",
    "population": "python benchmarks/population.py",
    "precision": "python benchmarks/precision.py",
    "suites": "python benchmarks/suites.py",
}
TITLES = {
    "speed": "Compiled environments, feedforward",
    "overhead": "Cost of a recorded run",
    "seeds": "Many seeds in one program",
    "sweep": "Sweeps with their run directories",
    "memory": "Memory",
    "host": "Gymnasium environments",
    "images": "Images",
    "startup": "From process start to a solved CartPole",
    "predecessors": "On the predecessors' environments",
    "multi_agent": "Many agents",
    "fine_tuning": "Fine-tuning",
    "teachers": "Teachers",
    "stagger": "Staggered first episodes",
    "motion_prior": "Adversarial motion priors",
    "smooth_actions": "Smooth actions",
    "smooth_actions_gymnasium_Hopper-v5": "Smooth actions on Hopper",
    "obs_statistics": "Statistics of observations that stop or skip",
    "changed_spaces": "Fine-tuning with other observations",
    "simba": "SimBa's layers",
    "latency": "One action of a trained policy",
    "accelerator": "Accelerators",
    "population": "Population-based training",
    "precision": "Products in bfloat16",
    "suites": "Suites of environments",
}
# By suffix of a result file (PPAX_RESULTS): additions to the section's title and command
BESIDE = {
    "": ("", ""),
    "_one_thread": (", on one thread", "NPROC=1 PPAX_RESULTS=_one_thread "),
    **{f"_jax_{v}": (f", on jax {v}", f"PPAX_RESULTS=_jax_{v} ") for v in ("0.11", "0.12")},
}
CURVES = "Learning curves of fast programs"
TOWERS = ("agent.network.actor.", "agent.network.critic.")
LISTS = {"log.to": "logger"}  # lists of parts, and their kind
WHOLE_TABLES = ("agent.program.", "agent.normalization.")  # tables without a choice of parts
EXTENSIONS = "agent.extensions"
EVIDENCE = "evidence.md"


def evidence() -> str:
    """Return evidence.md with updated scores and benchmarks."""
    text = replaced((DOCS / EVIDENCE).read_text(), "scores", scores())
    text = replaced(text, "public", public())
    text = replaced(text, "variants", variants())
    text = replaced(text, "predecessors", predecessors())
    return replaced(text, "benchmarks", benchmarks())


def benchmarks() -> list[str]:
    """Lines: the sections of all result files that have panels, in the order of TITLES, and the learning curves."""
    return ["", *(section(name, end) for name, end in result_files()), *learning_curves()]


def result_files() -> list[tuple[str, str]]:
    """Result files that exist, in the order of TITLES: name of the benchmark, and the suffix (a key of BESIDE)."""
    return [(name, end) for name in TITLES for end in BESIDE if (RESULTS / f"{name}{end}.json").exists()]


def learning_curves() -> list[str]:
    """Return the section of `curves.py`: the fast programs learn as well as the plain ones."""
    report = json.loads((RESULTS / "curves.json").read_text())
    lines = [
        f"### {CURVES}",
        "",
        "Difference of the mean episode return from that of the fast program in float32: in the last quarter of",
        "training (final) and over all of it (area), with its 95 % confidence interval and the p value of Welch's",
        "test. *plain*: one device, whole minibatches, permutations by sorting. W3 is CartPole without velocities, for",
        "half a million steps.",
        "`python benchmarks/curves.py`",
        "",
        f"{cores(report['hardware'])}; jax {report['versions']['jax']}; {report['seeds']} seeds.",
        "",
        "| task | processor | | fast | plain | bfloat16 |",
        "|---|---|---|---|---|---|",
    ]
    for result in report["results"]:
        for what in ("final", "area"):
            others = (result.get(name) for name in ("plain", "bfloat16"))
            cells = [compared(found[f"{what}_difference"]) if found else "not run" for found in others]
            mean = statistics.mean(result["fast"][what])
            lines.append(f"| {result['task']} | {result['processor']} | {what} | {mean:.1f} | {' | '.join(cells)} |")
    return [*lines, "", f"![{CURVES}](images/curves.png)", ""]


def compared(test: dict[str, float]) -> str:
    """Difference, confidence interval and p value."""
    return f"{test['difference']:+.1f} ({test['low']:+.1f} .. {test['high']:+.1f}), p {test['p']:.2f}"


def section(name: str, end: str = "") -> str:
    """One result file: its task, machine, command, a table and a picture."""
    report = json.loads((RESULTS / f"{name}{end}.json").read_text())
    machine, versions, (of_title, variables) = report["hardware"], report["versions"], BESIDE[end]
    lines = [f"### {TITLES[name]}{of_title}", "", f"{report['task']}. `{variables}{COMMANDS[name]}`", ""]
    devices = machine.get("devices", f"{machine['cpu']}, {cores(machine)}")
    lines += [f"{devices}; jax {versions['jax']}; {report['date'][:10]}.", ""]
    lines += ["| ratio | case | median (range) | target | |", "|---|---|---|---|---|"]
    for panel in report["panels"]:
        title = f"{' '.join(panel['title'].split())} ({panel['better']} is better)"
        for bar in panel["bars"]:
            lines.append(f"| {title} | {' '.join(bar['label'].split())} | {figure(bar)} | {verdict(bar, panel)} |")
            title = ""
    return "\n".join([*lines, "", f"![{TITLES[name]}{of_title}](images/{name}{end}.png)", ""])


def figure(bar: dict[str, Any]) -> str:
    """Median and range, to two digits."""
    return f"{bar['median']:.2f} ({bar['min']:.2f} .. {bar['max']:.2f})"


def verdict(bar: dict[str, Any], panel: dict[str, Any]) -> str:
    """The two last cells of a row: target, and whether it was met."""
    target = bar["target"]
    if target is None:
        return "|"
    met = bar["median"] >= target if panel["better"] == "higher" else bar["median"] <= target
    return f"{target:g} | {'met' if met else '**missed**'}"


def options() -> str:
    """The page of all options: those of a run, of the agent, and of every part that a slot may hold."""
    from ppax import config
    from ppax.config.catalogue import PARTS, choices_of

    of_run = choices_of(config.Run)  # with parts that only the environment's schedule may be
    lines = [
        "# Options",
        "",
        "Generated from the fields of the parts. `learning_rate` under `agent` is a key of the table `[agent]` in a",
        "run file, the option `--agent.learning-rate` of `ppax train`, and a field of the part in Python. A section is",
        "headed by a part's name in run files, followed by its class; `agent` itself is a `ppax.PPO`, or a subclass,",
        "whose import path is the `part` of `[agent]` ([extending](extending.md#a-subclass-of-ppo)).",
        "",
        "The defaults here are those of the classes. A run of a named environment begins from a preset or from the",
        "defaults for its kind ([settings](settings.md) has those that differ); `ppax train TARGET --help` shows them.",
        "",
        "Tables whose keys are not fixed: `[env_params]` and `[eval.env_params]`",
        "([vary the environment](vary_environments.md#set-parameters-of-the-environment)), `[groups.NAME]`",
        "([many agents](many_agents.md#groups-of-different-agents)), `[sweep]` ([sweeps](sweeps.md)), `[ray]`",
        "([several machines](machines.md#ray)).",
        "",
    ]
    everything = list(config.options({}))
    own = [option for option in everything if not option.path.startswith("agent.")]
    agent = [option for option in everything if option.path.count(".") == 1 and option.path.startswith("agent.")]
    agent += [option for option in everything if option.path.startswith(WHOLE_TABLES)]
    lines += ["## run", "", *table(own), "", "## agent", "", *table(agent, "agent."), ""]
    for slot, path in slots(everything):
        if path == "agent" or path.startswith(TOWERS):
            continue
        lines += [f"## {path}", ""]
        for part, cls in of_run.get(path, PARTS[slot]).items():
            inner = [
                option
                for option in config.options(nested(path, {"part": part}))
                if option.path.startswith(f"{path}.") and option.path != f"{path}.part"
            ]
            depth = path.count(".") + 1  # of the part's own numbers; one more for the name of a part in it
            direct = [option for option in inner if option.path.count(".") == depth + option.path.endswith(".part")]
            lines += [
                f'### `part = "{part}"`',
                "",
                in_python(cls),
                "",
                *(table(direct, f"{path}.") if direct else ["No options."]),
                "",
            ]
        if slot == "memory":
            lines += towers([option for option in everything if option.path.startswith(TOWERS[0])])
    lines += extensions()
    for path, slot in LISTS.items():
        lines += [
            f"## {path}",
            "",
            f"A list: one table `[[{path}]]` for each. In dotted paths the first is `{path}.0`.",
            "",
        ]
        for part, cls in PARTS[slot].items():
            inner = [o for o in config.options(nested(path, [{"part": part}])) if o.path.startswith(f"{path}.0.")]
            direct = [option for option in inner if not option.path.endswith(".part")]
            rows = table(direct, f"{path}.0.") if direct else ["No options."]
            lines += [f'### `part = "{part}"`', "", in_python(cls), "", *rows, ""]
    return "\n".join([*lines, *searches()])


def extensions() -> list[str]:
    """Sections of all extensions, each under the name that its table has by default."""
    from ppax import config
    from ppax.config.catalogue import PARTS
    from ppax.core import parts

    lines = [
        f"## {EXTENSIONS}",
        "",
        f"A table for each, in their order: `[{EXTENSIONS}.NAME]`, which may be empty; on the command line",
        f"`--{EXTENSIONS} rnd,kl_control`; `--{EXTENSIONS}.rnd.coef 0.5` adds one, too. NAME is the name of the part,",
        'or any other with the key `part`, as `[agent.extensions.second] part = "rnd"` ([list](extensions.md)).',
        "",
    ]
    for part, cls in PARTS["extension"].items():
        place = f"{EXTENSIONS}.{part}"
        inner = [o for o in config.options(nested(place, {})) if o.path.startswith(f"{place}.")]
        depth = place.count(".") + 1
        direct = [
            o for o in inner if o.path.count(".") == depth + o.path.endswith(".part") and o.path != f"{place}.part"
        ]
        rows = table(direct, f"{place}.") if direct else ["No options."]
        lines += [f"### `[{place}]`", "", in_python(cls), "", *rows, ""]
        for field, kind in parts.slots(cls).items():
            for name, inner_cls in PARTS[kind].items() if kind != "extension" else ():  # extensions have sections
                above = f"{place}.{field}."
                known = config.options(nested(f"{place}.{field}", {"part": name}))
                own = [o for o in known if o.path.startswith(above) and not o.path.endswith(".part")]
                rows = table(own, above) if own else ["No options."]
                lines += [f'### `[{above[:-1]}]`, `part = "{name}"`', "", in_python(inner_cls), "", *rows, ""]
    return lines


def searches() -> list[str]:
    """Sections of the parts of the table [search] of a sweep."""
    from ppax.sweeps.search import SEARCHES, search_options

    about = "Table of a sweep's run file: how members are stopped or changed while they train ([sweeps](sweeps.md))."
    lines = ["## search", "", about, ""]
    for part, cls in SEARCHES.items():
        own = [option for option in search_options({"part": part}) if not option.path.endswith(".part")]
        rows = table(own, "search.") if own else ["No options."]
        lines += [f'### `part = "{part}"`', "", in_python(cls), "", *rows, ""]
    return lines


def towers(own: list[Any]) -> list[str]:
    """Sections of the tables of the actor and the critic alone, and of encoders by entry."""
    from ppax.networks import Tower

    heading = "## " + ", ".join(path.removesuffix(".") for path in TOWERS)
    about = "`same`, the default, is the value of `agent.network`; `encoder` and `memory` are parts as there."
    by_entry = (
        "Tables of `agent.network.encoder`, each for one entry of a Dict observation, under the name of the entry."
    )
    rows = table(own, TOWERS[0])
    return [heading, "", in_python(Tower), "", about, "", *rows, "", "## agent.network.encoders", "", by_entry, ""]


def in_python(cls: type) -> str:
    """Name of a part's class as a program writes it, and the function that makes it for an environment, if any."""
    from ppax.config.catalogue import FROM_SPACES
    from ppax.core.parts import public_home

    def public(made: Any) -> str:
        return f"{public_home(made)}.{made.__name__}"

    return f"`{public(cls)}`" + (f", made by `{public(FROM_SPACES[cls])}(env)`" if cls in FROM_SPACES else "")


def slots(everything: list[Any]) -> Iterator[tuple[str, str]]:
    """Names and paths of the agent's slots, as far as the default agent has them."""
    for option in everything:
        if option.path.endswith(".part"):
            path = option.path.removesuffix(".part")
            yield path.rpartition(".")[2], path


def defaults() -> str:
    """The page of the settings for each kind of environment, and of the presets."""
    from ppax.config.defaults import COLUMNS, TABLE

    lines = [
        "# Which settings do I get?",
        "",
        "```sh",
        "ppax train gymnasium/LunarLander-v3     # hyperparameters by the kind of environment, or a preset",
        "ppax train Pendulum-v1 --preset none    # those of the kind instead of the preset",
        "ppax train Pendulum-v1 --dry-run        # print all of them as a run file; train nothing",
        "ppax presets                            # tuned settings that come with ppax",
        "```",
        "",
        "```python",
        "import ppax",
        "",
        'run = ppax.build("CartPole-v1", total_steps=20_000, agent={"gamma": 0.95}).fit()',
        "print(run)",
        "```",
        "",
        "The default hyperparameters are the same wherever an environment is named: `ppax train ENV`, a run file with",
        "`env = ENV`, or `ppax.build(ENV)` in Python. They follow from the kind of environment, never from its name.",
        "Kinds: compiled or on the host; discrete actions, continuous actions, or images (an observation with three",
        "axes; [small ones](#small-images) on the host are a kind of their own). [Short episodes](#short-episodes)",
        "lower `gamma`. `ppax train` prints them in one line; a run records all of them in `run.toml`. Options that",
        "you give have priority; num_minibatches follows your sizes. With a memory, sequences are whole rollouts.",
        "`python benchmarks/three_ways.py` compares the three ways on ten environments: equal run files, equal scores.",
        "",
        "Where a [preset](#presets) has the environment's name, the run begins from it instead. `--preset none`, in",
        'run files and in Python `preset = "none"`, takes the settings of the kind; `--preset NAME` those of another',
        "preset.",
        "",
        "## The defaults, and why",
        "",
        f"| setting | {' | '.join(map(', '.join, COLUMNS))} | reason |",
        "|---" * (len(COLUMNS) + 2) + "|",
    ]
    for cell in TABLE:
        values = " | ".join(f"`{shown(value)}`" for value in cell.values)
        lines.append(f"| `{cell.setting}` | {values} | {cell.reason} |")
    return "\n".join([*lines, "", *BY_HAND, *presets(), *defaults_measured(), *defaults_drawn()])


BY_HAND = [
    "[Options](options.md) lists every option. [Normalisation](not_learning.md) of observations and rewards is on by",
    "default for vectors, and for the numbers of an observation that has images, too.",
    "",
    "## Which of them matter?",
    "",
    "![Scores with one default halved, doubled or left out](images/sensitivity.png)",
    "",
    "One default at a time is halved or doubled, and the normalisations and the decay of the learning rate are left",
    "out, on five environments of the [public suite](evidence.md), ten seeds each, those of the suite's scores:",
    "`python benchmarks/sensitivity.py`.",
    "",
    "* Normalisation matters most. Without that of observations MountainCar is never solved, and the continuous one",
    "  stands still: a return of 0, which is 0.35 here, as the untrained policy has -50. Without that of rewards",
    "  Pendulum stays near its start (0.16).",
    "* Then the number of gradient steps: with half the epochs or minibatches MountainCar loses a seventh, and its",
    "  worst seeds end at -131 in place of -114; twice as many of either, twice the learning rate or none of its",
    "  decay gain 6 to 8 %. But with twice the epochs (5 of 10), the learning rate (4), the environments (3) or the",
    "  minibatches (2) seeds of MountainCarContinuous stand still, and one each with half the horizon of gamma and",
    "  with twice the width.",
    "* Of CartPole without velocities single seeds fail where the IQM shows nothing: one of ten each with half the",
    "  gradient norm, twice the value loss, minibatches or width, and without decay; two without normalised rewards.",
    "* All other changes move the IQM of Acrobot, Pendulum and CartPole without velocities by at most 2 % of the way",
    "  from the untrained policy to the defaults. In return that is up to 20 on Pendulum: -184 to -185 in place of",
    "  -165 with half the learning rate or the epochs. A run that does not learn is rarely mended by a search of these",
    "  numbers: [ask the doctor](not_learning.md) first.",
    "",
    "The seeds are those of the published scores. For one default that changed later it was known from this table that",
    "the change helps on them (minibatches, on MountainCar); it was decided on other seeds.",
    "",
    "## Actions far from [-1, 1]",
    "",
    "Actions in units far from 1 (a Box wider than 40, narrower than 0.1, or three half widths away from 0) get",
    "distribution `squashed`, which maps its range to that of the Box: `normal` begins around 0 with standard",
    "deviation 1. Without these settings, `fit` warns and the doctor finds it. Measured with a target at 70 % of",
    "the Box, mean distance as a share of it after 40,000 steps:",
    "",
    "| Box | `normal` | `squashed` | `beta` |",
    "|---|---|---|---|",
    "| [0, 1000] | 0.70 | 0.013 | 0.009 |",
    "| [1000, 1010] | 0.70 | 0.013 | 0.009 |",
    "| [0, 0.001] | 0.30 | 0.013 | 0.009 |",
    "| [-1, 1] | 0.00 | 0.013 | 0.009 |",
    "",
    "## Short episodes",
    "",
    "Where a time limit of T < 100 steps truncates episodes, the default `gamma` is 1 - 1/T, at least 0.9; T counts",
    "steps of the agent. ppax reads the limit of the wrappers `TimeLimit` (its own and Gymnasium's) and PettingZoo's",
    "`max_cycles`; for an environment that counts its steps itself give `gamma`, or the limit as `max_steps`.",
    "",
    "A truncated episode is cut off and has not ended: V of its last state counts rewards that no",
    "episode has, and comes from the critic itself. To a critic that begins at 0, states near the limit seem better",
    "than all others if rewards are negative, and the policy learns to reach states like them. Three particles that",
    "should spread over landmarks within 25 steps (`jaxmarl/MPE_simple_spread_v3`, untrained -26.6) hardly learn",
    "to with 0.99:",
    "",
    "| `gamma` | 0.9 | **0.96** (default) | 0.98 | 0.99 |",
    "|---|---|---|---|---|",
    "| mean return, IQM of seeds 0 to 4 | -16.1 | **-16.4** | -19.0 | -24.7 |",
    "",
    "`ppax sweep jaxmarl/MPE_simple_spread_v3 --preset none --total-steps 1_000_000 --seeds 5 --agent.gamma",
    "0.9,0.96,0.98,0.99 --eval.deterministic false`. On `gymnasium/Reacher-v5` (50 steps) four seeds have -3.9 to -4.1",
    "with 0.98, and -4.1 to -4.4 with 0.99, after 500,000 steps. OpenAI Baselines choose 1 - 1/T for",
    "[agents with goals](https://github.com/openai/baselines/tree/master/baselines/her), too. Where rewards after",
    "the limit matter, set `gamma`.",
    "",
    "## Small images",
    "",
    "Environments on the host whose images are all small (fewer than 36 pixels on a side, such as the 7 x 7 tiles of",
    "MiniGrid) have ten epochs on minibatches of 64 rows. With the settings for larger images, those of the PPO paper",
    "for Atari, they take a tenth of the gradient steps, and learn too late. Mean returns after 100,000 steps:",
    "",
    "| environment | seeds | as small images | as larger images |",
    "|---|---|---|---|",
    "| minigrid/MiniGrid-DoorKey-5x5-v0 | 0 to 3 | **0.965, 0.964, 0.965, 0.965** | 0.843, 0.581, 0.883, 0.920 |",
    "| minigrid/MiniGrid-Unlock-v0 | 0, 1 | **0.967, 0.933** | 0.156, 0.095 |",
    "",
    'In Python: `ppax.score("minigrid/MiniGrid-DoorKey-5x5-v0", seeds=range(4), options={"preset": "none",',
    '"total_steps": 100_000})`; for the right column with `"agent": {"num_epochs": 4, "learning_rate": 2.5e-4, "loss":',
    '{"clip_eps": 0.1}, "minibatch": {"num_minibatches": 4}}`.',
    "",
    "## Agents built by hand",
    "",
    "`ppax.fit(ppax.PPO(network), env)` takes the defaults of these classes, which know no environment",
    "([options](options.md) lists them): right for a reproduction that sets every number, and often far from a good",
    "score. `ppax.PPO(ppax.networks.mlp(env), learning_rate=1e-3)` with 8 environments scores -166 and -126 on",
    "gymnasium/LunarLander-v3 after 500,000 steps (seeds 0 and 1), `ppax.build` 280 and 233.",
    "",
]


def presets() -> list[str]:
    """Return lines: the presets, and why there are so few."""
    return [
        "## Presets",
        "",
        "A preset is a run file that comes with ppax, tuned for one environment. It stays as long as the defaults",
        "score lower there, at its number of steps; a run of another length says so. On the seeds of the published",
        "scores the defaults reach 2,543 (preset: 3,261) on Hopper-v5 and 5,974 (6,279) on HalfCheetah-v5; the table",
        "below has other seeds.",
        "`ppax presets` lists them. `styles/NAME` are the settings of other libraries, for CartPole: for comparisons,",
        "and used only by their names, as in `ppax train gymnax/Acrobot-v1 --preset styles/cleanrl`.",
        "",
        "`gymnax/Breakout-MinAtar` reads the picture as a vector, on a CPU many times as fast as the convolutions of",
        "the defaults. For the other games of MinAtar it is a choice between time and score: `ppax train",
        "gymnax/Freeway-MinAtar --preset gymnax/Breakout-MinAtar` reaches 39 instead of 62 after two million steps.",
        "`atari/Breakout` has the settings of the PPO paper; it was not compared with the defaults, since a run takes",
        "hours to days.",
        "",
    ]


def results_of(name: str) -> list[dict[str, Any]]:
    """Results of a benchmark's file, none where there is no file."""
    path = RESULTS / f"{name}.json"
    return list(json.loads(path.read_text())["results"]) if path.exists() else []


def seeds_of(entry: dict[str, Any] | None) -> str:
    """Interquartile mean and, in brackets, every seed's score; a dash for none."""
    from ppax.scores.tables import number_cell

    return "-" if entry is None else f"**{number_cell(entry['iqm'])}** ({', '.join(map(number_cell, entry['scores']))})"


def defaults_measured() -> list[str]:
    """Return lines: scores of the defaults, compared with those of presets, also of former ones."""
    lines = [
        "## Scores compared with the presets",
        "",
        "As in the [table of scores](evidence.md): interquartile mean over the seeds, in brackets each seed's score",
        "(100, 101, ...; for presets the seeds of their published scores). Share: (score of the defaults - untrained",
        "policy) / (score of the preset - untrained policy). Presets that the defaults equal no longer exist.",
        "`python benchmarks/defaults.py`",
        "",
        "| environment | steps | defaults | preset | share |",
        "|---|---|---|---|---|",
    ]
    rows = results_of("defaults")
    for row in rows:
        part = "-" if row["share"] is None else f"{row['share']:.2f}"
        preset = seeds_of(row["preset"])
        lines.append(f"| {row['task']} | {row['steps']:,} | {seeds_of(row['defaults'])} | {preset} | {part} |")
    return [*lines, ""] if rows else []


def defaults_drawn() -> list[str]:
    """Return lines: scores on environments not used for tuning, compared with Stable-Baselines3's."""
    lines = [
        "## Scores on environments not used for tuning",
        "",
        "Five environments drawn from the lists of the suites with a committed seed (`DRAW_SEED` in",
        "`benchmarks/defaults.py`) and measured once, with seeds 200, 201, ...; for comparison Stable-Baselines3's",
        "PPO with its defaults and as many steps, where supported. `python benchmarks/defaults.py --drawn --sb3`",
        "",
        "| environment | steps | untrained | ppax's defaults | SB3's defaults |",
        "|---|---|---|---|---|",
    ]
    rows = results_of("defaults_drawn")
    for row in rows:
        cells = f"{row['defaults']['random']:.4g} | {seeds_of(row['defaults'])} | {seeds_of(row['sb3'])}"
        lines.append(f"| {row['task']} | {row['steps']:,} | {cells} |")
    feet = "[what its feet do](evidence.md#scores-far-above-published-ones)"
    return [*lines, "", f"The return of brax/halfcheetah exploits the physics: {feet}.", ""] if rows else []


def nested(path: str, held: Any) -> dict[str, Any]:
    """A configuration in which the option at `path` is `held`."""
    table = held
    for name in reversed(path.split(".")):
        table = {name: table}
    return table


def table(options: list[Any], prefix: str = "") -> list[str]:
    """Rows of options: path without `prefix`, meaning (second, so that a phone shows it), default, limits."""
    rows = ["| option | meaning | default | allowed |", "|---|---|---|---|"]
    for option in options:
        name, doc = option.path.removeprefix(prefix), option.doc.replace("|", "/")
        rows.append(f"| `{name}` | {doc} | `{shown(option.default, option.none)}` | {allowed(option)} |")
    return rows


def shown(value: Any, none: str = "none") -> str:
    """A default as a run file has it; `none` is the word for None."""
    if value is None:
        return none
    return json.dumps(value) if isinstance(value, bool | str | int | float) else str(value)


def allowed(option: Any) -> str:
    """Type and limits of an option."""
    limits = option.limits
    if "choices" in limits:
        return ", ".join(f"`{choice}`" for choice in limits["choices"])
    signs = {"low": ">=", "above": ">", "high": "<="}
    bounds = [f"{sign}&nbsp;{bound(limits[name])}" for name, sign in signs.items() if limits.get(name) is not None]
    if "code" in limits:
        return "import path"
    if issubclass(option.kind, dict):  # with free names
        return "table"
    kind = option.kind.__name__ + (" list" if option.many else "") + (f" or {option.none}" if option.optional else "")
    kind += " or true" if limits.get("switch") else ""
    return ", ".join([kind, *bounds])


def bound(limit: float) -> str:
    """A limit, where it is that of an integer type as a power of two."""
    powers = {
        sign * 2**bits - (sign > 0): f"{'-' * (sign < 0)}2^{bits}{'&nbsp;-&nbsp;1' * (sign > 0)}"
        for sign, bits in EDGES
    }
    return powers.get(limit, f"{limit:g}")


NOT_LEARNING = "not_learning.md"


def not_learning() -> str:
    """Return not_learning.md with an updated table of the doctor's rules."""
    from ppax.reports.doctor import RULES

    rows = [f"| `{rule.name}` | {rule.sees} | {rule.remedy} |" for rule in RULES]
    head = ["| rule | symptom | options to try |", "|---|---|---|"]
    return replaced((DOCS / NOT_LEARNING).read_text(), "rules", [*head, *rows])


def replaced(text: str, name: str, lines: list[str]) -> str:
    """Return the text of a page with `lines` in place of those between the two comments of this name."""
    begin, end = f"<!-- {name}: written by docs/generate.py -->\n", f"<!-- end of {name} -->"
    before, found, rest = text.partition(begin)
    _, last, after = rest.partition(end)
    if not (found and last):
        raise ValueError(f"the page has no lines {begin.strip()} and {end}")
    return "\n".join([before + begin.rstrip(), *lines, end + after])


EDGES = ((1, 31), (1, 32), (1, 63), (1, 64), (-1, 31), (-1, 63))  # sign and bits of the largest and smallest integers
SCORES, PUBLIC_SCORES = RESULTS / "scores", RESULTS / "public"
RECORDED = "../src/ppax/scores/recorded.toml"
PROBES = "Row L0, probe tasks with exactly known values, is a test: `pytest tests/system/test_learning.py`."


def scores() -> list[str]:
    """Lines: table of scores, controls, curves, and rows without a result."""
    from ppax.scores import suite, tables

    earlier = {row.name for row in suite.read_suite(suite.PREDECESSORS)}
    done = [score for score in tables.published(SCORES) if score.row.name not in earlier]
    rows, controls = ([s for s in done if (s.row.at_most is not None) is control] for control in (False, True))
    missing = [row for row in suite.read_suite() if row.name not in {score.row.name for score in rows}]
    lines = [""]
    if rows:
        lines += [*tables.markdown(rows, lambda score: f"images/scores/{score.row.name}.png"), ""]
        lines += [*(machine_line(group) for group in machines(rows).values()), ""]
        lines += [f"References: {'; '.join(f'{s.row.name}: {s.row.source}' for s in rows)}.", ""]
    if missing:
        lines += [f"Not measured yet: {', '.join(f'{row.name} ({row.target})' for row in missing)}.", ""]
    lines += [PROBES, ""]
    lines += ["### Negative controls", "", *tables.controls_markdown(controls), ""] if controls else []
    lines += ["### Learning curves", ""] if rows else []
    return lines + [line for s in rows for line in (f"![{s.row.name}: {s.env}](images/scores/{s.row.name}.png)", "")]


def public() -> list[str]:
    """Lines: scores of the public suite by the defaults, beside other libraries and published scores."""
    from ppax.scores import suite, tables
    from ppax.scores.tables import number_cell

    summary = json.loads((PUBLIC_SCORES / "summary.json").read_text())
    done = {score.row.name: score for score in tables.published(PUBLIC_SCORES)}
    rows = [row for row in suite.read_suite(suite.PUBLIC) if row.name in done and row.name in summary["rows"]]
    peers = [name for name in summary["together"] if any(name in entry for entry in summary["rows"].values())]
    heads = ["environment", "ppax", "lowest seed", *peers, "untrained", "published", "normalised", "steps", "a seed"]
    lines = ["", f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for row in rows:
        entry, score = summary["rows"][row.name], done[row.name]
        cells = [score.env, interval_cell(entry["ppax"], True), number_cell(entry["ppax"]["minimum"])]
        cells += [interval_cell(entry.get(name), False) if name in entry["runs"] else "-" for name in peers]
        share = entry["ppax"]["normalised"]
        cells += [number_cell(entry["random"]), number_cell(row.reference)]
        cells += ["-" if share is None else f"{share:.2f}", f"{score.env_steps:,}"]
        lines.append(f"| {' | '.join((*cells, tables.duration(entry['ppax']['seconds'])))} |")
    lines += ["", *groups_table(summary["groups"])]
    for peer, both in summary["together"].items():
        if both is not None:
            lines += ["", *together_table(peer, both)]
    missing = [row.target for row in suite.read_suite(suite.PUBLIC) if row.name not in done]
    if missing:
        lines += ["", f"Not measured yet: {', '.join(missing)}."]
    for peer in peers:
        lines += ["", *seconds_table(peer, [(done[row.name], summary["rows"][row.name]) for row in rows])]
    lines += ["", "| environment | published | steps | source |", "|---|---|---|---|"]
    for row in rows:
        if row.reference is not None:
            more = f"{row.reference_steps:,}" if row.reference_steps == row.steps else f"**{row.reference_steps:,}**"
            lines.append(f"| {row.target} | {number_cell(row.reference)} | {more} | {row.source.replace('+-', '±')} |")
    lines += ["", "Bold: after another number of steps than here.", ""]
    lines += ["![Learning curves of the public suite](images/public_curves.png)", ""]
    lines += ["![Performance profile of the public suite](images/public_profiles.png)", ""]
    lines += [machine_line(group) for group in machines([done[row.name] for row in rows]).values()]
    return [*lines, *(f"{peer}: {used}.  " for peer, used in summary["versions"].items()), ""]


def interval_cell(entry: dict[str, Any] | None, bold: bool) -> str:
    """The IQM of a library's seeds with its interval and their number; "" where it was not measured.

    The scores of two seeds are given in place of an interval.
    """
    from ppax.scores.tables import number_cell

    if entry is None:
        return ""
    iqm, low, high, lowest = (number_cell(entry[name]) for name in ("iqm", "low", "high", "minimum"))
    interval = f" ({low} .. {high})" if entry["seeds"] > 2 else ""
    if entry["seeds"] == 2:
        interval = f" ({lowest} and {number_cell(2 * entry['mean'] - entry['minimum'])})"
    return f"{f'**{iqm}**' if bold else iqm}{interval}, {entry['seeds']}"


def normalised_cell(entry: dict[str, Any]) -> str:
    """A normalised IQM with its interval."""
    return f"{entry['iqm']:.2f} ({entry['low']:.2f} .. {entry['high']:.2f})"


def groups_table(groups: dict[str, dict[str, Any]]) -> list[str]:
    """Lines: normalised scores of ppax over all environments that have a published score, and over parts of them."""
    heads = ["environments with a published score", "", "IQM", "optimality gap"]
    heads += ["reach it by the IQM", "by the mean", "with the whole interval"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for name, entry in groups.items():
        reached = (entry["reached"], entry["by_mean"], entry["surely"])
        cells = (name, entry["rows"], normalised_cell(entry), f"{entry['gap']:.2f}", *reached)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def together_table(peer: str, both: dict[str, Any]) -> list[str]:
    """Lines: aggregates of ppax and of another library over the environments that both were measured on."""
    count = both["ppax"]["rows"]
    heads = [f"{count} environments that {peer} was measured on, too", "IQM", "mean", "optimality gap"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for name in ("ppax", peer):
        entry = both[name]
        lines.append(f"| {name} | {normalised_cell(entry)} | {entry['mean']:.2f} | {entry['gap']:.2f} |")
    better, low, high = both["better"]
    chance = f"with a probability of {better:.2f} ({low:.2f} .. {high:.2f}), on average over these environments"
    return [*lines, "", f"A seed of ppax scores higher than one of {peer} {chance}; equal scores count half."]


def seconds_table(peer: str, rows: list[tuple[Any, dict[str, Any]]]) -> list[str]:
    """Lines: seconds of training, and until training episodes have the published score, beside another library's."""
    names = ("ppax", peer)
    heads = ["seconds of training a seed", *names, *(f"{name}, until the published score" for name in names)]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for score, entry in rows:
        if peer not in entry or score.row.reference is None:
            continue
        cells = [score.row.target, *(seconds_cell(entry[name]["seconds"]) for name in names)]
        if score.about["platform"] != "cpu":
            cells[1] += f" ({score.about['platform'].upper()})"
        for name in names:
            found, count = entry[name]["seconds_to_reference"], entry[name]["seeds"]
            middle = f"{seconds_cell(statistics.median(found))}; " if found else ""
            cells.append(f"{middle}{len(found)} of {count} seeds")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def seconds_cell(seconds: float) -> str:
    """Seconds with a digit after the point where they are few."""
    return f"{seconds:.1f}" if seconds < 10 else f"{seconds:,.0f}"


def variants() -> list[str]:
    """Lines: scores of rows of the public suite with other settings than the defaults, on tuning seeds."""
    from ppax.scores.tables import number_cell

    found: dict[tuple[str, int, str], list[float]] = {}
    for one in json.loads((PUBLIC_SCORES / "variants.json").read_text())["seeds"]:
        found.setdefault((one["row"], one["steps"], one["variant"]), []).append(one["score"])
    lines = ["", "| row | steps | settings | median | seeds |", "|---|---|---|---|---|"]
    for (row, steps, name), scores in found.items():
        seeds = ", ".join(map(number_cell, scores))
        middle = number_cell(statistics.median(scores)) if len(scores) > 2 else ""
        lines.append(f"| {row} | {steps:,} | {name} | {middle} | {seeds} |")
    return [*lines, ""]


def predecessors() -> list[str]:
    """Lines: scores of the predecessors' tasks by the presets `styles/*`, beside what their authors report."""
    from ppax.scores import suite, tables
    from ppax.scores.tables import number_cell

    done = {score.row.name: score for score in tables.published(SCORES)}
    lines = ["", "| row | environment | measured | ppax, IQM of the seeds | goal | reported | steps | |"]
    lines += ["|" + "---|" * 8]
    for row in suite.read_suite(suite.PREDECESSORS):
        score = done.get(row.name)
        if score is None:
            lines.append(f"| {row.name} | {row.target} | {row.metric} | not measured | | {row.source} | | |")
            continue
        s, steps = score.statistics, f"{score.env_steps:,}"
        spread = f"**{number_cell(s.iqm)}** ({number_cell(s.low)} .. {number_cell(s.high)})"
        cells = (row.name, score.env, row.metric, spread, number_cell(row.threshold), row.source, steps, score.status)
        lines.append(f"| {' | '.join(cells)} |")
    measured = [done[name] for name in (row.name for row in suite.read_suite(suite.PREDECESSORS)) if name in done]
    return [*lines, "", *(machine_line(group) for group in machines(measured).values()), ""]


def versions() -> list[str]:
    """Lines: on which versions of Python and JAX the wheel was tested (tests/matrix.py)."""
    names = {
        "plain": "no extra",
        "test": "`test`",
        "oldest": "`test`, oldest versions allowed",
        "newest": "`test`, newest jax allowed",
    }
    lines = ["", "| Python | extra | jax | NumPy | Gymnasium | result | |", "|---|---|---|---|---|---|---|"]
    for cell, outcome in json.loads((RESULTS / "matrix.json").read_text())["cells"].items():
        version, kind = cell.split()
        passed = "passed" if outcome["passed"] else "**failed**"
        found = [outcome["versions"].get(name, "-") for name in ("jax", "numpy", "gymnasium")]
        lines.append(f"| {version} | {names[kind]} | {' | '.join(found)} | {outcome['result']} | {passed} |")
    return [*lines, ""]


def start() -> str:
    """Return start.md with the table of versions."""
    return replaced((DOCS / "start.md").read_text(), "versions", versions())


README = "../README.md"
SHORT = ("environment", "steps", "ppax, IQM of the seeds", "published score", "source")
IN_README = ("L1", "L6", "L8-10M", "L12-20", "L13", "L14")


def readme() -> str:
    """Return README.md with an updated table of six of the scores."""
    from ppax.scores import tables
    from ppax.scores.tables import number_cell

    lines = ["| " + " | ".join(SHORT) + " |", "|" + "---|" * len(SHORT)]
    for score in tables.published(SCORES):
        row, s = score.row, score.statistics
        if row.name in IN_README:
            short = " (short of its threshold)" if score.status == "failed" else ""
            spread = f"**{number_cell(s.iqm)}** ({number_cell(s.low)} .. {number_cell(s.high)}){short}"
            cells = (score.env, f"{score.env_steps:,}", spread, number_cell(row.reference), row.source)
            lines.append(f"| {' | '.join(cells)} |")
    return replaced((DOCS / README).read_text(), "scores", lines)


def machines(rows: list[Any]) -> dict[tuple[str, ...], list[Any]]:
    """Results by day, versions, hardware and seeds."""
    groups: dict[tuple[str, ...], list[Any]] = {}
    for score in rows:
        about, packages = score.about, score.about["packages"]
        versions = f"ppax {about['ppax']}", f"jax {packages['jax']}", f"Python {about['python']}"
        device = about["processor"] if about["platform"] == "cpu" else about["device"]
        hardware = f"{device}, {cores(about)}"
        seeds = f"seeds {score.seeds[0]} to {score.seeds[-1]}"
        groups.setdefault((about["time"][:10], hardware, *versions, seeds), []).append(score)
    return groups


def cores(machine: dict[str, Any]) -> str:
    """The number of cores in words."""
    return f"{machine['cores']} core{'s' * (machine['cores'] != 1)}"


def machine_line(group: list[Any]) -> str:
    """One line: rows, date, hardware, versions, seeds."""
    ((facts, _),) = machines(group).items()
    return f"{', '.join(score.row.name for score in group)}: {'; '.join(facts)}.  "


def recorded() -> str:
    """Return the scores by target that the package includes, as TOML."""
    from ppax.scores.tables import published, scores_to_toml

    return scores_to_toml(published(SCORES))


API = {
    "Train": (
        *("build", "Built", "fit", "resume", "TrainedRun"),
        *("Log", "BestSettings", "EvalSettings", "FilmSettings", "InitFrom"),
    ),
    "Read runs, compare, diagnose": (
        *("report", "compare", "frame", "plot", "doctor", "Diagnosis"),
        *("score", "Score", "presets", "PresetScore"),
    ),
    "Trained policies": (
        *("load", "checkpoints", "SavedState", "Policy", "PolicySpec", "film", "Film", "match", "Match", "push_to_hub"),
    ),
    "Sweeps": ("sweep_runs", "resume_sweep", "SweepResult"),
    "Pure functions": (
        *("start", "train", "compile", "CompiledTraining", "collect", "evaluate", "Evaluation", "play_episodes"),
        *("PlayedEpisodes", "trajectory", "Trajectory"),
        *("start_sweep", "sweep", "join", "TrainState"),
    ),
    "Agents": ("PPO", "Independent", "Groups", "SelfPlay", "Pool", "Normalization", "Program"),
    "Environments": ("make", "check_env", "selftest"),
    "Write a part": ("part", "number", "static", "slot", "Extension", "trust"),
    "Errors": ("ConfigError", "CheckpointError", "EnvError", "Interrupted", "NumericalError"),
}
NAMESPACES = (
    *("advantages", "critics", "losses", "minibatches", "gradients", "optimizers", "schedules", "recompute"),
    *("networks", "networks.encoders", "networks.heads", "networks.memories", "distributions"),
    *("extensions", "imitation", "envs", "envs.builtin", "loggers", "stop", "sweeps", "config", "protocols", "types"),
)
# Of these modules only some names are public: the others connect the rooms of the package
CHOSEN = {
    "config": ("PARTS", "Run", "build", "describe_run", "options", "parse", "preset", "presets", "read", "resolve"),
    "networks.encoders": ("Auto", "Encoder", "Flat", "ImpalaCNN", "NatureCNN", "SmallCNN", "conv", "max_pool"),
    "networks.heads": ("BetaHead", "CategoricalHead", "Head", "IndependentHead", "JointHead", "NormalHead"),
}
# Helpers for parts of one's own, where they stand
HELPERS = {
    "arrays.metrics": ("reduced",),
    "arrays.sequences": ("discounted_sum", "masked_mean", "zero_rows"),
    "cli.main": ("main",),
    "core.parts": ("ADDRESS", "PATH"),
    "devices.sharding": ("gather", "largest"),
    "distributions.boxes": ("Bounds", "bounds_of", "into_box"),
    "envs": ("BUILTIN",),
    "envs.suites.atari_game": ("AtariGame",),
    "envs.suites.registry": ("SUITES", "Suite", "known"),
    "extensions.rnd": ("scale_rewards",),
    "losses": ("bounded_log_ratio",),
    "networks.adapters": ("Equinox", "Linen", "NNX"),
    "networks.layers": ("dense", "init_dense"),
    "networks.memories.recurrence": ("linear_recurrence",),
    "networks.modules": ("EquinoxNetwork", "LinenNetwork", "NNXNetwork"),
    "networks.products": ("matmul",),
    "policy.actor": ("step",),
    "policy.bundle.numpy_format": ("reader_text",),
    "ppo.forward": ("step_shapes",),
    "types": ("Scalar",),
}
PUBLIC = """\
**What stands on this page is public**, with its arguments, and with fields and methods that have no underscore in
front. Commands, options and exit codes of `ppax`, the keys of run files ([options](options.md)), the names of
[metrics](metrics.md) and the [file formats](#file-formats) are public, too. Everything else is internal, whatever its
name: other modules, and other names in these, may change in any release.

## What a release may change

Versions are MAJOR.MINOR.PATCH ([semantic versioning](https://semver.org)). A PATCH release mends faults and changes
nothing that is public. A MINOR release adds. To remove or rename something public, or to change what it means:

1. A MINOR release deprecates it: it works as before, with a `FutureWarning` that says what to write instead.
   `CHANGELOG.md` has it under "Deprecated".
2. At the earliest three months later it goes: in a MAJOR release, or as long as versions begin with 0 in a MINOR one.
   `CHANGELOG.md` has it under "Removed".

Defaults and presets may change in a MINOR release. A run directory records all options of its run, and keeps them.

`tests/public_api.py` compares this page with the last release: a name or signature that differs must be in
`CHANGELOG.md`.

## File formats

Files that ppax has written are read by every later version with the same MAJOR version, and by the next MAJOR version:
tests load files of each release (`tests/samples/`). A newer format than a version knows is refused, never misread; a
score in one counts as not measured. A resumed run continues bit for bit only with the versions of ppax and JAX that
began it.
"""


def api() -> str:
    """Write the public names with their signatures and docstrings, as plain Markdown."""
    import ppax

    lines = ["# Python API", "", PUBLIC, *formats(), ""]
    for title, names in API.items():
        lines += [f"## {title}", ""]
        for name in names:
            lines += [f"### ppax.{name}", "", *described(name, getattr(ppax, name)), ""]
    lines += ["## Modules", ""]
    for name in NAMESPACES:
        module = operator.attrgetter(name)(ppax)
        own = [
            one for one, x in vars(module).items() if getattr(x, "__module__", "") == module.__name__ and one[0] != "_"
        ]
        exported = [one for one in getattr(module, "__all__", own) if callable(getattr(module, one))]
        rows = members(module, CHOSEN.get(name, exported), "")
        lines += [f"### ppax.{name}", "", first_sentence(module), "", "| name | |", "|---|---|", *rows, ""]
    lines += ["## Helpers", "", "For [parts of your own](extending.md), and for programs around ppax.", ""]
    lines += ["| name | |", "|---|---|"]
    for name, helpers in HELPERS.items():
        lines += members(importlib.import_module(f"ppax.{name}"), helpers, f"ppax.{name}.")
    return "\n".join([*lines, ""])


def members(module: Any, names: Iterable[str], prefix: str) -> list[str]:
    """Rows of a table: names of a module, each with the first sentence about it."""
    found = {one: getattr(module, one) for one in sorted(names, key=str.lower)}
    about = {one: first_sentence(x) if callable(x) else f"Constant ({type(x).__name__})." for one, x in found.items()}
    return [f"| `{prefix}{one}` | {text} |" for one, text in about.items()]


def formats() -> list[str]:
    """Lines: the table of the file formats and their versions."""
    from ppax.policy import spec
    from ppax.policy.bundle import archive
    from ppax.run import directory
    from ppax.scores import results
    from ppax.storage import manifest
    from ppax.sweeps import directory as sweep_directory

    versions = {
        "run directory: `about.json`": directory.FORMAT,
        "its policy: `policy.json`": spec.FORMAT,
        "checkpoint: `manifest.json`": manifest.FORMAT,
        "exported policy (bundle): `policy.json` inside": archive.FORMAT,
        "sweep directory: `sweep.json`": sweep_directory.FORMAT,
        "score of `ppax score --out`": results.FORMAT,
    }
    rows = [f"| {name} | {version} |" for name, version in versions.items()]
    return ["| file, with its entry `format` | version |", "|---|---|", *rows]


def described(name: str, what: Any) -> list[str]:
    """Signature, docstring and public methods of a function or class."""
    lines = ["```python", signature(name, what), "```", "", inspect.getdoc(what) or ""]
    methods = vars(what).items() if isinstance(what, type) else ()
    own = [(one, x) for one, x in methods if one[0] != "_" and not isinstance(x, type)]
    documented = [(one, x) for one, x in own if inspect.isroutine(x) or isinstance(x, property | classmethod)]
    rows = [f"* `.{one}`: {first_sentence(x)}" for one, x in documented if x.__doc__]
    return [*lines, "", *rows] if rows else lines


def signature(name: str, what: Any) -> str:
    """Return a function or class as it is called, with annotations and defaults."""
    if isinstance(what, type) and issubclass(what, Exception):
        return f"class {name}({', '.join(base.__name__ for base in what.__bases__)})"
    given, texts = inspect.signature(what), []
    for one in given.parameters.values():
        if one.kind is one.KEYWORD_ONLY and "*" not in texts and not any(x.startswith("*") for x in texts):
            texts.append("*")
        texts.append(re.sub(r": (?:ForwardRef\()?'(.*?)'\)?( =|$)", r": \1\2", str(one).split(" = <", 1)[0]))
    result = (
        "" if given.return_annotation is given.empty or isinstance(what, type) else f" -> {given.return_annotation}"
    )
    line = f"{name}({', '.join(texts)}){result}"
    return line if len(line) <= 100 else "\n".join([f"{name}(", *(f"    {text}," for text in texts), f"){result}"])


def first_sentence(what: Any) -> str:
    """Return the first paragraph of a docstring in one line, for a cell of a table."""
    paragraph = (inspect.getdoc(what) or "").partition("\n\n")[0]
    return " ".join(paragraph.split()).replace("|", "\\|")


EXPLAINED = "ppo.md"


def explained() -> str:
    """Return ppo.md with the code that it explains, taken from the source: `<!-- code: module:function -->`."""

    def block(match: re.Match[str]) -> str:
        module, _, path = match[1].partition(":")
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
        source = textwrap.dedent(inspect.getsource(found))
        (node,) = ast.parse(source).body
        assert isinstance(node, ast.FunctionDef)
        statements = node.body[1:] if ast.get_docstring(node) else node.body
        lines = source.splitlines()[statements[0].lineno - 1 :]
        return f"<!-- code: {match[1]} -->\n```py\n{textwrap.dedent(chr(10).join(lines))}\n```\n<!-- end of code -->"

    page = (DOCS / EXPLAINED).read_text()
    return re.sub(r"<!-- code: (\S+) -->.*?<!-- end of code -->", block, page, flags=re.DOTALL)


PAGES = {
    "options.md": options,
    "api.md": api,
    "settings.md": defaults,
    NOT_LEARNING: not_learning,
    "images/rooms.svg": pictures.rooms,
    "images/iteration.svg": pictures.iteration,
    "images/front.svg": pictures.speed,
    "images/clip.svg": pictures.clip,
    EXPLAINED: explained,
    EVIDENCE: evidence,
    "start.md": start,
    README: readme,
    RECORDED: recorded,
}


def main(check: bool) -> int:
    """Write all pages, or compare them with those on disk."""
    on_disk = {name: (DOCS / name).read_text() if (DOCS / name).exists() else "" for name in PAGES}
    differ = [name for name, page in PAGES.items() if on_disk[name] != page()] if check else []
    if check:
        print(f"out of date: {', '.join(differ)}; run python docs/generate.py" if differ else "up to date")
        return bool(differ)
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())
    (DOCS / "images").mkdir(exist_ok=True)
    others = ("curves", "normalisation", "sensitivity", "time_to_score")
    for name in (*(name + end for name, end in result_files()), *others):
        if (RESULTS / f"{name}.png").exists():
            shutil.copy(RESULTS / f"{name}.png", DOCS / "images")
    for picture in ("curves", "profiles"):
        shutil.copy(PUBLIC_SCORES / f"{picture}.png", DOCS / "images" / f"public_{picture}.png")
    (DOCS / "images" / "scores").mkdir(exist_ok=True)
    for picture in SCORES.glob("*.png"):
        shutil.copy(picture, DOCS / "images" / "scores")
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
