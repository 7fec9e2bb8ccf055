"""Distributions from which a sweep draws values of options: `{ part = "log_uniform", low = 1e-5, high = 1e-2 }`."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping
from typing import Any

from numpy.random import Generator

from ppax.core.options import LARGEST
from ppax.core.types import ConfigError

DIGITS = 6  # significant digits of a drawn number, so that run files and tables can be read


@dataclasses.dataclass(frozen=True)
class Uniform:
    """Number between `low` and `high`."""

    low: float
    high: float

    def draw(self, generator: Generator) -> float:
        """Draw one value."""
        return rounded(self.low + (self.high - self.low) * generator.random())


@dataclasses.dataclass(frozen=True)
class LogUniform:
    """Number between `low` and `high`, both above 0, whose logarithm is uniform."""

    low: float
    high: float

    def draw(self, generator: Generator) -> float:
        """Draw one value."""
        share = generator.random()
        return rounded(math.exp((1.0 - share) * math.log(self.low) + share * math.log(self.high)))


@dataclasses.dataclass(frozen=True)
class Normal:
    """Normal distribution."""

    mean: float
    std: float

    def draw(self, generator: Generator) -> float:
        """Draw one value."""
        return rounded(self.mean + self.std * generator.standard_normal())


@dataclasses.dataclass(frozen=True)
class Integers:
    """Whole number from `low` to `high`, both included."""

    low: int
    high: int

    def draw(self, generator: Generator) -> int:
        """Draw one value."""
        return int(self.low + math.floor((self.high - self.low + 1) * generator.random()))


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of `values`, all equally likely."""

    values: tuple[Any, ...]

    def draw(self, generator: Generator) -> Any:
        """Draw one value."""
        return self.values[math.floor(len(self.values) * generator.random())]


Distribution = Uniform | LogUniform | Normal | Integers | Choice
DISTRIBUTIONS: dict[str, type[Distribution]] = {
    "uniform": Uniform,
    "log_uniform": LogUniform,
    "normal": Normal,
    "integers": Integers,
    "choice": Choice,
}


def named(table: Mapping[str, Any], path: str) -> Distribution:
    """Return the distribution of a table of a run file, for the option at `path`; ConfigError where it is invalid."""
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
    return checked(DISTRIBUTIONS[name](**given), path)


def checked(distribution: Distribution, path: str) -> Distribution:
    """Return the distribution with a tuple in the place of a list; ConfigError for numbers that it cannot have."""
    values = {field.name: getattr(distribution, field.name) for field in dataclasses.fields(distribution)}
    if isinstance(distribution, Choice):
        if not isinstance(distribution.values, list | tuple) or not distribution.values:
            raise ConfigError(f"sweep: {path}.values = {distribution.values!r}: must be a list of at least one value")
        return Choice(tuple(distribution.values))
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
    """Return the table of a distribution: the inverse of `named`."""
    name = next(name for name, cls in DISTRIBUTIONS.items() if type(distribution) is cls)
    fields = dataclasses.asdict(distribution)
    return {"part": name} | {key: list(x) if isinstance(x, tuple) else x for key, x in fields.items()}


def rounded(value: float) -> float:
    """Return a number with DIGITS significant digits."""
    return float(f"{value:.{DIGITS}g}")
