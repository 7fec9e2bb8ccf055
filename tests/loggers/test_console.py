"""Console logger on real terminals of several widths, in a file and at a broken pipe."""

import io
import os
import re
import struct
import subprocess
import sys

import pytest

import ppax
from ppax.loggers import Console, terminal
from ppax.training import backends


def test_compiling_is_printed_before_compilation(monkeypatch, capsys):
    said = []

    def compiling(*_):
        said.append(capsys.readouterr().err)
        raise InterruptedError

    monkeypatch.setattr(backends, "compile", compiling)
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
    assert lines[0] == "  0%  evaluation 9.5  untrained policy"
    assert [line.partition("evaluation ")[2].split()[0] for line in lines] == ["9.5", "9.5", "11.0", "11.0"]
    assert "nan" not in stream.getvalue()


def test_the_reward_is_shown_where_no_episode_ends(monkeypatch):
    stream, nan = io.StringIO(), float("nan")
    monkeypatch.setattr("ppax.loggers.console.PLAIN_SECONDS", 0.0)
    console = Console(4, stream)
    row = {"iteration": 1, "steps_per_second": 5.0, "seconds": 1.0, "env_steps": 3}
    console.log(row | {"episode_return": nan, "reward_mean": -0.98765})
    console.log(row | {"episode_return": nan})  # as of groups, which have a reward each
    console.log(row | {"episode_return": 7.0, "reward_mean": -0.98765})
    console.log(row | {"episode_return": nan, "reward_mean": -0.98765})
    lines = stream.getvalue().splitlines()[1:]
    assert lines[0] == " 25%  reward -0.988 a step  3 env-steps  5 steps/s  no episode ended  ETA 3 s"
    assert lines[1] == " 25%  3 env-steps  5 steps/s  no episode ended  ETA 3 s"
    assert lines[2] == " 25%  return 7.0  3 env-steps  5 steps/s  ETA 3 s"
    assert lines[3] == " 25%  return 7.0 (earlier: no episode ended)  3 env-steps  5 steps/s  ETA 3 s"


def test_training_shows_the_reward_of_an_endless_environment(capsys):
    env = ppax.make("probe/Infinite", 4)
    ppax.fit(ppax.PPO(ppax.networks.mlp(env, (2,)), num_epochs=1), env, 16, num_steps=4)
    assert re.search(r"100%  reward \S+ a step", capsys.readouterr().err)


TEXTS = ["return 123.4", "evaluation 450.0", "1,234,567,890 env-steps", "1,234,567 steps/s"]


def test_texts_are_left_out_whole_in_narrow_terminals():
    full = " 45%  " + "  ".join(TEXTS) + "  ETA 1:02:03"
    bar = "━" * 14 + "─" * 16
    assert terminal.line(45.2, TEXTS, 3723.4, 200) == full.replace(" 45%", f" 45%  {bar}")
    widths = {len(terminal.line(45.2, TEXTS, 3723.4, width)) for width in range(4, 200)}
    for width in range(4, 200):
        found = terminal.line(45.2, TEXTS, 3723.4, width)
        assert len(found) <= width
        words = found.replace("━", "").replace("─", "").split("  ")
        assert [x for x in words if x.strip()] == [x for x in [" 45%", *TEXTS, "ETA 1:02:03"] if x in words]
    assert terminal.line(45.2, TEXTS, 3723.4, 79) == f" 45%  {'  '.join(TEXTS[:3])}  ETA 1:02:03"
    assert terminal.line(45.2, TEXTS, 3723.4, 59).endswith("  return 123.4  evaluation 450.0  ETA 1:02:03")
    assert terminal.line(45.2, TEXTS, 3723.4, 39) == " 45%  ━━━━━━  return 123.4  ETA 1:02:03".replace("━━━━━━  ", "")
    assert terminal.line(45.2, TEXTS, None, 24) == " 45%  return 123.4"
    assert len(widths) > 10
    assert terminal.line(50.0, ["x"], None, 60, ascii_only=True).startswith(f" 50%  {'=' * 15}{'-' * 15}  x")


TRAIN = """
import ppax
from ppax.config import EvalSettings, Log
env = ppax.make("CartPole-v1", 4)
agent = ppax.PPO(ppax.networks.mlp(env, (4,)), num_epochs=1)
print("before", flush=True)
ppax.fit(agent, env, 32 * 1500, num_steps=8, evaluation=EvalSettings(every=500, episodes=2), log=Log(every=5))
print("after", flush=True)
"""


class Screen:
    """Terminal emulator with the sequences that a progress line uses; remembers every state of every line."""

    def __init__(self, columns):
        self.columns, self.lines, self.row, self.column, self.seen = columns, [[]], 0, 0, set()

    def feed(self, text):
        for piece in re.findall(r"\x1b\[[?0-9;]*[A-Za-z]|.", text, re.DOTALL):
            self._one(piece)

    def _one(self, piece):
        if piece.startswith("\x1b["):
            if piece[-1] == "K":
                self._remember()
                self.lines[self.row] = [] if piece == "\x1b[2K" else self.lines[self.row][: self.column]
            if piece[-1] == "A":
                self.row = max(0, self.row - int(piece[2:-1] or 1))
        elif piece == "\r":
            self.column = 0
        elif piece == "\n":
            self._down()
        else:
            if self.column == self.columns:  # the terminal wraps
                self._down()
                self.column = 0
            line = self.lines[self.row]
            line[self.column : self.column + 1] = piece
            self.column += 1

    def _down(self):
        self._remember()
        self.row += 1
        self.lines += [[]] * (self.row == len(self.lines))

    def _remember(self):
        self.seen.add("".join(self.lines[self.row]))

    def text(self):
        return ["".join(line).rstrip() for line in self.lines]


@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals")
@pytest.mark.parametrize("columns", [40, 60, 80])
def test_the_progress_is_one_whole_line_in_a_real_terminal(columns):
    import fcntl
    import pty
    import termios

    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: x for name, x in os.environ.items() if name not in ("COLUMNS", "LINES")} | {"TERM": "xterm"}
    process = subprocess.Popen([sys.executable, "-c", TRAIN], stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    data = b""
    try:
        while piece := os.read(leader, 65536):
            data += piece
    except OSError:  # Linux reports the closed terminal so
        pass
    os.close(leader)
    assert process.wait(60) == 0
    screen = Screen(columns)
    screen.feed(data.decode())
    lines = [line for line in screen.text() if line]
    assert lines[0] == "before"
    assert lines[-1] == "after"
    assert len(lines) == 3, lines  # the progress is one line, updated in place
    number = r"-?\d[\d,]*(\.\d)?"
    numbers = "|".join(f"{name} {number}" for name in ("return", "evaluation"))
    steps = "|".join(f"{number} {name}" for name in ("steps", "steps/s"))
    word = rf"( {{0,2}}\d+%|[━─]+|{numbers}|{steps}|ETA [\d:-]+|untrained policy)"
    whole = re.compile(rf"{word}(  {word})*")
    assert whole.fullmatch(lines[1]), lines
    assert lines[1].startswith("100%")
    shown = [line for line in screen.seen if "%" in line and "compiling" not in line and "first" not in line]
    assert len(shown) > 1
    assert [line for line in shown if not whole.fullmatch(line.rstrip())] == []
    assert all(len(line) < columns for line in shown)


def test_a_log_has_whole_lines_without_control_characters(tmp_path):
    """Also where a width and colours are asked for, as by services for continuous integration."""
    environment = os.environ | {"COLUMNS": "40", "FORCE_COLOR": "1", "TERM": "xterm"}
    code = "import ppax.loggers.console as c; c.PLAIN_SECONDS = 0.05\n" + TRAIN
    with open(tmp_path / "log", "wb") as log:
        subprocess.run([sys.executable, "-c", code], stdout=log, stderr=log, env=environment, check=True)
    text = (tmp_path / "log").read_text()
    assert not re.search(r"[^\n -~]", text)
    first, compiling, *lines, last = text.removesuffix("\n").split("\n")
    assert (first, compiling, last) == ("before", "compiling ...", "after")
    assert all(re.fullmatch(r" {0,2}\d+%  .*(ETA \d+ s|untrained policy)", line) for line in lines)
    assert lines[-1].startswith("100%")
    assert len(lines) > 3


def test_a_terminal_that_can_only_append_gets_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    console = Console(2, stream)
    console.begin(0)
    console.log({"iteration": 2, "env_steps": 3, "steps_per_second": 1.0, "seconds": 1.0, "episode_return": 2.5})
    console.close()
    assert stream.getvalue() == "compiling ...\n100%  return 2.5  3 env-steps  1 steps/s  ETA 0 s\n"


def test_steps_are_those_of_whole_iterations_where_their_number_is_known():
    stream = io.StringIO()
    row = {"iteration": 2, "env_steps": 2001, "episode_return": 2.5, "steps_per_second": 1.0, "seconds": 1.0}
    Console(2, stream, steps=1024).log(row)
    assert "  2,048 steps  1 steps/s" in stream.getvalue()
