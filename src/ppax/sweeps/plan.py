"""Plan of a sweep: the table `[sweep]` of a run file, its distributions, and the members (runs) that follow from it."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from ppax import config
from ppax.config import SEARCH, SWEEP, Built
from ppax.core import imports
from ppax.core.options import LARGEST, NONE, Config, Option, check_value, flatten, plain_data, unflatten
from ppax.core.protocols import Search
from ppax.core.types import ConfigError
from ppax.run import python_objects
from ppax.sweeps import search as searches
from ppax.sweeps.search import Grid, Optuna

Target = str | Path | Config | Built
OWN = ("seeds", "draws", "draw_seed", SEARCH)  # keys of the table that are no options of the run
MOST = 10_000  # most members of a sweep
SEED = Option("seed", int, limits={"low": 0, "high": 2**64 - 1})
DRAWS = Option("sweep.draws", int, optional=True, limits={"low": 1, "high": MOST})
DRAW_SEED = Option("sweep.draw_seed", int, limits={"low": 0})
NUMBER = Option("sweep.seeds", int, limits={"low": 1, "high": MOST})
SEED_RANGE = re.compile(r"(\d{1,20})\s*-\s*(\d{1,20})")
DIGITS = 6  # significant digits of a drawn number, so that run files and tables can be read


@dataclasses.dataclass(frozen=True)
class Uniform:
    """Uniform distribution over the numbers between `low` and `high`."""

    low: float
    high: float

    def draw(self, generator: Generator) -> float:
        """Return one value, drawn with `generator`."""
        return rounded(self.low + (self.high - self.low) * generator.random())


@dataclasses.dataclass(frozen=True)
class LogUniform:
    """Distribution of a number between `low` and `high`, both above 0, whose logarithm is uniform."""

    low: float
    high: float

    def draw(self, generator: Generator) -> float:
        """Return one value, drawn with `generator`."""
        share = generator.random()
        return rounded(math.exp((1.0 - share) * math.log(self.low) + share * math.log(self.high)))


@dataclasses.dataclass(frozen=True)
class Normal:
    """Normal distribution with `mean` and standard deviation `std`."""

    mean: float
    std: float

    def draw(self, generator: Generator) -> float:
        """Return one value, drawn with `generator`."""
        return rounded(self.mean + self.std * generator.standard_normal())


@dataclasses.dataclass(frozen=True)
class Integers:
    """Uniform distribution over the whole numbers from `low` to `high`, both included."""

    low: int
    high: int

    def draw(self, generator: Generator) -> int:
        """Return one value, drawn with `generator`."""
        return int(self.low + math.floor((self.high - self.low + 1) * generator.random()))


@dataclasses.dataclass(frozen=True)
class Choice:
    """Distribution over `values`, all equally likely."""

    values: tuple[Any, ...]

    def draw(self, generator: Generator) -> Any:
        """Return one of the values, drawn with `generator`."""
        return self.values[math.floor(len(self.values) * generator.random())]


Distribution = Uniform | LogUniform | Normal | Integers | Choice
DISTRIBUTIONS: dict[str, type[Distribution]] = {
    "uniform": Uniform,
    "log_uniform": LogUniform,
    "normal": Normal,
    "integers": Integers,
    "choice": Choice,
}


def distribution_of(table: Mapping[str, Any], path: str) -> Distribution:
    """Return the distribution that a table of a run file describes; ConfigError where it is invalid.

    `path` is the dotted path of the swept option, for the error message.
    """
    name = table.get("part")
    if name not in DISTRIBUTIONS:
        likely = difflib.get_close_matches(str(name), DISTRIBUTIONS, n=1, cutoff=0.0)[0]
        raise ConfigError(
            f"sweep: {path}.part = {name!r}: must be one of {', '.join(DISTRIBUTIONS)}; did you mean {likely!r}?"
        )
    fields = [field.name for field in dataclasses.fields(DISTRIBUTIONS[name])]
    given = {key: value for key, value in table.items() if key != "part"}
    if sorted(given) != sorted(fields):
        raise ConfigError(f"sweep: {path} = {dict(table)!r}: {name} has {' and '.join(fields)}, and nothing else")
    return checked_distribution(DISTRIBUTIONS[name](**given), path)


def checked_distribution(distribution: Distribution, path: str) -> Distribution:
    """Return `distribution` with Python's numbers, and a tuple as the values of a Choice; ConfigError if it is invalid.

    None among the values of a Choice becomes the text "none", as in a run file. `path` is the dotted path of the swept
    option, for the error message.
    """
    if isinstance(distribution, Choice):
        given = _listed(distribution.values)
        if not given:
            raise ConfigError(f"sweep: {path}.values = {distribution.values!r}: must be a list of at least one value")
        return Choice(given)
    values = {field.name: plain_data(getattr(distribution, field.name)) for field in dataclasses.fields(distribution)}
    distribution = type(distribution)(**values)
    kinds = int if isinstance(distribution, Integers) else int | float
    for name, value in values.items():
        if not isinstance(value, kinds) or isinstance(value, bool) or not abs(value) <= LARGEST:  # NaN, too
            word = "a whole number" if kinds is int else "a number"
            raise ConfigError(f"sweep: {path}.{name} = {value!r}: must be {word} of at most {LARGEST:.2g} in size")
    if isinstance(distribution, LogUniform) and distribution.low <= 0.0:
        raise ConfigError(f"sweep: {path}.low = {distribution.low}: must be above 0, for its logarithm is drawn")
    if isinstance(distribution, Normal):
        if distribution.std < 0.0:
            raise ConfigError(f"sweep: {path}.std = {distribution.std}: must be at least 0; nearest valid value: 0")
    elif distribution.low > distribution.high:
        raise ConfigError(
            f"sweep: {path}.low = {distribution.low}: must be at most {path}.high = {distribution.high}; nearest "
            f"valid value: {distribution.high}"
        )
    return distribution


def to_table(distribution: Distribution) -> dict[str, Any]:
    """Return the table of a run file that describes the distribution; `distribution_of` returns an equal one for it."""
    name = next(name for name, cls in DISTRIBUTIONS.items() if type(distribution) is cls)
    fields = dataclasses.asdict(distribution)
    return {"part": name} | {key: list(x) if isinstance(x, tuple) else x for key, x in fields.items()}


def rounded(value: float) -> float:
    """Return `value` rounded to six significant digits."""
    return float(f"{value:.{DIGITS}g}")


class Plan(NamedTuple):
    """Plan of a sweep: what the tables `[sweep]` and `[search]` of its run file say.

    `values` are the lists or distributions of the swept options by dotted path, `seeds` a number of seeds or the seeds,
    and `draws` the number of joint draws of all distributions, with the random seed `draw_seed`.
    """

    values: Mapping[str, tuple[Any, ...] | Distribution] = {}  # of options, by dotted path
    seeds: int | tuple[int, ...] = 1
    draws: int | None = None
    draw_seed: int = 0  # of the generator that draws values
    search: Search = Grid()

    def to_tables(self) -> Config:
        """Return the plan's tables `sweep` and `search` by name; without `search` if that is the default search."""
        search = {} if self.search == Grid() else {SEARCH: searches.to_table(self.search)}
        return {SWEEP: self.to_table()} | search

    def to_table(self) -> Config:
        """Return the plan's table `[sweep]` as data of a run file, with "none" in place of None."""
        seeds = list(self.seeds) if isinstance(self.seeds, tuple) else self.seeds
        own: Config = {"seeds": seeds, "draw_seed": self.draw_seed}
        own |= {} if self.draws is None else {"draws": self.draws}
        for path, x in self.values.items():
            if isinstance(x, tuple):
                own[path] = [NONE if one is None else one for one in x]
            else:
                own[path] = to_table(x)
        return own


class Member(NamedTuple):
    """Member of a sweep: one run, with its number, setting, swept values, seed and configuration.

    A setting is a combination of swept values; members of one setting differ in their seeds.
    """

    number: int
    setting: int  # members of one setting differ in their seeds
    values: Config  # of the swept options, by dotted path
    seed: int
    config: Config  # resolved


def config_of(target: Target) -> Config:
    """Return the configuration of a sweep's target; it may have the table `[sweep]`.

    The target is the name of an environment or preset, the path of a run file or run directory, a configuration, or the
    result of `ppax.build`. Raises ConfigError if that result has objects that no configuration can hold.
    """
    if isinstance(target, Built):
        described = config.describe_run(*target)
        objects = python_objects.objects(target.agent, target.env, described)
        if objects:
            raise ConfigError(
                f"sweep: members are built from a configuration, which cannot hold {', '.join(objects)}; name them by "
                "classes and functions of a module that can be imported, with numbers, texts and lists of them as "
                "arguments, or sweep objects with ppax.start_sweep and ppax.sweep"
            )
        return described
    return dict(target) if isinstance(target, Mapping) else config.find(str(target))


def split_sweep(run_config: Config) -> tuple[Config, Config]:
    """Return a run file without its tables `[sweep]` and `[search]`, and the table `[sweep]`.

    The returned table `[sweep]` has the table `[search]` as its entry "search", if the file has one.
    """
    table = run_config.get(SWEEP, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{SWEEP} = {table!r}: must be a table, [{SWEEP}]")
    own = {SEARCH: searches.checked_search(run_config[SEARCH])} if SEARCH in run_config else {}
    return {name: value for name, value in run_config.items() if name not in (SWEEP, SEARCH)}, table | own


def read(table: Mapping[str, Any]) -> Plan:
    """Return the plan of a sweep from its table `[sweep]`, to which the search is added as the entry "search".

    That entry is the table `[search]` of the run file, or a search as a Python object, such as `ppax.sweeps.Halving()`;
    without it members train without a search. Raises ConfigError for a swept option without a list or distribution, and
    for values out of range; Untrusted for a database in the table `[search]` that the user does not trust.
    """
    values = dict(_values({name: value for name, value in table.items() if name not in OWN}))
    if "seed" in values:
        raise ConfigError(f"sweep.seed: write {SWEEP}.seeds, a number of seeds or a list of them")
    if config.PRESET in values:
        raise ConfigError(f"sweep.{config.PRESET}: all members begin from one preset; sweep its options instead")
    seeds = table.get("seeds", 1)
    seeds = seeds.tolist() if hasattr(seeds, "tolist") else seeds
    seeds = [seeds] if isinstance(seeds, str) else seeds
    seeds = tuple(_seeds(_listed(seeds))) if isinstance(seeds, list | tuple | range) else check_value(NUMBER, seeds)
    search = table.get(SEARCH, {})
    of_file = isinstance(search, dict | str)
    search = searches.read(search) if of_file else searches.build(searches.to_table(search))
    draws, drawn = check_value(DRAWS, table.get("draws")), [p for p, x in values.items() if not isinstance(x, tuple)]
    if search != Grid() and "env" in values:
        raise ConfigError(
            "sweep.env: a search compares returns, which different environments do not allow; sweep environments "
            f"without [{SEARCH}], or begin a sweep for each"
        )
    if isinstance(search, Optuna):
        _require_space(values, draws)
    elif drawn and draws is None:
        raise ConfigError(f"sweep.draws is missing: the number of draws of {', '.join(drawn)}, as {SWEEP}.draws = 16")
    elif draws is not None and not drawn:
        raise ConfigError(
            f"sweep.draws = {draws}: no option has a distribution; leave it out, or draw from one, as "
            '"agent.learning_rate" = { part = "log_uniform", low = 1e-5, high = 1e-2 }'
        )
    draw_seed = check_value(DRAW_SEED, table.get("draw_seed", 0))
    if draw_seed and draws is None:
        raise ConfigError(
            f"sweep.draw_seed = {draw_seed}: nothing is drawn with {SWEEP}.draws; leave it out"
            + (f", or write {SEARCH}.seed = {draw_seed}" if isinstance(search, Optuna) else "")
        )
    return Plan(values, seeds, draws, draw_seed, search)


def _require_space(values: Mapping[str, Any], draws: int | None) -> None:
    """Raise ConfigError where a study of Optuna cannot propose values for the swept options.

    These are the cases that no option is swept, that one has a normal distribution, or that `draws` (a number of draws)
    is set.
    """
    if draws is not None:
        raise ConfigError(f"sweep.draws = {draws}: a study proposes its settings; write {SEARCH}.trials = {draws}")
    if not values:
        raise ConfigError(
            'sweep: a study has nothing to propose; "agent.learning_rate" = { part = "log_uniform", ... }'
        )
    for path, swept in values.items():
        if isinstance(swept, Normal):
            raise ConfigError(
                f"sweep: {path}.part = 'normal': Optuna has uniform, log_uniform, integers and choice; nearest: "
                f"uniform from {swept.mean - 2 * swept.std:g} to {swept.mean + 2 * swept.std:g}"
            )


def members_of(run_config: Config, plan: Plan) -> tuple[Member, ...]:
    """Return the members (runs) of a sweep; members of one setting, which differ in their seeds, follow each other.

    A setting is a combination of swept values. For a study of Optuna, whose settings are not known yet, the result has
    the members of one setting that it might propose. Raises ConfigError for invalid options.
    """
    seeds = seeds_of(run_config, plan)
    settings = (
        [{p: _first(x) for p, x in plan.values.items()}] if isinstance(plan.search, Optuna) else list(_settings(plan))
    )
    if len(settings) * len(seeds) > MOST:
        raise ConfigError(
            f"sweep: {len(settings):,} settings of {len(seeds)} seeds are {len(settings) * len(seeds):,} members: must "
            f"be at most {MOST:,}; shorten a list, or draw settings with {SWEEP}.draws"
        )
    pairs = itertools.product(enumerate(settings), seeds)
    return tuple(
        member(run_config, number, place, values, seed) for number, ((place, values), seed) in enumerate(pairs)
    )


def seeds_of(run_config: Config, plan: Plan) -> tuple[int, ...]:
    """Return the seeds with which every setting of a sweep is trained: those of the plan, if it has a list of them.

    If the plan has a number of seeds, they are consecutive, beginning with the seed of the run.
    """
    first = config.resolve(run_config)["seed"]
    return plan.seeds if isinstance(plan.seeds, tuple) else tuple(range(first, first + plan.seeds))


def member(run_config: Config, number: int, setting: int, values: Config, seed: int) -> Member:
    """Return the member (run) `number` of a sweep, with these swept values and seed; ConfigError if invalid.

    `setting` is the number of the combination of values, which all members with these values share.
    """
    try:
        flat = dict(flatten(run_config)).items()
        ranges = tuple(f"{path}." for path in values if config.is_free(path))  # of the run, which a value replaces
        base = unflatten({path: value for path, value in flat if not path.startswith(ranges)})
        own = config.overridden(base, unflatten(values | {"seed": check_value(SEED, seed)}))
        return Member(number, setting, values, seed, config.resolve(own))
    except imports.Untrusted:
        raise
    except ConfigError as error:
        raise ConfigError(
            f"sweep, member {number} ({described_values(values) or f'seed = {seed}'}): {error}"
        ) from error


def described_values(values: Mapping[str, Any]) -> str:
    """Return swept values, by dotted path, as text: "agent.learning_rate = 0.0003, num_envs = 16"; "" for none."""
    return ", ".join(f"{path} = {shown(value)}" for path, value in values.items())


def shown(value: Any) -> str:
    """Return a value as short text: numbers with six significant digits, lists and tables as JSON."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value)


def _values(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, tuple[Any, ...] | Distribution]]:
    """Yield dotted path and values (a tuple or a distribution) of each swept option in a table `[sweep]`.

    `table` may be nested, as TOML's dotted keys make it; `prefix` is the path of a nested table. Raises ConfigError for
    an option with neither a list nor a distribution.
    """
    for name, value in table.items():
        path = prefix + name
        if isinstance(value, Distribution):
            yield path, checked_distribution(value, path)
        elif isinstance(value, Mapping) and isinstance(value.get("part"), str):
            yield path, distribution_of(value, path)
        elif isinstance(value, Mapping) and value:
            yield from _values(value, f"{path}.")
        elif values := _listed(value):
            if any(x in values[:place] for place, x in enumerate(values)):
                raise ConfigError(f"sweep: {path} = {list(values)}: values must differ; sweep.seeds repeats a setting")
            yield path, values
        else:
            raise ConfigError(
                f"sweep: {path} = {value!r}: must be a list of values, or a distribution, as "
                '{ part = "log_uniform", low = 1e-5, high = 1e-2 }; an option with one value stands outside [sweep]'
            )


def _listed(given: Any) -> tuple[Any, ...]:
    """Return the values of a list, tuple, range or array as those of a run file: "none" for None, Python's numbers.

    The result is () for anything else, and for an empty one.
    """
    given = plain_data(given)
    if not isinstance(given, list | tuple | range):
        return ()
    return tuple(NONE if x is None else x for x in given)


def _seeds(seeds: Sequence[Any]) -> Iterator[int]:
    own = [seed for given in seeds for seed in (_seed_range(given) if isinstance(given, str) else (given,))]
    checked = [check_value(SEED._replace(path="sweep.seeds"), seed) for seed in own]
    if not checked or len(set(checked)) < len(checked):
        raise ConfigError(f"sweep.seeds = {list(seeds)!r}: must be a number, or a list of different seeds")
    yield from checked


def _seed_range(text: str) -> range:
    """Return the seeds of a range as "1000-1009", both ends included; ConfigError for other text.

    The error suggests a valid range: from the smallest to the largest number in the text, or "0-9" if it has fewer than
    two.
    """
    found = SEED_RANGE.fullmatch(text.strip())
    first, last = (int(found[1]), int(found[2])) if found else (0, -1)
    if first <= last < 2**64 and last - first < MOST:
        return range(first, last + 1)
    numbers = sorted(map(int, re.findall(r"\d{1,19}", text)))
    near = f"{numbers[0]}-{min(numbers[-1], numbers[0] + MOST - 1)}" if len(numbers) > 1 else "0-9"
    raise ConfigError(
        f"sweep.seeds = {text!r}: must be a number of seeds, a list of them, or a range from the first to the last, "
        f"of at most {MOST:,}; nearest: {near}"
    )


def _settings(plan: Plan) -> Iterator[Config]:
    """Yield the swept values of each setting of a sweep: each combination of the lists' values, with each joint draw.

    A joint draw gives every option with a distribution a value.
    """
    lists = {path: x for path, x in plan.values.items() if isinstance(x, tuple)}
    drawn = [
        {path: _drawn(x, path, draw, plan.draw_seed) for path, x in plan.values.items() if not isinstance(x, tuple)}
        for draw in range(plan.draws or 1)
    ]
    for combination in itertools.product(*lists.values()):
        for draw in drawn:
            yield dict(zip(lists, combination, strict=True)) | draw


def _first(swept: tuple[Any, ...] | Distribution) -> Any:
    """Return an example of the values of a swept option: the first of a list, or a fixed draw of a distribution.

    With examples, members of a study of Optuna can be checked before the study proposes their settings.
    """
    return swept[0] if isinstance(swept, tuple) else swept.draw(np.random.default_rng(0))


def _drawn(distribution: Distribution, path: str, draw: int, seed: int) -> Any:
    """Return the value of draw number `draw` from the distribution of the option at `path`.

    `seed` is the random seed of all draws of the sweep. The value depends neither on other swept options nor on the
    number of draws.
    """
    return distribution.draw(np.random.default_rng([seed, zlib.crc32(path.encode()), draw]))
