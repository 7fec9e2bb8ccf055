"""`ppax report` and `ppax compare` on real runs; figures; what notebooks display."""

import base64
import io
import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image

import ppax
from ppax.cli import main
from ppax.config import Log
from ppax.core import imports
from ppax.core.types import ConfigError
from ppax.envs import TimeLimit, VectorEnv
from ppax.networks import mlp
from ppax.reports import report
from ppax.reports.report import Smaller
from support.worlds import Counter

TINY = ["--num-envs", "4", "--num-steps", "16", "--total-steps", "640", "--eval.episodes", "4", "--log.every", "2"]
TINY += ["--agent.network.hidden", "8", "--agent.num-epochs", "1", "--no-log.console", "--no-cache"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Directories of two runs that differ by their seed."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in ("0", "1"):
        assert main.main(["train", "CartPole-v1", *TINY, "--seed", seed, "--run-dir", str(folder / f"seed{seed}")]) == 0
    return [folder / "seed0", folder / "seed1"]


def rows_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_the_command_report(runs, tmp_path, capsys):
    path = tmp_path / "all.html"
    assert main.main(["report", *map(str, runs), "--out", str(path), "--json", "--no-cache"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "path": str(path),
        "bytes": path.stat().st_size,
        "runs": list(map(str, runs)),
    }
    text = path.read_text()
    assert "Two runs of PPO on CartPole-v1, which differ by their seed alone." in text
    film = re.search(r'src="data:image/gif;base64,([^"]+)"', text)[1]
    length, returns = re.search(r"The final policy of seed[01]: (\d+) steps, return (\d+)\.00\.", text).groups()
    assert length == returns  # CartPole gives 1 for each step
    with Image.open(io.BytesIO(base64.b64decode(film))) as gif:
        assert gif.n_frames == int(length) + 1


def test_a_report_without_video_of_a_run_that_goes_on(runs, tmp_path, capsys):
    live = tmp_path / "live"
    live.mkdir()
    (live / "run.toml").write_text((runs[0] / "run.toml").read_text())
    (live / "metrics.jsonl").write_text((runs[0] / "metrics.jsonl").read_text()[:-50])
    assert main.main(["report", str(live), "--out", str(tmp_path / "a.html"), "--no-video", "--no-cache"]) == 0
    assert f"report: {tmp_path / 'a.html'}" in capsys.readouterr().out
    text = (tmp_path / "a.html").read_text()
    assert "The run goes on, or was killed." in text
    assert "An episode" not in text
    ppax.report(live, tmp_path / "b.html")
    assert f"No episode is rendered: {live} has no checkpoint" in (tmp_path / "b.html").read_text()


def test_the_report_of_one_run_is_in_its_directory(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    one = shutil.copytree(runs[0], tmp_path / "one")
    assert main.main(["report", str(one), "--no-video", "--no-cache"]) == 0
    assert capsys.readouterr().out.startswith(f"report: {one / 'report.html'} ")
    assert main.main(["report", *map(str, runs), "--no-video", "--no-cache"]) == 0
    assert capsys.readouterr().out.startswith("report: report.html ")
    assert (tmp_path / "report.html").stat().st_size > (one / "report.html").stat().st_size // 2


def test_a_run_given_twice_counts_once(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(runs[0].parent)
    found = ppax.compare([runs[0], runs[1], runs[0].name])
    assert sorted(found.runs) == sorted(map(str, runs))
    assert found.notes == ["seed0 was given more than once and counted once."]
    path = ppax.report([runs[0], runs[0].name], tmp_path / "twice.html", video=False)
    assert "PPO on CartPole-v1, seed 0." in path.read_text()
    assert found.notes[0] in path.read_text()


def test_the_terminal_says_why_no_episode_is_rendered(runs, tmp_path, monkeypatch, capsys):
    def refused(run):
        raise imports.Untrusted("env: my_package is not trusted", ("my_package",))

    monkeypatch.setattr(report, "_play", refused)
    assert main.main(["report", str(runs[0]), "--out", str(tmp_path / "a.html"), "--no-cache"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "no episode is rendered: env: my_package is not trusted"
    assert lines[2] == f"with an episode: ppax report {runs[0]} --trust my_package --out {tmp_path / 'a.html'}"


@pytest.mark.parametrize("out", ["missing/report.html", "."])
def test_a_report_that_cannot_be_written_is_refused_before_any_work(runs, tmp_path, monkeypatch, capsys, out):
    monkeypatch.chdir(tmp_path)
    assert main.main(["report", str(runs[0]), "--out", out]) == 2
    assert "report.html" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_directories_without_runs_are_refused(tmp_path, capsys):
    for command in ("report", "compare"):
        assert main.main([command, str(tmp_path), "--no-cache"]) == 2
        assert "is not a run directory: it has no run.toml" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="at least one run"):
        ppax.compare([])


def test_the_command_compare(runs, capsys):
    assert main.main(["compare", *map(str, runs), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["runs"]
    assert [one["config"] for one in found] == [{"seed": 0}, {"seed": 1}]
    for run, one in zip(runs, found, strict=True):
        assert one["env_steps"] == rows_of(run)[-1]["env_steps"]
        assert one["evaluation_return"] == json.loads((run / "evaluation.json").read_text())["mean_return"]
        assert one["stopped"] == "total_steps are done"
    assert main.main(["compare", *map(str, runs)]) == 0
    assert "evaluation" in capsys.readouterr().out


def test_a_figure_has_the_values_of_the_rows(runs):
    pytest.importorskip("matplotlib")
    figure = ppax.plot(runs[0], metric="entropy")
    (line,) = figure.axes[0].lines
    rows = rows_of(runs[0])
    np.testing.assert_array_equal(line.get_xdata(), [row["env_steps"] for row in rows])
    np.testing.assert_array_equal(line.get_ydata(), [row["entropy"] for row in rows])
    assert not figure.axes[0].collections  # one run has no range
    values = np.array([[row["entropy"] for row in rows_of(run)] for run in runs])
    for band in ("range", "confidence"):  # the same for two seeds: of two, the IQM is the mean
        both = ppax.plot(runs, metric="entropy", band=band)
        (mean,) = both.axes[0].lines
        np.testing.assert_allclose(mean.get_ydata(), values.mean(0))
        area = both.axes[0].collections[0].get_paths()[0].vertices[:, 1]
        assert area.min() == values.min()
        assert area.max() == values.max()
    with pytest.raises(ConfigError, match="band = 'std'"):
        ppax.plot(runs, band="std")


def test_log_rows_of_all_runs_are_one_long_table(runs, tmp_path, capsys):
    pandas = pytest.importorskip("pandas")
    frame = ppax.frame(runs)
    assert list(frame.columns[:4]) == ["run", "env", "setting", "seed"]
    for run, seed in zip(runs, (0, 1), strict=True):
        own = frame[frame.seed == seed]
        assert set(own.run) == {str(run)}
        assert own.env_steps.tolist() == [row["env_steps"] for row in rows_of(run)]
        np.testing.assert_array_equal(own.entropy, [row["entropy"] for row in rows_of(run)])
    path = tmp_path / "rows.csv"
    assert main.main(["compare", *map(str, runs), "--csv", str(path), "--no-cache"]) == 0
    assert f"rows: {path}" in capsys.readouterr().out
    pandas.testing.assert_frame_equal(pandas.read_csv(path), frame, check_dtype=False)


def test_options_that_differ_are_columns_of_the_long_table(runs, tmp_path):
    pytest.importorskip("pandas")
    other = tmp_path / "other"
    shutil.copytree(runs[0], other)
    text = (other / "run.toml").read_text()
    (other / "run.toml").write_text(text.replace("num_epochs = 1", "num_epochs = 3"))
    frame = ppax.frame([runs[0], other])
    assert frame.groupby("run")["agent.num_epochs"].first().to_dict() == {str(runs[0]): 1, str(other): 3}
    assert set(frame.setting) == {"num_epochs = 1", "num_epochs = 3"}


def test_the_directory_of_a_sweep_stands_for_its_members(runs, tmp_path):
    for number, run in enumerate(runs):
        shutil.copytree(run, tmp_path / "sweep" / "members" / f"{number:03d}")
    found = ppax.compare([tmp_path / "sweep"])
    assert sorted(found.runs) == [str(tmp_path / "sweep/members/000"), str(tmp_path / "sweep/members/001")]
    assert len(found.settings) == 1


def test_a_figure_of_an_unknown_metric_is_refused(runs):
    with pytest.raises(ConfigError, match=r"metric = 'entropi': no run has logged it; there are: .*entropy"):
        ppax.plot(runs, metric="entropi")


def test_a_figure_without_matplotlib_names_the_extra(runs, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'pip install "ppax\[plot\]"'):
        ppax.plot(runs)


def test_a_figure_has_a_row_of_axes_for_each_metric_and_a_legend_outside_of_them(runs, tmp_path):
    pytest.importorskip("matplotlib")
    other = tmp_path / "other"
    shutil.copytree(runs[0], other)
    text = (other / "run.toml").read_text()
    (other / "run.toml").write_text(text.replace("num_epochs = 1", "num_epochs = 3"))
    names = {"num_epochs = 3": "three", "num_epochs = 1": "one"}
    figure = ppax.plot([*runs, other], metric=["entropy", "episode_return"], settings=names, size=(5, 6))
    assert [axes.get_ylabel() for axes in figure.axes] == ["entropy", "return in training episodes"]
    assert figure.get_size_inches().tolist() == [5, 6]
    assert [len(axes.lines) for axes in figure.axes] == [2, 2]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["three", "one"]
    figure.draw_without_rendering()
    assert legend.get_window_extent().y1 < min(axes.get_tightbbox().y0 for axes in figure.axes)
    one = ppax.plot([*runs, other], settings=["num_epochs = 3"])
    assert len(one.axes[0].lines) == 1
    assert one.legends == []
    with pytest.raises(ConfigError, match=r"no setting 'num_epoch = 3'.*nearest: num_epochs = 3"):
        ppax.plot([*runs, other], settings=["num_epoch = 3"])


def test_the_command_plot_writes_the_format_of_the_ending(runs, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    for ending, begins in ((".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")):
        path = tmp_path / f"curves{ending}"
        assert main.main(["plot", *map(str, runs), "--out", str(path), "--metric", "entropy", "--size", "3", "2"]) == 0
        assert capsys.readouterr().out.endswith(f"each draws each run.\npicture: {path}\n")
        assert path.read_bytes().startswith(begins)
    assert b"/Type3" not in (tmp_path / "curves.pdf").read_bytes()
    with Image.open(tmp_path / "curves.png") as picture:
        assert picture.size == (600, 400)
    for wrong, said in (
        (["--out", "curves.bmp"], "must end in .png, .pdf, .svg; nearest: curves.pdf"),
        (["--size", "0", "3"], "size = 0.0: must be above 0"),
        (["--names", "a"], "--names has 1 names, --settings 0 labels"),
        (["--settings", "x", "x", "--names", "a", "b"], "--settings 'x' 'x': a label stands twice"),
    ):
        assert main.main(["plot", str(runs[0]), *wrong]) == 2
        assert said in capsys.readouterr().err


@pytest.fixture(scope="module")
def trained():
    env = VectorEnv(TimeLimit(Counter(), 5), 4)
    agent = ppax.PPO(mlp(env, hidden=(4,)), num_epochs=1)
    return ppax.fit(agent, env, 256, num_steps=16, log=Log(every=1, console=False))


def test_a_run_in_memory_has_a_report(trained, tmp_path):
    ppax.report(trained, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "<svg" in text
    assert f"It trained for {trained.env_steps:,} environment steps" in text
    assert "No episode is rendered: Counter cannot be drawn" in (tmp_path / "report.html").read_text()


def test_a_run_whose_directory_is_gone_shows_its_own_rows(trained, tmp_path):
    trained.run_dir = tmp_path / "gone"
    try:
        assert trained.record().columns["loss"].tolist() == [row["loss"] for row in trained.history]
    finally:
        trained.run_dir = None


def test_films_become_smaller_until_they_fit(monkeypatch):
    noise = np.random.default_rng(0).integers(0, 256, (16, 64, 48, 3), np.uint8)
    played = report.RenderedEpisodes(list(noise), np.array([[3.0]]), np.array([15]), True)
    monkeypatch.setattr(report, "_play", lambda run: played)
    sizes = [len(report._gif(played.frames, smaller)) for smaller in report.SIZES]
    assert sizes == sorted(sizes, reverse=True)
    monkeypatch.setattr(report, "GIF_BYTES", sizes[2])
    film, _ = report.film_of("run", "mine")
    assert len(film.gif) == sizes[2]
    assert film.caption == "The final policy of mine: 15 steps, return 3.00."
    monkeypatch.setattr(report, "GIF_BYTES", 10)
    assert report.film_of("run", "mine")[0].gif == b""


def test_blocks_of_pixels_become_their_mean():
    frame = np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3)
    small = report._averaged(frame, 2)
    assert small.shape == (2, 2, 3)
    assert small[0, 0].tolist() == frame[:2, :2].reshape(4, 3).mean(0).astype(int).tolist()
    assert len(report._gif([frame, frame, frame], Smaller(2, 1))) > 0


def test_the_commands_for_sensitivity_and_methods(runs, tmp_path, capsys):
    """Both options of any run directories, not only of a sweep: two settings of one seed each."""
    pytest.importorskip("matplotlib")
    other = tmp_path / "other"
    shutil.copytree(runs[0], other)
    text = (other / "run.toml").read_text()
    (other / "run.toml").write_text(text.replace("num_epochs = 1", "num_epochs = 3"))
    given, path = [str(runs[0]), str(other)], tmp_path / "against.pdf"
    assert main.main(["plot", *given, "--against", "num-epochs", "--out", str(path)]) == 0
    assert path.read_bytes().startswith(b"%PDF")
    assert main.main(["plot", *given, "--against", "num_epoch", "--out", str(path)]) == 2
    assert "nearest: agent.num_epochs" in capsys.readouterr().err
    assert main.main(["compare", *given, "--by", "num_epochs", "--baseline", "1", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["differences"]
    assert (found["setting"], found["than"], found["iqm"]) == ("num_epochs = 3", "num_epochs = 1", 0.0)
    assert main.main(["compare", *given, "--format", "csv"]) == 0
    assert capsys.readouterr().out.startswith("env,setting,score,runs,iqm,low,high,mean,min,training\n")
    assert main.main(["compare", *given, "--settings-only", "--score", "training"]) == 0
    assert "trained identically" in capsys.readouterr().out
    assert main.main(["compare", *given, "--baseline", "1"]) == 2
    assert "is a value of the option `by`" in capsys.readouterr().err
