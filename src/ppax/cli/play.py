"""`ppax play`: record a trained policy as a video file; no window is opened."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ppax.films.play import play
from ppax.films.video import require_video, write_video
from ppax.options import check_limits
from ppax.run.restore import load_best_policy, load_run, load_state
from ppax.training import make_key


def add_play(parser: argparse.ArgumentParser) -> None:
    """Add the options that only `ppax play` has."""
    parser.add_argument("run", type=Path, help="run directory")
    parser.add_argument("--output", type=Path, help="video file, .gif or .mp4 (default: play.gif in the run directory)")
    parser.add_argument("--episodes", type=int, default=1, help="number of episodes, one after the other (default: 1)")
    parser.add_argument(
        "--max-steps", type=int, default=2000, help="limit on the steps of all episodes (default: 2000)"
    )
    parser.add_argument("--fps", type=float, default=30.0, help="frames (= steps) per second (default: 30)")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the episodes (default: 0)")
    parser.add_argument("--best", action="store_true", help="play the best policy of the run, not the last")
    parser.add_argument("--sampled", action="store_true", help="sample actions instead of taking the mode")


def run_play(options: argparse.Namespace, say: Any) -> dict[str, Any]:
    """Play, write the video, print returns and path; returns the same for JSON."""
    for name in ("episodes", "max_steps", "fps"):
        check_limits(f"--{name.replace('_', '-')}", getattr(options, name), {"low": 1})
    path = options.output or options.run / "play.gif"
    require_video(path)
    agent, env, run = load_run(options.run)
    if options.best:
        learner = load_best_policy(options.run, agent, env, run).policy.learner
    else:
        learner = load_state(options.run, agent, env, run, fresh=False).learner
    key = make_key(options.seed)
    played = play(agent, env, learner, key, options.episodes, not options.sampled, options.max_steps)
    count = write_video(path, played.frames, options.fps)
    for returns, length in zip(played.returns, played.lengths, strict=True):
        say(f"return {', '.join(f'{x:.2f}' for x in returns)} in {length} steps")
    if not played.finished:
        say(f"the last episode was still running after {options.max_steps} steps; increase --max-steps to see its end")
    say(f"{count} frames: {path}")
    return {
        "path": str(path),
        "frames": count,
        "returns": played.returns.tolist(),
        "lengths": played.lengths.tolist(),
        "finished": played.finished,
    }
