"""Texts of commands: evaluations without episodes, and suites that print when they are imported."""

import json
import sys

import numpy as np
import pytest

from ppax.cli import main
from ppax.cli.output import evaluation_text
from ppax.envs.suites import registry
from ppax.training.evaluation import Evaluation


def test_an_evaluation_without_a_finished_episode_has_no_nan():
    nothing = np.zeros(2, bool)
    evaluation = Evaluation(np.zeros(2), np.zeros(2, int), nothing, nothing, np.ones(2), num_agents=2, unplayed=1)
    text = evaluation_text(evaluation, True)
    assert text == "evaluation: no agent appeared; 1 were not played"


def test_agents_without_a_finished_episode_are_left_out():
    finished = np.array([True, False])
    lengths = np.array([10, 0])  # the second one did not appear
    evaluation = Evaluation(np.array([3.0, 0.0]), lengths, finished, finished, np.ones(2), num_agents=2)
    text = evaluation_text(evaluation, True)
    assert "nan" not in text
    assert "not ended" not in text
    assert text.endswith("; agent_0 3.00")


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_the_list_of_environments_has_no_lines_of_third_parties(monkeypatch, capsys, arguments):
    def noisy(suite):
        print("Importing submoduled environments...")
        print("Failed to import warp", file=sys.stderr)
        return ["Noisy-v0"]

    monkeypatch.setattr(registry, "ids", noisy)
    assert main.main(["envs", *arguments]) == 0
    captured = capsys.readouterr()
    assert "Importing" not in captured.out + captured.err
    assert "warp" not in captured.out + captured.err
    assert "Noisy-v0" in captured.out
    if arguments:
        json.loads(captured.out)


def test_lines_of_a_library_do_not_reach_standard_output(tmp_path, monkeypatch, capsys):
    (tmp_path / "noisy_library.py").write_text("print('hello')\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry.library("noisy_library", "none")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "hello\n")
