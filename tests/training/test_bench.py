"""`ppax bench`: shares of the time, advice, and the search for a program layout."""

import json
import threading
import time
import tomllib
from functools import partial

import jax
import pytest
from gymnasium.vector import SyncVectorEnv

import ppax
from ppax import config
from ppax.cli import bench as cli_bench
from ppax.cli import main
from ppax.cli.bench import write_program
from ppax.devices import platforms, sharding
from ppax.devices.layout import Program
from ppax.envs import host
from ppax.networks import mlp
from ppax.training import bench
from support.host_worlds import Maze


def test_the_report_of_a_compiled_run():
    env = ppax.make("CartPole-v1", 4)
    report = bench.measure(ppax.PPO(mlp(env, hidden=(16,))), env, 16, seconds=0.1)
    assert set(report.shares) == {"rollout", "targets", "shuffle", "gradient steps"}
    assert sum(report.shares.values()) == pytest.approx(1.0)
    assert report.steps_per_second == pytest.approx(4 * 16 / report.seconds)
    assert report.compile_seconds > 0.0
    assert report.peak_memory_mb > 50.0
    assert report.advice.endswith(".")


def test_stages_compute_in_the_dtype_of_training(monkeypatch):
    env, seen, collect = ppax.make("CartPole-v1", 4), [], bench.collect
    monkeypatch.setattr("ppax.agents.precision.machine_dtype", lambda: "bfloat16")
    monkeypatch.setattr(
        bench, "collect", lambda agent, *rest: (seen.append(agent.compute_dtype), collect(agent, *rest))[1]
    )
    agent = ppax.PPO(mlp(env, hidden=(4,)))
    dict(bench._stages(agent, env, ppax.start(agent, env, 8, jax.random.key(0)), 0.01))
    assert set(seen) == {"bfloat16"}


def test_advice_follows_the_largest_stage():
    quiet = {"rollout": 0.1, "targets": 0.0, "shuffle": 0.0, "gradient steps": 0.9}
    assert "more environments" in bench.advice(quiet, 128, 4, 1)
    assert "NPROC" not in bench.advice(quiet, 128, 4, 2)
    assert "environment and acting" in bench.advice(quiet | {"rollout": 0.6}, 8192, 64, 2)
    assert "Gradient steps" in bench.advice(quiet, 8192, 64, sharding.num_cores())
    assert "bfloat16" not in bench.advice(quiet, 8192, 64, sharding.num_cores())


@pytest.mark.parametrize("flags", [None, "fpu avx512f avx512_bf16x", "fpu avx512_bf16 avx", "fpu amx_bf16 avx"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bfloat16_is_advised_on_processors_with_a_unit_for_it(tmp_path, monkeypatch, dtype, flags):
    if flags is not None:
        (tmp_path / "cpuinfo").write_text(f"flags : {flags}\n")
    monkeypatch.setattr(platforms, "CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(bench, "_stages", lambda *_: {"rollout": 0.0}.items())
    env = ppax.make("CartPole-v1", 64)
    report = bench.measure(ppax.PPO(mlp(env, hidden=(16,)), compute_dtype=dtype), env, 64, seconds=0.1)
    expected = dtype == "float32" and flags is not None and ("amx_bf16 " in flags or "avx512_bf16 " in flags)
    assert ('agent.compute_dtype = "bfloat16"' in report.advice) == expected
    assert "Gradient steps" in report.advice


@pytest.mark.parametrize(("cores", "given", "expected"), [(2, None, True), (1, None, False), (2, "1", False)])
def test_one_thread_is_advised_for_small_minibatches_on_one_device(monkeypatch, cores, given, expected):
    monkeypatch.setattr(sharding, "num_cores", lambda: cores)
    monkeypatch.delenv("NPROC", raising=False)
    if given is not None:
        monkeypatch.setenv("NPROC", given)
    shares = {"rollout": 0.1, "targets": 0.0, "shuffle": 0.0, "gradient steps": 0.9}
    assert ("NPROC=1" in bench.advice(shares, 128, 4, 1)) == expected
    assert "NPROC" not in bench.advice(shares, 8192, 64, 1)


SLOW = {"stepping": 0.6, "policy": 0.2, "transfer": 0.0, "update": 0.1, "recording": 0.1}


def test_the_report_of_a_run_on_the_host():
    """Steps that sleep take most of the time."""
    with host(partial(Slow, 5e-3), 2, name="slow") as env:
        agent = ppax.PPO(mlp(env, hidden=(8,)), num_epochs=1)
        report = bench.measure(agent, env, 8, seconds=0.1)
        assert set(report.shares) == set(SLOW)
        assert sum(report.shares.values()) == pytest.approx(1.0)
        assert report.shares["stepping"] > 0.6
        assert min(report.shares.values()) > 0.0
        assert report.steps_per_second < 400
        assert 'vectorization = "async"' in report.advice
        with pytest.raises(ppax.ConfigError, match="--tune works with environments inside the compiled program; slow"):
            bench.tune(agent, env, 8)


class Counted(Maze):
    steps = 0

    def step(self, action):
        time.sleep(0.02)
        Counted.steps += 1
        return super().step(action)


def test_an_iteration_longer_than_the_time_is_measured_once(monkeypatch):
    monkeypatch.setattr(bench, "SET_UP", 0.0)
    with host(Counted, 2, name="counted") as env:
        report = bench.measure(ppax.PPO(mlp(env, hidden=(8,)), num_epochs=1), env, 8, seconds=0.1)
    assert Counted.steps <= 2 * 8
    assert report.seconds > 0.1  # one iteration takes longer than the given seconds
    assert sum(report.shares.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("cost", [0.003, 0.4, 3.0, 7.0])
def test_rounds_take_about_the_given_seconds(cost):
    class Fake:
        first, spent, calls = 2 * cost, 0.0, 0

        def seconds(self, count):
            self.calls += 1
            self.spent += cost * count
            return cost * count

        def restart(self):
            self.spent = 0.0

    runner = Fake()
    times = bench.rounds(runner, 5.0)
    if runner.first < 5.0:
        assert times == pytest.approx([cost] * len(times))
        assert 2.0 < runner.spent <= 5.0
        assert runner.calls < 30
    else:
        assert (times, runner.calls) == ([runner.first], 0)


def test_stages_are_reported_at_their_start_and_at_intervals(monkeypatch):
    lines, again = [], threading.Event()
    monkeypatch.setattr(cli_bench, "EVERY", 0.01)

    def say(text):
        lines.append(text)
        if "so far" in text:
            again.set()

    with cli_bench.StageProgress(say) as progress:
        progress.begin("compiling")
        assert again.wait(60)
    assert lines[:2] == ["compiling ...", "compiling: 0 s so far"]


def test_advice_for_host_environments_follows_the_largest_stage(monkeypatch):
    monkeypatch.setattr(sharding, "num_cores", lambda: 4)
    here, workers = host(Maze, 4), host(Maze, 4, vectorization="async")
    own = host(SyncVectorEnv([Maze] * 4))
    assert 'vectorization = "async"' in bench.host_advice(SLOW, 0.02, 128, here)
    assert "(3,000 us for each environment)" in bench.host_advice(SLOW, 0.02, 128, here)
    assert "faster ones" in bench.host_advice(SLOW, 0.02, 128, workers)
    assert "faster ones" in bench.host_advice(SLOW, 0.02, 128, own)
    assert "faster ones" in bench.host_advice(SLOW, 1e-4, 128, here)
    assert "leave out vectorization" in bench.host_advice(SLOW, 1e-4, 128, workers)
    acting = SLOW | {"stepping": 0.2, "policy": 0.6}
    assert "more than 4 environments" in bench.host_advice(acting, 1e-4, 128, here)
    learning = SLOW | {"stepping": 0.2, "update": 0.5}
    assert "Minibatches of 128 rows are small" in bench.host_advice(learning, 1e-4, 128, here, overlap=1)
    assert "Gradient steps" in bench.host_advice(learning, 1e-4, 8192, here, overlap=1)
    assert "for 50% of the time: overlap = 1" in bench.host_advice(learning, 1e-4, 128, here)
    assert "overlap" not in bench.host_advice(learning | {"stepping": 0.6, "update": 0.1}, 1e-4, 128, here)
    monkeypatch.setattr(sharding, "num_cores", lambda: 1)
    assert "overlap" not in bench.host_advice(learning, 1e-4, 128, here)


class Slow(Maze):
    def __init__(self, seconds):
        self.seconds = seconds

    def step(self, action):
        time.sleep(self.seconds)
        return super().step(action)


def test_advice_names_a_num_envs_that_uses_all_cores(monkeypatch):
    monkeypatch.setattr(sharding, "num_cores", lambda: 4)
    shares = {"rollout": 0.1, "gradient steps": 0.9}
    assert "num_envs = 68 can be split over all, 67 cannot" in bench.advice(shares, 8192, 67, 1)


def test_tune_finds_the_fastest_layout(monkeypatch):
    """Simulated times: chunks of 256 rows take twice as long, one device is 1.5 times as fast, nothing else matters."""

    class Fake:
        def __init__(self, agent, env, num_steps):
            self.cost = (2.0 if agent.program.chunk_rows == 256 else 1.0) * (1.0 if agent.program.devices == 1 else 1.5)
            self.program = type("Program", (), {"compile_seconds": 0.0})

        def seconds(self, count):
            return self.cost * count

        def iterations_in(self, seconds):
            return 1

    monkeypatch.setattr(bench, "Runner", Fake)
    env = ppax.make("CartPole-v1", 64)
    choice = bench.tune(ppax.PPO(mlp(env)), env, 128)
    assert choice.program == Program(devices=1)
    assert choice.speedup == pytest.approx(1.5)


RUN = """# my run
env = "CartPole-v1"
num_envs = 8

[agent]
num_epochs = 2  # fewer

[agent.program]
chunk_rows = 64
unroll = 2

[log]
console = false
"""


def test_write_program_changes_only_the_layout_in_the_run_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(RUN)
    write_program(path, Program(devices=2, chunk_rows=512))
    text = path.read_text()
    assert "# my run" in text
    assert "# fewer" in text
    expected = tomllib.loads(RUN)
    expected["agent"]["program"] = {"devices": 2, "chunk_rows": 512}
    assert tomllib.loads(text) == expected
    assert config.build(tomllib.loads(text)).agent.program == Program(devices=2, chunk_rows=512)
    other = tmp_path / "run.json"
    other.write_text('{"env": "CartPole-v1"}')
    write_program(other, Program(unroll=4))
    assert json.loads(other.read_text()) == {"env": "CartPole-v1", "agent": {"program": {"unroll": 4}}}


LAYOUT = {"devices": 1, "unroll": 2}
HEAD = 'env = "CartPole-v1"\n'
ENTRIES = "devices = 1\nunroll = 2\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            HEAD + "[agent.program]\nchunk_rows = 8\n# mine\n\n# of the network\n[agent.network]\nhidden = [8]\n",
            HEAD + f"[agent.program]\n{ENTRIES}# mine\n\n# of the network\n[agent.network]\nhidden = [8]\n",
        ),
        (HEAD + "[ agent.program ]  # layout\ndevices = 4\n", HEAD + f"[ agent.program ]  # layout\n{ENTRIES}"),
        (
            HEAD + '[agent.program]\n[[log.to]]\npart = "wandb"',
            HEAD + f'[agent.program]\n{ENTRIES}[[log.to]]\npart = "wandb"\n',
        ),
        (HEAD + "[agent]\ngamma = 0.9\n# end\n", HEAD + f"[agent]\ngamma = 0.9\n# end\n\n[agent.program]\n{ENTRIES}"),
        (HEAD + "agent.program.devices = 4\n", None),
        (HEAD + "[agent]\nprogram.devices = 4\n", None),
        (HEAD + "agent = { gamma = 0.9 }\n", None),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_layout_is_written_where_the_rest_of_the_file_can_stay(tmp_path, old, new, end):
    path = tmp_path / "run.toml"
    path.write_bytes(old.replace("\n", end).encode())
    assert write_program(path, Program(**LAYOUT)) == (new is not None)
    assert path.read_bytes().decode() == (new or old).replace("\n", end)


def test_the_layout_in_json_and_yaml(tmp_path):
    (tmp_path / "run.json").write_text('{"env": "CartPole-v1", "agent.program.devices": 4, "agent.gamma": 0.9}')
    assert write_program(tmp_path / "run.json", Program(**LAYOUT))
    assert config.read(tmp_path / "run.json") == {"env": "CartPole-v1", "agent": {"gamma": 0.9, "program": LAYOUT}}
    (tmp_path / "run.yaml").write_text("env: CartPole-v1  # comment\n")
    assert not write_program(tmp_path / "run.yaml", Program(**LAYOUT))
    assert (tmp_path / "run.yaml").read_text() == "env: CartPole-v1  # comment\n"


def test_a_file_that_cannot_be_written_is_told_before_it_is_tuned(tmp_path, capsys, monkeypatch):
    (tmp_path / "run.toml").write_text(HEAD + "agent.program.unroll = 4\n")
    monkeypatch.setattr(bench, "measure", lambda *_: bench.BenchReport(100.0, 1.0, {}, 1.0, 50.0, 1, "none."))
    monkeypatch.setattr(bench, "tune", lambda *_, **__: bench.TunedProgram(Program(**LAYOUT), 2.0))
    assert main.main(["bench", str(tmp_path / "run.toml"), "--tune"]) == 0
    out = capsys.readouterr().out
    told = out.index("cannot be written into a file of this form")
    assert (
        told
        < out.index("2.00 times as fast: devices = 1, unroll = 2")
        < out.index("put it into a run file as [agent.program]")
    )


def test_gradient_steps_that_cannot_be_measured(tmp_path, capsys, monkeypatch):
    shares = {"rollout": 1.0, "targets": 0.0, "gradient steps": 0.0}
    report = bench.BenchReport(100.0, 1.0, shares, 1.0, 50.0, 1, "none.")
    monkeypatch.setattr(bench, "measure", lambda *_: report)
    assert main.main(["bench", "CartPole-v1"]) == 0
    assert "time: rollout 100%, targets 0%, gradient steps not measurable" in capsys.readouterr().out


def test_the_command_bench(tmp_path, capsys):
    path = tmp_path / "run.toml"
    path.write_text('env = "CartPole-v1"\nnum_envs = 4\nnum_steps = 8\n')
    assert main.main(["bench", str(path), "--seconds", "0.1", "--agent.num-epochs", "1", "--json"]) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert result["steps_per_second"] > 0
    assert sum(result["shares"].values()) == pytest.approx(1.0)
    assert result["advice"] in captured.err
    stages = ["compiling ...", "first iteration ...", "measuring ...", "measuring stages ..."]
    assert [line for line in captured.err.splitlines() if line.endswith("...")] == stages
    assert main.main(["bench", str(path), "--seconds", "0"]) == 2


def test_write_program_follows_a_link_and_reads_a_byte_order_mark(tmp_path):
    file, link = tmp_path / "run.toml", tmp_path / "link.toml"
    file.write_text('\N{BYTE ORDER MARK}env = "CartPole-v1"\n', encoding="utf-8")
    link.symlink_to(file)
    assert write_program(link, Program(unroll=4))
    assert link.is_symlink()
    assert config.read(file)["agent"]["program"] == {"unroll": 4}
