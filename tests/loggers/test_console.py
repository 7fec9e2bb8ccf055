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
