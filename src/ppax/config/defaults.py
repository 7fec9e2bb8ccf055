"""Settings that complete a configuration: those of a preset, or the defaults for the kind of its environment.

They are the same wherever an environment is named: on the command line, in a run file and in Python. The kind is read
from the environment, never from its name: compiled or on the host, discrete or continuous actions, vectors or images
(on the host: small or large), and the time limit of its episodes. The table below has one column per kind and one
reason per row; docs/settings.md is generated from it. A setting that the user gives has priority. The default number of
minibatches is computed from num_envs, num_steps and seq_len, so that a minibatch has about as many rows as the table
says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ppax.config.catalogue import choices_of
from ppax.config.construction import build_env
from ppax.config.run_files import preset, presets
from ppax.config.user_parts import require_trusted_parts
from ppax.config.validation import overridden, resolve
from ppax.core.options import NONE, Config, flatten, unflatten
from ppax.core.types import ConfigError
from ppax.envs import Env
from ppax.networks.encoders import is_large
from ppax.networks.heads import box_size, has_box, needs_squashing
from ppax.networks.observations import entries
from ppax.ppo.ppo import PPO
from ppax.training.backends import backend_of

COMPILED, HOST = "compiled", "host"
DISCRETE, CONTINUOUS, SMALL, IMAGE = "discrete", "continuous", "small image", "image"
COLUMNS = (
    *((COMPILED, control) for control in (DISCRETE, CONTINUOUS, IMAGE)),
    *((HOST, control) for control in (DISCRETE, CONTINUOUS, SMALL, IMAGE)),
)
CONTROL = {
    DISCRETE: "discrete actions",
    CONTINUOUS: "continuous control",
    SMALL: "small images",
    IMAGE: "images",
}
PLACE = {COMPILED: "compiled", HOST: "on the host"}
# Rows of the table that set options by arithmetic
STREAMS, ROWS, NOISE = "streams", "minibatch rows", "initial std of all actions together"
LARGEST_LOG_STD = 10.0  # of one that is taken for a default
LARGEST_DIVISOR = 2**22  # of the sequences of a rollout that is looked for
MINIBATCHES = "agent.minibatch.num_minibatches"
LOG_STD, DISTRIBUTION = "agent.network.log_std_init", "agent.network.distribution"
NORMALIZE_OBS, NORMALIZATION = "agent.normalize_obs", "agent.normalization."
SKIP = f"{NORMALIZATION}skip"  # entries of observations that are not normalised
OF_BOX = (LOG_STD, DISTRIBUTION)  # options of Box actions
GAMMA = "agent.gamma"
LEAST_GAMMA = 0.9  # that a short time limit leads to
NORMAL_FAMILIES = ("normal", "squashed", "ball")  # with a standard deviation
PRESET = "preset"  # option of a run
# Parts that all kinds have: their options exist before the kind is known
PARTS_FOR_ALL: Config = {"agent": {"schedule": {"part": "linear", "leaves": ["learning_rate"]}}}


class Kind(NamedTuple):
    """Kind of an environment, by which default settings are chosen: where it runs, its actions and observations."""

    where: str  # "compiled" or "host"
    control: str  # "discrete", "continuous" or "image"; on the host "small image" where no image is large
    agents: int  # per environment
    actions: int  # number of continuous actions of an agent; 0 with groups
    sizes: tuple[tuple[str, int], ...] = ()  # name and number of agents of each group; () without groups
    off_scale: bool = False  # actions in units that a normal distribution around 0 does not reach
    beside: tuple[str, ...] = ()  # names of the images of an observation that has other numbers, too; else ()
    time_limit: int | None = None  # steps of the agent after which episodes are truncated; None: not known

    def __str__(self) -> str:
        return f"{CONTROL[self.control]}, {PLACE[self.where]}" + (f", {self.agents} agents" * (self.agents > 1))


class Cell(NamedTuple):
    """Row of the table of default settings: one setting, its value for each of COLUMNS, and the reason."""

    setting: str  # an option, STREAMS, ROWS or NOISE
    values: tuple[Any, ...]
    reason: str


TABLE = (
    Cell(
        STREAMS,
        (64, 64, 64, 8, 8, 8, 8),
        "num_envs times agents. Compiled environments cost little, and wide arrays use the processor well; each "
        "environment on the host costs Python time",
    ),
    Cell(
        "num_steps",
        (32, 64, 128, 256, 256, 128, 128),
        "rollout length. Few streams need long rollouts for a low-variance gradient; discrete tasks learn from many "
        "short iterations",
    ),
    Cell(
        "agent.num_epochs",
        (4, 10, 4, 10, 10, 10, 4),
        "Gaussian policies of small networks take more passes before the policy has moved too far. Where steps are "
        "expensive, each is used more often; large images on the host have the settings that are usual for Atari",
    ),
    Cell(
        ROWS,
        (256, 256, 1024, 64, 64, 64, 256),
        "rows of one gradient step; sets num_minibatches. Where steps are expensive, more gradient steps are taken "
        "from each of them",
    ),
    Cell(
        "agent.learning_rate",
        (1e-3, 3e-4, 2.5e-3, 3e-4, 3e-4, 3e-4, 2.5e-4),
        "larger with many rows in a gradient step, smaller with many epochs",
    ),
    Cell(
        "agent.schedule.part",
        ("linear",) * 7,
        "the learning rate falls to 0 over the run: the last updates change the policy little",
    ),
    Cell(
        "agent.normalize_obs",
        (True, True, False, True, True, False, False),
        "entries of a vector have different units; pixels share one. Where an observation has images and other "
        "numbers, all but the images are normalised (agent.normalization.skip)",
    ),
    Cell(
        "agent.normalize_reward",
        (True, True, False, True, True, False, False),
        "scales the critic's targets to about 1: unscaled returns of hundreds saturate small networks",
    ),
    Cell(
        GAMMA,
        (0.99,) * 7,
        "rewards of about 100 steps count. Where a time limit truncates episodes after T < 100 steps: 1 - 1/T, at "
        f"least {LEAST_GAMMA}. V counts rewards after the limit, too, which it can only estimate from itself: until "
        "that settles, states near the limit seem better or worse than they are",
    ),
    Cell(
        "agent.loss.clip_eps",
        (0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.1),
        "the Atari setting of the PPO paper for large images",
    ),
    Cell(
        "agent.ent_coef",
        (0.01, 0.0, 0.01, 0.01, 0.0, 0.01, 0.01),
        "keeps discrete policies from being deterministic early; a Gaussian explores by its standard deviation",
    ),
    Cell(
        NOISE,
        (None, 1.0, None, None, 1.0, None, None),
        "sets log_std_init: each of d actions has this divided by sqrt(d). One action explores its whole range; many "
        "with as much noise each would move the agent so wildly that it learns to stand still",
    ),
    Cell(
        "eval.deterministic",
        (True, True, False, True, True, False, False),
        "policies from images get stuck in loops when they take the mode",
    ),
)


# Options whose value depends on the environment, where it is not given
BY_ENVIRONMENT = frozenset(
    {PRESET, "num_envs", MINIBATCHES, LOG_STD, DISTRIBUTION, SKIP, GAMMA}
    | {cell.setting for cell in TABLE if len(set(cell.values)) > 1} - {STREAMS, ROWS, NOISE}
)


class Completed(NamedTuple):
    """Configuration completed with preset or default settings, and a line that tells the user which these are."""

    config: Config
    text: str = ""  # one line for the user; "" where nothing was added


def begun(given: Config) -> Config:
    """Return `given` completed with the options of a preset; options in `given` have priority.

    The preset is the one that `given` names, else the one with the name of its environment, if there is one. The result
    names it in the option `preset`. Without a preset, or with `preset = "none"`, only that option is added, as None.
    Raises ConfigError for an unknown preset.
    """
    name = given.get(PRESET, _named_as(given.get("env")))
    if name is None or name == NONE:
        return {**given, PRESET: None}
    if not isinstance(name, str):
        raise ConfigError(f"{PRESET} = {name!r}: must be the name of a preset, or {NONE!r}; `ppax presets` lists them")
    return overridden(preset(name), {**given, PRESET: name})


def _named_as(env: object) -> str | None:
    return env if isinstance(env, str) and env in presets() else None


def completed(given: Config, env: Env | None = None) -> Completed:
    """Return `given` completed with the settings of its preset, else the defaults for the kind of its environment.

    `env` is that environment, if it exists already. Options in `given` have priority; if it has every option, as the
    file of a recorded run, it is returned unchanged. Raises ConfigError for an unknown preset or environment or an
    invalid option, Untrusted for code that the user does not trust.
    """
    require_trusted_parts(given if env is None else {**given, "env": ""})
    whole = dict(flatten(resolve(given)))
    if whole.keys() <= dict(flatten(given)).keys():
        return Completed(given)
    started = begun(given)
    if started[PRESET] is not None:
        return Completed(started, _other_length(started))
    if env is not None:
        return _of_kind({**started, "num_envs": env.num_envs}, kind_of(env))
    with build_env(resolve({**started, "num_envs": 1})) as one:
        kind = kind_of(one)
    return _of_kind(started, kind)


class RecordedDefaults(NamedTuple):
    """Default settings that a recorded run started from, before its own options, and where these defaults come from."""

    config: Config  # by dotted path; options that it lacks have the defaults of their fields
    name: str  # of the preset, or of the kind of environment


def recorded_defaults(recorded: Config, plain: Config) -> RecordedDefaults:
    """Return the default settings that a recorded run started from: of its preset, or of the kind of its environment.

    `recorded` has every option of the run, `plain` the default of every option's field, both by dotted path. Without a
    preset, the environment is not made to find out its kind: the result is the candidate from which the fewest of the
    run's options differ, among the defaults of every kind and `plain`, from which runs of objects in Python
    (`ppax.PPO`, `ppax.fit`) start. One agent per environment, no short time limit, and actions with bounds near -1 and
    1 are assumed: of other environments the result lacks the lower gamma and the squashed distribution.
    """
    name = recorded.get(PRESET)
    if isinstance(name, str) and name in presets():
        own = dict(flatten(preset(str(name))))
        return RecordedDefaults(plain | {path: x for path, x in own.items() if path in recorded}, f"preset {name}")
    found = [RecordedDefaults(plain, "objects in Python (ppax.PPO, ppax.fit)")]
    for place, (where, control) in enumerate(COLUMNS):
        chosen = dict(flatten(PARTS_FOR_ALL)) | {cell.setting: cell.values[place] for cell in TABLE}
        streams, rows, noise = chosen.pop(STREAMS), chosen.pop(ROWS), chosen.pop(NOISE)
        chosen["num_envs"] = streams
        log_std = recorded.get(LOG_STD)
        if noise is not None and isinstance(log_std, float) and abs(log_std) < LARGEST_LOG_STD:
            actions = max(1, round(math.exp(-2.0 * log_std) * noise**2))
            chosen[LOG_STD] = round(math.log(noise / math.sqrt(actions)), 3) + 0.0
        sizes = {path: recorded.get(path, chosen[path]) for path in ("num_envs", "num_steps")}
        length = recorded.get("agent.seq_len", NONE)
        lengths = [*sizes.values(), *([] if length in (None, NONE) else [length])]
        usable = all(type(size) is int and 0 < size < 2**31 for size in lengths)  # the file may be a stranger's
        if usable and recorded.get("agent.minibatch.part", "shuffle") == "shuffle":
            given = {path: value for path, value in recorded.items() if value != NONE}
            chosen[MINIBATCHES] = num_minibatches({**given, **sizes}, 1, rows)
        if control in (SMALL, IMAGE) and recorded.get(SKIP):  # images beside numbers: their names are those of the run
            chosen |= {NORMALIZE_OBS: True, SKIP: recorded[SKIP]}
        chosen = {path: value for path, value in chosen.items() if path in recorded}
        found.append(RecordedDefaults(plain | chosen, f"{CONTROL[control]}, {PLACE[where]}"))
    return min(found, key=lambda one: sum(recorded.get(path, value) != value for path, value in one.config.items()))


def num_envs_for(given: Config, env: Env) -> int:
    """Return the number of parallel environments like `env` in the run that `given` describes.

    That is `num_envs` of `given` or of its preset, else the default for the kind of `env`.
    """
    started = begun(given)
    if "num_envs" not in started:
        started = _of_kind(started, kind_of(env)).config
    return int(started["num_envs"])


def _other_length(given: Config) -> str:
    """Return a warning if the run's `total_steps` are not those that its preset was tuned for; else an empty text."""
    tuned = preset(given[PRESET])["total_steps"]
    if given["total_steps"] == tuned:
        return ""
    return (
        f"preset {given[PRESET]} is tuned for {tuned:,} steps, this run has {given['total_steps']:,}; "
        f'{PRESET} = "{NONE}" (--{PRESET} {NONE}) takes the defaults by the kind of environment instead'
    )


def _of_kind(given: Config, kind: Kind) -> Completed:
    column = COLUMNS.index((kind.where, kind.control))
    chosen: Config = dict(flatten(PARTS_FOR_ALL)) | {cell.setting: cell.values[column] for cell in TABLE}
    chosen["num_envs"] = max(1, round(chosen.pop(STREAMS) / kind.agents))
    rows, noise, flat = chosen.pop(ROWS), chosen.pop(NOISE), dict(flatten(given))
    if kind.off_scale:
        chosen[DISTRIBUTION] = "squashed"
    of_limit = gamma_of_limit(kind.time_limit or math.inf)
    lowered = of_limit < chosen.pop(GAMMA)  # else gamma stays that of the agent's class, which is the table's
    if lowered:
        chosen[GAMMA] = of_limit
    if kind.beside and flat.get(NORMALIZE_OBS, True) and not any(path.startswith(NORMALIZATION) for path in flat):
        chosen |= {NORMALIZE_OBS: True, SKIP: list(kind.beside)}
    if noise is not None and kind.actions and flat.get(DISTRIBUTION, "normal") in NORMAL_FAMILIES:
        chosen[LOG_STD] = round(math.log(noise / math.sqrt(kind.actions)), 3) + 0.0  # no -0.0
    for slot, parts in choices_of(PPO).items():  # options of one part do not fit another
        place = f"agent.{slot}.part"
        if place in flat and flat[place] != chosen.get(place, next(iter(parts))):
            kept = OF_BOX if slot == "network" and flat[place] in parts else ()  # all networks of ppax have these
            chosen = {path: x for path, x in chosen.items() if path in kept or not path.startswith(f"agent.{slot}.")}
    merged = chosen | flat
    if flat.get("agent.minibatch.part", "shuffle") == "shuffle" and MINIBATCHES not in flat:
        merged[MINIBATCHES] = num_minibatches(merged, kind.agents, rows, kind.sizes)
    return Completed(unflatten(merged), _line(kind, merged, lowered and GAMMA not in flat))


def gamma_of_limit(limit: float) -> float:
    """Return the gamma whose horizon 1 / (1 - gamma) is a time limit of `limit` steps, at least 0.9."""
    return max(LEAST_GAMMA, round(1.0 - 1.0 / limit, 3))


def kind_of(env: Env) -> Kind:
    """Return the kind of an environment; with groups of players (agents inside it), the kind of the first group."""
    one: Any = next(iter(env.groups.values())) if env.sizes else env
    observed = list(entries(one.observation_space))
    images = tuple(entry.name for entry in observed if entry.image)
    large = any(is_large(entry.shape) for entry in observed if entry.image)
    numbers = any(math.prod(entry.shape) for entry in observed if not entry.image and not entry.categories)
    control = IMAGE if images else CONTINUOUS if has_box(one.action_space) else DISCRETE
    actions = 0 if env.sizes else box_size(env.action_space)
    units = control == CONTINUOUS and bool(needs_squashing(one.action_space))
    beside = images if numbers and not env.sizes else ()
    backend = backend_of(env)
    if control == IMAGE and backend.name == HOST and not large:
        control = SMALL
    return Kind(backend.name, control, env.num_agents, actions, env.sizes, units, beside, backend.time_limit)


def num_minibatches(config: Config, agents: int, rows: int, sizes: Sequence[tuple[str, int]] = ()) -> int:
    """Return a number of minibatches with which a minibatch has about `rows` rows.

    With groups of players (agents inside an environment), this is a minibatch of the largest group. A row is one step
    of one player in one environment. The number divides the number of sequences in a rollout, of every group. `agents`
    is the number of players in an environment, `sizes` are name and number of players of each group, () without groups.
    `config` has options by dotted path.
    """
    groups = dict(sizes) or {"": agents}
    lengths = {name: _sequence_length(config, name) for name in groups}
    streams = {name: config["num_envs"] * size for name, size in groups.items()}
    # 0 where a sequence is longer than the rollout, which is refused when the agent is checked
    sequences = math.gcd(*(streams[name] * config["num_steps"] // lengths[name] for name in groups)) or 1
    wanted = max(
        1.0, max(streams[name] * config["num_steps"] // lengths[name] * lengths[name] for name in groups) / rows
    )
    # divisors come in pairs; beyond LARGEST_DIVISOR no run fits into memory
    small = [parts for parts in range(1, min(math.isqrt(sequences), LARGEST_DIVISOR) + 1) if sequences % parts == 0]
    divisors = sorted({*small, *(sequences // parts for parts in small)})
    return min(divisors, key=lambda parts: abs(math.log(parts / wanted)))


def _sequence_length(config: Config, group: str) -> int:
    """Return the length, in steps, of the sequences on which a group's agent trains; `group` is "" without groups.

    `config` has options by dotted path; an option in the group's table overrides that of the run.
    """

    def option(name: str, default: Any = None) -> Any:
        return config.get(f"groups.{group}.agent.{name}", config.get(f"agent.{name}", default))

    memories = [str(option(f"network.{tower}memory.part", "none")) for tower in ("", "actor.", "critic.")]
    whole = any(memory not in ("none", "same") for memory in memories) or option("recompute.part") == "minibatch"
    length = option("seq_len")
    return int((None if length == NONE else length) or (config["num_steps"] if whole else 1))


def _line(kind: Kind, config: Config, lowered: bool) -> str:
    """Return a line for the user: the kind of environment, and the main settings that a run gets by its defaults.

    These are num_envs, num_steps, num_epochs, whether observations and rewards are normalised, and gamma if it is
    `lowered` by a time limit.
    """
    normalised = [name for name in ("obs", "reward") if config.get(f"agent.normalize_{name}")]
    without = " but images" if kind.beside and config.get(SKIP) == list(kind.beside) else ""
    words = {"obs": f"observations{without}", "reward": "rewards"}
    scaled = f", {' and '.join(words[name] for name in normalised)} normalised" if normalised else ""
    sizes = f"{config['num_envs']} environments, {config['num_steps']} steps, {config['agent.num_epochs']} epochs"
    shorter = f", gamma {config[GAMMA]:g} (time limit {kind.time_limit})" if lowered else ""
    return f'{kind}: {sizes}{scaled}{shorter} (defaults of this kind, page "Which settings do I get?")'
