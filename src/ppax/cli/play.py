"""`ppax play`: a trained policy as a film. Nothing is opened."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ppax.options import check_limits
from ppax.run.restore import load_best_policy, load_run, load_state
from ppax.tools.play import play
from ppax.tools.video import require_video, write_video
from ppax.training import make_key


def add_play(parser: argparse.ArgumentParser) -> None:
    """Options that only `ppax play` has."""
    parser.add_argument("run", type=Path, help="run directory")
    parser.add_argument("--output", type=Path, help="the film, .gif or .mp4 (default: play.gif in the run directory)")
    parser.add_argument("--episodes", type=int, default=1, help="how many, one after the other (default: 1)")
    parser.add_argument("--max-steps", type=int, default=2000, help="of all episodes together (default: 2000)")
    parser.add_argument("--fps", type=float, default=30.0, help="steps a second in the film (default: 30)")
    parser.add_argument("--seed", type=int, default=0, help="of the episodes (default: 0)")
    parser.add_argument("--best", action="store_true", help="the best policy that was kept, not the last one")
    parser.add_argument("--sampled", action="store_true", help="sample actions, not the most likely one")


def run_play(options: argparse.Namespace, say: Any) -> dict[str, Any]:
    """Play, write the film, and say where it is; the same as plain data."""
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
        say(f"the last episode was still running after {options.max_steps} steps; --max-steps plays on")
    say(f"{count} frames: {path}")
    return {
        "path": str(path),
        "frames": count,
        "returns": played.returns.tolist(),
        "lengths": played.lengths.tolist(),
        "finished": played.finished,
    }
