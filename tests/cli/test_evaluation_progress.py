"""Evaluations of commands: their progress is shown, a signal ends them with a message, scores have labels."""

import io
import os
import re
import signal
import time
from types import SimpleNamespace

import gymnasium
import jax
import numpy as np
import pytest

import ppax
from ppax.cli import main, output
from ppax.loggers import evaluating
from ppax.loggers.evaluating import EvaluationLine
from ppax.training.evaluation import Evaluation
from ppax.training.watching import watched_by

TINY = ["--num-envs", "4", "--num-steps", "8", "--total-steps", "96", "--agent.network.hidden", "8"]
TINY += ["--agent.num-epochs", "1", "--log.every", "1"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Five(gymnasium.Env):
    """Episodes of five steps."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(1, np.float32), 1.0, self.steps == 5, False, {}


@pytest.fixture
def clock(monkeypatch):
    """Seconds that `time.monotonic` returns, to be changed."""
    now = [100.0]
    monkeypatch.setattr(evaluating.time, "monotonic", lambda: now[0])
    return now


def test_without_a_terminal_a_line_says_what_is_evaluated_and_others_follow_at_growing_intervals(clock):
    stream = io.StringIO()
    with EvaluationLine(128, stream) as line:
        for second in range(26):
            clock[0] = 100.0 + second
            line(second, 1000 * second)
    assert stream.getvalue().splitlines() == [
        "evaluation of 128 episodes ...",
        "evaluation: 5 of 128 episodes have ended, 5,000 steps, 5 s",
        "evaluation: 10 of 128 episodes have ended, 10,000 steps, 10 s",
        "evaluation: 20 of 128 episodes have ended, 20,000 steps, 20 s",
    ]


def test_on_a_terminal_one_line_is_written_over_and_disappears(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with EvaluationLine(3, stream) as line:
        line(2, 1234)
    text = stream.getvalue()
    assert "evaluation: 2 of 3 episodes have ended, 1,234 steps" in text
    assert text.count("\n") <= 2
    assert "\x1b[2K" in text  # erased


def test_a_closed_pipe_does_not_end_the_evaluation(clock):
    stream = io.StringIO()
    stream.write = lambda text: (_ for _ in ()).throw(BrokenPipeError)
    with EvaluationLine(3, stream) as line:
        clock[0] += 60.0
        line(2, 1234)


def test_evaluations_on_the_host_count_their_ended_episodes_and_steps():
    env = ppax.envs.host(Five, 2)
    agent = ppax.build(env, agent={"network": {"hidden": [4]}}).agent
    state = ppax.start(agent, env, 4, jax.random.key(0))
    seen = []
    with watched_by(lambda *numbers: seen.append(numbers)):
        ppax.evaluate(agent, env, state.learner, jax.random.key(1), episodes=4)
    ended = [one for one, _ in seen]
    assert ended == sorted(ended)
    assert seen[4] == (2, 10)  # after five steps of two environments
    assert seen[-1] == (4, 20)


def test_the_final_evaluation_is_announced_on_standard_error(tmp_path, capsys):
    arguments = ["train", "CartPole-v1", *TINY, "--eval.episodes", "4", "--run-dir", str(tmp_path / "run")]
    assert main.main(arguments) == 0
    captured = capsys.readouterr()
    assert "evaluation of 4 episodes ..." in captured.err
    assert "evaluation of 4 episodes ..." not in captured.out
    assert main.main(["evaluate", str(tmp_path / "run"), "--episodes", "2"]) == 0
    assert "evaluation of 2 episodes ..." in capsys.readouterr().err


def test_without_a_console_the_final_evaluation_is_not_announced(tmp_path, capsys):
    arguments = ["train", "CartPole-v1", *TINY, "--eval.episodes", "4", "--run-dir", str(tmp_path / "run")]
    assert main.main([*arguments, "--no-log.console"]) == 0
    assert "evaluation of" not in capsys.readouterr().err


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_in_the_final_evaluation_says_that_the_run_is_complete(name, tmp_path, monkeypatch, capsys):
    codes = []
    monkeypatch.setattr(os, "_exit", codes.append)
    own = signal.signal(name, lambda *_: None)  # as that of a shell would end pytest, if the command left it

    def evaluate(*_, **__):
        os.kill(os.getpid(), name)
        time.sleep(0.2)

    monkeypatch.setattr(ppax.TrainedRun, "evaluate", evaluate)
    try:
        main.main(["train", "CartPole-v1", *TINY, "--eval.episodes", "4", "--run-dir", str(tmp_path / "run")])
        assert signal.getsignal(name) not in (signal.SIG_DFL, signal.default_int_handler)  # put back
    finally:
        signal.signal(name, own)
    said = capsys.readouterr().err
    assert codes == [75]
    assert f"training is complete and saved: `ppax evaluate {tmp_path / 'run'}` evaluates its policy" in said
    assert "Traceback" not in said


def test_scores_after_training_say_which_episodes_they_are_of(tmp_path, capsys):
    arguments = ["train", "CartPole-v1", *TINY, "--eval.episodes", "2", "--eval.every", "1"]
    arguments += ["--best.metric", "eval_return", "--run-dir", str(tmp_path / "run")]
    assert main.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    begun = [
        next(i for i, line in enumerate(lines) if re.match(start, line))
        for start in (
            r"last evaluation in training \(2 episodes\): mean return \d+\.\d\d$",
            r"best eval_return in training: [\d.]+ at \d+ steps$",
            r"final evaluation over 2 episodes, modes of the actions: mean return ",
        )
    ]
    assert begun == [*range(begun[0], begun[0] + 3)]


def test_the_last_evaluation_in_training_is_the_latest_one():
    first, last = (Evaluation(np.full(2, x), *[np.ones(2, int)] * 4) for x in (1.0, 7.0))
    run = SimpleNamespace(evaluations={3: last, 1: first}, best=None)
    assert list(output._scores_in_training(run)) == ["last evaluation in training (2 episodes): mean return 7.00"]
