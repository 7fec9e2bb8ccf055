"""Score by the protocol, in Python: `ppax.score`. Rows that are measured already are not measured again.

Presets are tuned on seeds 0 to 99; published scores have seeds from 1000 on, which no tuning has seen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from ppax import config
from ppax.agents.precision import decided, here
from ppax.core.names import refusing_unknown
from ppax.core.options import Config, check_limits
from ppax.core.types import ConfigError
from ppax.core.version import __version__
from ppax.devices.layout import WHERE_SAFE
from ppax.run.origin import versions_and_hardware
from ppax.scores.machine import processor
from ppax.scores.results import Score, fingerprint, with_members
from ppax.scores.suite import Row, choose
from ppax.scores.training import members_of
from ppax.training.backends import backend_of

TUNING_SEEDS, SCORE_SEEDS = range(100), range(1000, 2000)
SEEDS = {"compiled": 5, "host": 3}  # number of seeds by backend
EPISODES = 128
DTYPE = "compute_dtype"  # entry of a result: what compute_dtype `auto` stood for


@refusing_unknown
def score(
    target: str,
    seeds: int | Sequence[int] | None = None,
    episodes: int = EPISODES,
    options: Config | None = None,
) -> Score:
    """Train an environment or a preset on several seeds and return the score of its final policies.

    `target` is what `ppax train` takes, or a row of the suite, as "L12-20"; an environment of the suite has the budget
    and the threshold of its first row. `seeds` is a number of seeds from SCORE_SEEDS (default: 5, in one program; 3
    where environments are on the host) or the seeds themselves, for tuning those below 100. `options` override the
    settings, as in `ppax.build`. Raises ConfigError for an unknown name or an invalid value.
    """
    (row,) = choose([target])
    row = dataclasses.replace(row, options=config.overridden(row.options, options or {}))
    return measure(row, seeds, episodes)


def measure(
    row: Row,
    seeds: int | Sequence[int] | None = None,
    episodes: int = EPISODES,
    known: Score | None = None,
    keep: Callable[[Score], None] = lambda score: None,
    say: Callable[[str], None] = lambda text: None,
) -> Score:
    """Measure a row; seeds that `known`, an earlier result with the same settings, has are taken from there.

    `keep` is called with the result so far whenever seeds are done, `say` before seeds are trained.
    """
    check_limits("episodes", episodes, {"low": 1})
    mark = fingerprint(row, episodes, __version__)
    if known is None or known.fingerprint != mark:
        known = None
    elif not _missing(seeds_of(seeds, known.backend), known):
        keep(known)  # with the row's present threshold
        return _of_seeds(known, seeds_of(seeds, known.backend))
    built = config.build(row.run_config())
    backend = backend_of(built.env).name
    wanted = seeds_of(seeds, backend)
    missing = _missing(wanted, known)
    # all seeds of a row in one precision: that of the first, also where others are added on another machine
    dtype = known.about.get(DTYPE) if known else None
    if dtype not in ("float32", WHERE_SAFE):
        dtype = here() if backend == "compiled" else "float32"
    built = built._replace(agent=decided(built.agent, dtype))
    about = {"ppax": __version__, "processor": processor(), DTYPE: dtype, **versions_and_hardware()}
    result = Score(row, built.run.env, backend, episodes, known.members if known else (), about, mark)
    how = "in one program" if backend == "compiled" else "one after the other"
    say(f"{row.name}: {row.target}, {built.run.total_steps:,} steps, {len(missing)} seeds {how}")
    for more in members_of(backend, built, missing, episodes, row.sampled):
        result = dataclasses.replace(result, members=with_members(result.members, more))
        keep(result)
    return _of_seeds(result, wanted)


def _missing(seeds: Sequence[int], known: Score | None) -> list[int]:
    """Seeds that a result does not have yet."""
    return [seed for seed in seeds if known is None or seed not in known.seeds]


def _of_seeds(result: Score, seeds: Sequence[int]) -> Score:
    """Result without the seeds that were not asked for."""
    kept = tuple(member for member in result.members if member.seed in seeds)
    return dataclasses.replace(result, members=kept)


def seeds_of(seeds: int | Sequence[int] | None, backend: str) -> tuple[int, ...]:
    """Return the seeds of a row: given, the first of SCORE_SEEDS in number, or as many as the backend's rows have."""
    if seeds is None or isinstance(seeds, int):
        count = SEEDS[backend] if seeds is None else seeds
        check_limits("seeds", count, {"low": 1, "high": len(SCORE_SEEDS)})
        return tuple(SCORE_SEEDS[:count])
    if not seeds or len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds = {list(seeds)}: must be at least one, and all different")
    return tuple(sorted(seeds))
