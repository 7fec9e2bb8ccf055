"""Films of trained policies for reports: one episode as a GIF that is small enough for a page."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ppax.reports.sections import Film
from ppax.run.films.play import Played, play
from ppax.run.films.video import require_video, write_video
from ppax.run.restore import load_run, load_state
from ppax.run.result import TrainedRun
from ppax.training.loop import make_key

FRAMES_PER_SECOND = 30.0
MAX_STEPS, MAX_SECONDS = 500, 20.0  # of the rendered episode: environment steps, and time to render them
LONGEST = 400  # characters of a reason
GIF_BYTES = 2**20  # maximum size of the picture; as text it is a third larger


class Smaller(NamedTuple):
    """Way to make a film smaller: every `stride`-th frame, and means of `block` x `block` pixels."""

    stride: int
    block: int


SIZES = (Smaller(1, 1), Smaller(2, 1), Smaller(2, 2), Smaller(4, 2), Smaller(4, 4), Smaller(8, 4))


def film_of(run: str | Path | TrainedRun, name: str) -> Film:
    """Rendered episode of the last policy of the run `name`, or the reason why there is none."""
    try:
        require_video(Path("episode.gif"))
        played = _play(run)
    except Exception as error:  # suites and their renderers raise anything; the report is made without it
        return Film(b"", f"No episode is rendered: {error}"[:LONGEST])
    for smaller in SIZES:
        gif = _gif(played.frames, smaller)
        if len(gif) <= GIF_BYTES:
            steps = f"{played.lengths[0]:,} steps"
            length = steps if played.finished else f"the first {steps} of an episode"
            return Film(gif, f"The final policy of {name}: {length}, return {played.returns_text(0)}.")
    return Film(b"", f"No episode is rendered: its pictures take more than {GIF_BYTES:,} bytes.")


def _play(run: str | Path | TrainedRun) -> Played:
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
    """Frame with the mean of each block of pixels, uint8 [H // block, W // block, 3]."""
    height, width = (side // block for side in frame.shape[:2])
    if block == 1 or not height or not width:
        return frame
    blocks = frame[: height * block, : width * block].reshape(height, block, width, block, 3)
    return blocks.mean((1, 3)).astype(np.uint8)
