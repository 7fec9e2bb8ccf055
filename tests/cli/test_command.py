"""Entry of the command: version and help without JAX, all commands listed, any other argument to the command line."""

import argparse
import json
import math
import os
import subprocess
import sys

import pytest

import ppax
import ppax_command
from ppax.cli import main, options, output


def run(*arguments):
    """Result of the entry in a process of its own, which prints the imported packages at its end."""
    code = "import atexit, sys; atexit.register(lambda: print('modules', *sys.modules, file=sys.stderr))\n"
    code += f"sys.argv = ['ppax', *{list(arguments)!r}]\nimport ppax_command; sys.exit(ppax_command.main())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["-h"], []])
def test_version_and_help_load_neither_jax_nor_ppax(arguments):
    """JAX alone takes seconds to import."""
    done = run(*arguments)
    loaded = set(done.stderr.split("modules ")[-1].split())
    assert done.returncode == 0
    assert not loaded & {"ppax", "jax", "jaxlib", "numpy", "gymnasium"}
    assert len(loaded) < 200
    if arguments == ["--version"]:
        assert done.stdout == f"ppax {ppax.__version__}\n"
    else:
        assert all(name in done.stdout for name in ppax_command.COMMANDS)


def test_other_arguments_are_the_command_lines():
    done = run("trian", "CartPole-v1")
    assert done.returncode == 2
    assert "no command 'trian'; did you mean `ppax train`?" in done.stderr


@pytest.mark.parametrize("name", ppax_command.COMMANDS)
def test_every_listed_command_exists(name, capsys):
    with pytest.raises(SystemExit) as stop:
        main.main([name, "--help"])
    assert stop.value.code == 0
    assert f"usage: ppax {name}" in capsys.readouterr().out


def test_the_whole_command_line_has_the_same_version_and_help(capsys):
    for argument, text in (("--version", f"ppax {ppax.__version__}"), ("--help", "usage: ppax")):
        with pytest.raises(SystemExit):
            main.main([argument])
        assert text in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        main.main(["--nonsense"])
    assert stop.value.code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["evaluate", "run", "--env", "Acrobot-v1"],
        ["evaluate", "run", "--env-params", "3"],
        ["evaluate", "run", "--dev", "gpu"],
        ["check-env", "CartPole-v1", "--env", "nope"],
        ["resume", "run", "--distrib"],
        ["report", "run", "--vid"],
    ],
    ids=" ".join,
)
def test_an_abbreviated_option_is_refused(arguments, capsys):
    """`--env` would be taken for the help text `--env-params.NAME`, and be ignored."""
    assert main.main(arguments) == 2
    assert arguments[2] in capsys.readouterr().err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a full disk")
@pytest.mark.parametrize("arguments", [["presets"], ["envs", "CartPole-v1", "--json"]], ids=" ".join)
def test_output_that_a_full_disk_does_not_take_is_an_error(arguments):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "ppax", *arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 5
    assert "ppax: standard output: No space left on device" in done.stderr


def test_an_environment_beside_a_preset_has_its_own_preset():
    """Also that of a configuration, and of `ppax.build`."""
    _, found = options.parse_run("train", ["Pendulum-v1", "--env", "CartPole-v1"], options.add_train)
    _, own = options.parse_run("train", ["CartPole-v1"], options.add_train)
    assert found == own
    built, same = ppax.build("Pendulum-v1", env="CartPole-v1"), ppax.build("CartPole-v1")
    assert built.run == same.run
    assert built.agent == same.agent


@pytest.mark.parametrize(
    ("words", "path", "value"),
    [
        (["--agent.network.log-std-init", "-1e-1"], ("network", "log_std_init"), -0.1),
        (["--agent.network.log-std-init", "-.5E+0"], ("network", "log_std_init"), -0.5),
    ],
)
def test_negative_numbers_with_an_exponent_are_values(words, path, value):
    _, found = options.parse_run("train", ["Pendulum-v1", *words], options.add_train)
    assert found["agent"][path[0]][path[1]] == value


def test_a_hash_in_a_text_begins_no_comment():
    with pytest.raises(ppax.ConfigError, match=r"env_params\.gravity = '9#3': must be of type float"):
        options.parse_run("train", ["CartPole-v1", "--env-params.gravity", "9#3"], options.add_train)


def test_json_has_no_infinities_and_objects_are_texts(capsys):
    output.print_json(argparse.Namespace(json=True), {"a": [math.inf, {"b": -math.inf}], "c": len})
    assert json.loads(capsys.readouterr().out) == {"a": [None, {"b": None}], "c": "<built-in function len>"}


def test_options_that_are_no_data_are_errors_with_their_path():
    for given, words in (
        ({"agent": {"extensions": ["rnd"]}}, r"extensions: 'rnd' is no part, such as ppax\.extensions\.RND\(\)"),
        ({"env_params": {"x": {0: 1}}}, r"env_params\.x\.0: names of options and parameters must be text"),
        ({"agent": {3: 4}}, r"agent\.3: names of options and parameters must be text"),
    ):
        with pytest.raises(ppax.ConfigError, match=words):
            ppax.build("CartPole-v1", **given)


INTERRUPTED = """
import os, signal, sys


class Interrupting:
    def find_spec(self, name, *_):
        if name == "jaxlib":
            os.kill(os.getpid(), signal.SIGINT)


signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a terminal
sys.meta_path.insert(0, Interrupting())
sys.argv = ["ppax", "train", "CartPole-v1", "--run-dir", "run"]
import ppax_command

sys.exit(ppax_command.main())
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGINT")
def test_ctrl_c_while_jax_is_loaded_ends_in_one_line(tmp_path):
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (75, "ppax: stopped before anything began; nothing was written\n")
    assert list(tmp_path.iterdir()) == []
