"""Console logger on a terminal, a file and a broken pipe."""

import importlib
import io

import pytest

import ppax
from ppax.loggers import Console

compiled = importlib.import_module("ppax.program.compilation")  # `ppax.compile` is a function


def test_compiling_is_printed_before_compilation(monkeypatch, capsys):
    said = []

    def compiling(*_):
        said.append(capsys.readouterr().err)
        raise InterruptedError

    monkeypatch.setattr(compiled, "compile", compiling)
    env = ppax.make("probe/Constant", 4)
    with pytest.raises(InterruptedError):
        ppax.fit(ppax.PPO(ppax.networks.mlp(env, (2,)), num_epochs=1), env, 16, num_steps=4)
    assert said == ["compiling ...\n"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_compiling_and_then_the_progress(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    console = Console(10, stream)
    assert "compiling ..." in stream.getvalue()
    console.begin(0)
    console.log({"iteration": 5, "env_steps": 3, "steps_per_second": 1.0, "seconds": 1.0, "episode_return": 2.5})
    console.close()
    assert "return 2.5" in stream.getvalue()


class Gone(io.StringIO):
    def write(self, text):
        raise BrokenPipeError


def test_a_broken_pipe_is_no_error_at_the_start_and_the_end():
    Console(10, Gone()).close()


def test_the_latest_evaluation_stays_in_the_line(monkeypatch):
    stream = io.StringIO()
    console, nan = Console(4, stream), float("nan")
    monkeypatch.setattr("ppax.loggers.console.PLAIN_SECONDS", 0.0)
    numbers = {"steps_per_second": 1.0, "seconds": 1.0, "episode_return": 2.5, "env_steps": 3}
    console.log({**numbers, "iteration": 0, "eval_return": 9.5})
    console.log({**numbers, "iteration": 1, "eval_return": nan})
    console.log({**numbers, "iteration": 2, "eval_return": 11.0})
    console.log({**numbers, "iteration": 3, "eval_return": nan})
    lines = stream.getvalue().splitlines()[1:]
    assert "untrained policy: evaluation 9.5" in lines[0]
    assert [line.partition("evaluation ")[2].split()[0] for line in lines] == ["9.5", "9.5", "11.0", "11.0"]
    assert "nan" not in stream.getvalue()
