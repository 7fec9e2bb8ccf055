"""Reports of recorded runs as an HTML file with a film, and the comparison of runs."""

from __future__ import annotations

import collections
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ppax.core.options import check_limits
from ppax.core.types import ConfigError
from ppax.reports import comparison
from ppax.reports.comparison import Comparison, long_table
from ppax.reports.curves import CONFIDENCE, checked_band
from ppax.reports.page import EpisodeFilm, page
from ppax.reports.settings import NOTES
from ppax.run import records
from ppax.run.films import RenderedEpisodes, play, require_video, returns_text, write_video
from ppax.run.records import Record
from ppax.run.restore import load_run, load_state
from ppax.run.result import TrainedRun
from ppax.storage import safe_files
from ppax.storage.paths import require_place, to_path
from ppax.training.loop import make_key

if TYPE_CHECKING:
    from pandas import DataFrame


RunLike = str | Path | TrainedRun  # run directory, or result of `fit`
FINAL_SCORE, TRAINING_SCORE = SCORES = ("final", "training")  # of `compare`: final return, or mean over training


class Written(NamedTuple):
    """Result of writing a report: its file, and the error that prevented the film of an episode, or None."""

    path: Path
    error: Exception | None


def report(
    runs: RunLike | Sequence[RunLike],
    path: str | Path | None = None,
    video: bool = True,
    band: str = CONFIDENCE,
) -> Path:
    """Write the report of one run or several as one HTML file, which loads nothing from the network; return its path.

    `runs` are run directories, directories of sweeps (all their members) or results of `fit`; a run may still be going
    on. `path` None is report.html in the directory of a single run or sweep, and for several ones in the working
    directory. Runs that differ by their seed alone are one setting with one curve: the interquartile mean of the
    returns with its 95 % bootstrap interval, or with `band="range"` their mean with their whole range. With any `band`,
    settings are ranked by the interquartile mean of their final returns. With `video`, an episode of the run with the
    highest return is rendered, where environment and checkpoint allow it. Raises ConfigError for a directory without a
    run.
    """
    return write_report(runs, path, video, band).path


def write_report(
    runs: RunLike | Sequence[RunLike], path: str | Path | None, video: bool = True, band: str = CONFIDENCE
) -> Written:
    """Write the report as `report` does; return its path, and the error because of which it has no film, or None."""
    runs = [runs] if isinstance(runs, str | Path | TrainedRun) else list(runs)  # also of a generator, once
    path, given = _place(runs) if path is None else to_path(path, "path"), _listed(runs)
    require_place(path, REPORT)
    checked_band(band)
    found = records_of(given)
    film, error = None, None
    if video:
        best = int(np.argmax(np.nan_to_num([record.final_return for record in found], nan=-np.inf)))
        film, error = film_of(given[best], found[best].name)
    text = page(found, film, time.strftime("%Y-%m-%d %H:%M"), band, given_twice(runs))
    safe_files.write(path, text.encode(errors="replace"))
    return Written(path, error)


REPORT = "report.html"


def _place(runs: RunLike | Sequence[RunLike]) -> Path:
    """Return the default path of the report: in the directory of a single run or sweep, else the working directory."""
    given = [runs] if isinstance(runs, str | Path | TrainedRun) else list(runs)
    if len(given) != 1:
        return Path(REPORT)
    folder = given[0].run_dir if isinstance(given[0], TrainedRun) else to_path(given[0], "run")
    return Path(REPORT) if folder is None or not folder.is_dir() else folder / REPORT


def compare(
    runs: RunLike | Sequence[RunLike], by: str | None = None, *, baseline: str | None = None, score: str = FINAL_SCORE
) -> Comparison:
    """Return the comparison of runs: options in which they differ, evaluation, last return, steps, time, and a ranking.

    `runs` are as in `report`. `print` shows the comparison as a table, the best run first. Runs that differ by their
    seed only are one setting. `differences` compares the best setting with each of the others: by the difference in the
    IQM of final returns, and by the probability that a seed of the best setting scores higher than one of the other,
    both with 95 % bootstrap intervals. `notes` says in sentences what was not counted or cannot be compared.

    With `by`, the name of an option, each of its values is compared with the value `baseline` (as text); None: with the
    value in the best setting. `differences` then has an entry for each combination of the other options with which runs
    of both values exist, and an entry that compares the best setting of one value with that of the other. Two settings
    with the same seeds are compared seed by seed. With `score` "training", mean returns over training (the area under
    the learning curve divided by its steps) are compared in place of final returns. Raises ConfigError for an unknown
    option, value or score.
    """
    runs = [runs] if isinstance(runs, str | Path | TrainedRun) else list(runs)  # also of a generator, once
    return comparison.of_records(records_of(runs, score), given_twice(runs), by, baseline)


def frame(runs: RunLike | Sequence[RunLike]) -> DataFrame:
    """Return the log rows of runs as one pandas DataFrame, with a row for each log row of each run.

    `runs` are as in `report`; the directory of a sweep stands for all its members. Columns: run, env, setting, seed,
    each option in which the runs differ, and every metric, as `ppax compare --csv` writes them. Raises ConfigError for
    a directory without a run, ImportError without pandas.
    """
    try:
        import pandas
    except ImportError as error:
        raise ImportError('ppax.frame needs pandas: pip install "ppax[pandas]"') from error
    return pandas.DataFrame(long_table(records_of(runs)))


def records_of(runs: RunLike | Sequence[RunLike], score: str = FINAL_SCORE) -> list[Record]:
    """Return a Record for each run: its options, log rows and final evaluation, and how it ended.

    `runs` are as in `report`; the directory of a sweep stands for all its members. The score of a Record is the run's
    final return if `score` is "final", and its mean return over training if it is "training".
    """
    check_limits("score", score, {"choices": SCORES})
    found = [
        run.record() if isinstance(run, TrainedRun) else records.read(to_path(run, "run")) for run in _listed(runs)
    ]
    return [record._replace(over_training=score != FINAL_SCORE) for record in found]


def _listed(runs: RunLike | Sequence[RunLike]) -> list[RunLike]:
    """Return the runs as a list without repetitions, in which a sweep's directory is replaced by its members (runs).

    Raises ConfigError if there are none.
    """
    first: dict[str, RunLike] = {}
    for run in _all(runs):
        first.setdefault(_identity(run), run)
    return list(first.values())


def given_twice(runs: RunLike | Sequence[RunLike]) -> list[str]:
    """Return a sentence on runs that are given more than once; [] if there are none."""
    count = collections.Counter(map(_identity, _all(runs)))
    twice = [name for name, times in count.items() if times > 1]
    if not twice:
        return []
    more = f" and {len(twice) - NOTES} more" if len(twice) > NOTES else ""
    verb = "was" if len(twice) == 1 else "were"
    return [
        f"{', '.join(Path(name).name for name in twice[:NOTES])}{more} {verb} given more than once and counted once."
    ]


def _identity(run: RunLike) -> str:
    """Return a text that is equal for the same run: its directory, or the identity of its result in memory."""
    place = run.run_dir if isinstance(run, TrainedRun) else Path(run)
    return f"result of fit {id(run)}" if place is None else str(place.resolve())


def _all(runs: RunLike | Sequence[RunLike]) -> list[RunLike]:
    """Return the runs as a list in the given order, in which a sweep's directory is replaced by its members (runs).

    Raises ConfigError if there are none.
    """
    listed: list[RunLike] = [runs] if isinstance(runs, str | Path | TrainedRun) else list(runs)
    if not listed:
        raise ConfigError("runs = []: must be at least one run directory or result of fit")
    return [one for run in listed for one in ([run] if isinstance(run, TrainedRun) else records.run_dirs_at(run))]


FRAMES_PER_SECOND = 30.0
MAX_STEPS, MAX_SECONDS = 500, 20.0  # of the rendered episode: environment steps, and time to render them
LONGEST = 400  # characters of a reason
GIF_BYTES = 2**20  # maximum size of the picture; as text it is a third larger


class Smaller(NamedTuple):
    """Way to make a film smaller: keep every `stride`-th frame, and average `block` x `block` pixels."""

    stride: int
    block: int


SIZES = (Smaller(1, 1), Smaller(2, 1), Smaller(2, 2), Smaller(4, 2), Smaller(4, 4), Smaller(8, 4))


def film_of(run: str | Path | TrainedRun, name: str) -> tuple[EpisodeFilm, Exception | None]:
    """Return an episode of the last policy of the run, small enough for a page, or the reason why there is none.

    The second result is the error that is the reason, if there is one. `name` is the run's name in the caption.
    """
    try:
        require_video(Path("episode.gif"))
        played = _play(run)
    except Exception as error:  # suites and their renderers raise anything; the report is made without it
        return EpisodeFilm(b"", f"No episode is rendered: {error}"[:LONGEST]), error
    for smaller in SIZES:
        gif = _gif(played.frames, smaller)
        if len(gif) <= GIF_BYTES:
            steps = f"{played.lengths[0]:,} steps"
            length = steps if played.finished else f"the first {steps} of an episode"
            reached = returns_text(played.names, played.returns[0])
            return EpisodeFilm(gif, f"The final policy of {name}: {length}, return {reached}."), None
    return EpisodeFilm(b"", f"No episode is rendered: its pictures take more than {GIF_BYTES:,} bytes."), None


def _play(run: str | Path | TrainedRun) -> RenderedEpisodes:
    if isinstance(run, TrainedRun):
        agent, env, learner, deterministic = run.agent, run.env, run.state.learner, True
    else:
        agent, env, settings = load_run(Path(run))
        learner = load_state(Path(run), agent, env, settings, fresh=False).learner
        deterministic = settings.eval.deterministic
    return play(agent, env, learner, make_key(0), 1, deterministic, MAX_STEPS, MAX_SECONDS)


def _gif(frames: Sequence[np.ndarray], smaller: Smaller) -> bytes:
    stride, block = smaller
    kept = [_averaged(x, block) for x in frames[::stride]]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "episode.gif"
        write_video(path, kept, FRAMES_PER_SECOND / stride)
        return path.read_bytes()


def _averaged(frame: np.ndarray, block: int) -> np.ndarray:
    """Return a frame with the mean of each block of pixels, uint8 [H // block, W // block, 3]."""
    height, width = (side // block for side in frame.shape[:2])
    if block == 1 or not height or not width:
        return frame
    blocks = frame[: height * block, : width * block].reshape(height, block, width, block, 3)
    return blocks.mean((1, 3)).astype(np.uint8)
