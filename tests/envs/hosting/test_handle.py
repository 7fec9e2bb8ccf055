"""Whole runs on host environments: worker processes, faults, signals, resume, learning."""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
import weakref
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import ppax
from ppax.cli import main
from ppax.config import Log
from ppax.envs import EnvError, host
from ppax.envs.hosting.arrays import Layout
from ppax.envs.hosting.workers import Workers
from ppax.networks import mlp
from ppax.training.loop import MEASURED, STAGES
from support.host_worlds import LIMIT, Maze, Picky, Quits, SleepyMaze, Spaces, Spoilt, Trouble

pytestmark = pytest.mark.usefixtures("cached_programs")
QUIET = Log(every=1, checkpoint_seconds=0.0, console=False)


def fit(env, iterations=3, num_steps=8, **options):
    agent = ppax.PPO(mlp(env, (8,)), num_epochs=1)
    return ppax.fit(agent, env, iterations * num_steps * env.num_envs, num_steps=num_steps, log=QUIET, **options)


def rows_of(history):
    return [{name: x for name, x in row.items() if name not in (*MEASURED, *STAGES)} for row in history]


def workers_of(pid):
    """Return the child processes of `pid`."""
    return [int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pids, seconds=10.0):
    """Return whether all processes end within `seconds`; zombies count as ended."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not [pid for pid in pids if _state(pid) not in ("", "Z")]:
            return True
        time.sleep(0.05)
    return False


def _state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


# ---------------------------------------------------------------- worker processes


class NoBeginning(Maze):
    """Maze that fails in every reset except the first, which inspects it."""

    begun = 0

    def reset(self, **options):
        NoBeginning.begun += 1
        if NoBeginning.begun > 1:
            raise ValueError("never begins")
        return super().reset(**options)


def test_workers_equal_one_process_independent_of_timing():
    """Two batches are stepped in a fixed order, so results do not depend on timing; one worker sleeps at random."""
    runs = []
    for factories, options in (
        ([Maze] * 4, {}),
        ([Maze] * 4, {"vectorization": "async", "workers": 2}),
        ([Maze, SleepyMaze, Maze, Maze], {"vectorization": "async", "workers": 2}),
    ):
        with host(factories, **options) as env:
            runs.append(fit(env, 6))
            assert len(env.host.batches) == (2 if options else 1)
    one, *others = (rows_of(run.history) for run in runs)
    for row, other in zip(one, others[0], strict=True):
        np.testing.assert_allclose([*row.values()], [*other.values()], rtol=1e-4, atol=1e-5)
    assert others[0] == others[1]
    for a, b in zip(*(jax.tree.leaves(run.state.learner) for run in runs[1:]), strict=True):
        np.testing.assert_array_equal(a, b)


FAULTS = {
    ("raise", "sync"): "environment 2 failed in step 5, action (?s:.*)in step\n(?s:.*)ValueError: the wheel fell off",
    ("raise", "async"): "environment 2 failed in step 5, action (?s:.*)in step\n(?s:.*)ValueError: the wheel fell off",
    ("die", "async"): r"exit status 7 in step 5 of environment 2, action \[1\]",
    ("hang", "async"): r"has not answered for 1 s \(--timeout 300, .*in step 5 of environment 2, action \[1\]",
}


@pytest.mark.parametrize(("kind", "how"), FAULTS)
def test_a_fault_is_one_error_with_environment_and_action(kind, how):
    """The error has the traceback of the environment, and no worker process remains."""
    factories = [partial(Trouble, what) for what in ("well", "well", kind, "well")]
    workers = None if how == "sync" else 2
    env = host(factories, vectorization=how, workers=workers, timeout=1.0 if kind == "hang" else 60.0)
    before = set(workers_of(os.getpid()))
    env.host.reset([0, 1, 2, 3])
    pids = set(workers_of(os.getpid())) - before
    assert len(pids) == (workers or 0)
    for t in range(4):
        step(env, t)
    with pytest.raises(EnvError, match=FAULTS[kind, how]):
        step(env, 4)
    assert gone(pids)


def step(env, t):
    for number, rows in enumerate(env.host.batches):
        env.host.send(number, [np.ones(rows.stop - rows.start, np.int32)])
        env.host.receive(number)


@pytest.mark.parametrize("kind", ["observation", "reward"])
def test_non_finite_rewards_and_observations_are_refused(kind, tmp_path):
    env = host([partial(Trouble, what) for what in ("well", "well", f"nan {kind}", "well")])
    said = (
        rf"iteration 1 is not finite: environment 2, step 4: its {kind} is nan, action \[.*\]; `ppax\.check_env\(env\)`"
    )
    with pytest.raises(ppax.NumericalError, match=said):  # as in a compiled environment
        fit(env, 1, run_dir=tmp_path)
    end = json.loads((tmp_path / "stopped.json").read_text())
    assert (end["kind"], end["iteration"]) == ("fault", 0)
    assert "environment 2, step 4" in end["error"]


@pytest.mark.parametrize("how", ["sync", "async", "vector"])
def test_sys_exit_in_an_environment_is_an_environment_error(how, tmp_path):
    worlds = [Maze, partial(Quits, "step", 30)]
    env = host(SyncVectorEnv(worlds)) if how == "vector" else host(worlds, vectorization=how)
    with pytest.raises(EnvError, match="SystemExit"):
        fit(env, 6, run_dir=tmp_path)
    assert json.loads((tmp_path / "stopped.json").read_text())["kind"] == "environment"


@pytest.mark.parametrize("where", ["make", "reset"])
def test_sys_exit_before_the_first_step_is_an_environment_error(where):
    with pytest.raises(EnvError, match="SystemExit"):
        fit(host([Maze, partial(Quits, where)]), 1)
    with pytest.raises(EnvError, match="SystemExit"):
        fit(host(partial(Quits, where, 0 if where == "make" else 1)), 1)


def test_two_workers_that_fail_together_raise_one_error(capfd):
    worlds = [partial(Trouble, "raise")] * 2
    for _ in range(3):  # their order is random
        with pytest.raises(EnvError, match=r"environment [01] failed in step 5, action.*(?s:.*)the wheel fell off"):
            fit(host(worlds, vectorization="async", workers=2), 1)
    assert "BrokenPipe" not in capfd.readouterr().err


@pytest.mark.parametrize("how", ["group", "vector"])
def test_a_first_observation_that_is_not_finite_is_located_before_the_policy_acts(how):
    worlds = [Maze, Maze, partial(Spoilt, "reset")]
    env = host(SyncVectorEnv(worlds) if how == "vector" else worlds)
    agent = ppax.PPO(mlp(env, (8,)), num_epochs=1)
    state = ppax.start(agent, env, 4, jax.random.key(0))
    env.host.reset([0] * 3)  # only later resets fail
    env.host.position = 0
    with pytest.raises(EnvError, match="environment 2: its observation is nan after its reset"):
        ppax.compile(agent, env, state)(agent, env, state, 1)


def test_non_finite_final_observations_of_vectors_are_refused():
    worlds = [Maze, partial(Spoilt, "end")]
    env = host(SyncVectorEnv(worlds, autoreset_mode=AutoresetMode.SAME_STEP))
    with pytest.raises(ppax.NumericalError, match=r"environment 1, step \d: its last observation is nan"):
        fit(env, 4)


def test_the_error_names_the_nan_that_caused_a_failure():
    with pytest.raises(ppax.NumericalError, match="environment 0, step 4: its observation is nan"):
        fit(host(Picky, 2), 1, num_steps=16)


def test_iterations_before_a_fault_are_logged_and_saved(tmp_path):
    """The chunk has six iterations and the environment fails in the fifth: four are logged and saved."""
    env = host([Maze, partial(Quits, "step", 4 * 8 * 5 // 6)])
    agent = ppax.PPO(mlp(env, (8,)), num_epochs=1)
    log = Log(every=100, checkpoint_seconds=1e9, console=False)
    with pytest.raises(EnvError, match="SystemExit"):
        ppax.fit(agent, env, 100 * 8 * 2, num_steps=8, log=log, run_dir=tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    (saved,) = (int(path.name) for path in (tmp_path / "checkpoints").iterdir())
    assert [row["iteration"] for row in rows] == [saved]
    assert saved >= 2
    assert json.loads((tmp_path / "stopped.json").read_text())["iteration"] == saved
    whole = ppax.fit(agent, host([Maze, Maze]), saved * 8 * 2, num_steps=8, log=Log(every=saved, console=False))
    assert rows_of(whole.history)[0]["value_loss"] == pytest.approx(rows[0]["value_loss"])


def test_host_chunks_end_when_a_checkpoint_is_due(tmp_path):
    """Without `log.every`; with it, chunks end at its multiples."""
    iterations = []
    for every in (None, 6):
        env, log = host(Maze, 2), Log(every=every, checkpoint_seconds=0.0, console=False)
        agent = ppax.PPO(mlp(env, (8,)), num_epochs=1)
        run = ppax.fit(agent, env, 600 * 8 * 2, num_steps=8, log=log, stop="iteration >= 12")
        iterations.append([row["iteration"] for row in run.history])
    assert iterations == [list(range(1, 13)), [6, 12]]


class CannotClose(Trouble):
    def close(self):
        raise RuntimeError("the door is stuck")


@pytest.mark.parametrize("how", ["group", "vector"])
def test_an_exception_in_close_hides_no_error_and_all_are_closed(how, capfd):
    worlds = [partial(CannotClose, "well"), partial(CannotClose, "raise"), partial(CannotClose, "well")]
    env = host(SyncVectorEnv(worlds) if how == "vector" else worlds)
    with pytest.raises(EnvError, match="the wheel fell off"):
        fit(env, 1)
    assert capfd.readouterr().err.count("the door is stuck") >= (1 if how == "vector" else 3)
    with host(partial(CannotClose, "well"), 2) as env:  # the inspected instance is closed before
        fit(env, 1)


def test_receiving_from_closed_workers_raises_at_once():
    """The error is raised also if another file reuses the descriptor of the connection."""
    layout = Layout(2, 1, 1, host(Maze, 1).host.spec)
    workers = Workers([Maze, Maze], layout, timeout=30.0)
    workers.close()
    others = [socket.socketpair() for _ in range(8)]
    begin = time.monotonic()
    with pytest.raises(EnvError, match=r"worker process 0 .* has ended"):
        workers.receive(0)
    assert time.monotonic() - begin < 10.0
    for pair in others:
        for one in pair:
            one.close()


def test_environments_that_fail_in_reset_are_closed_and_fail_again():
    env = host(NoBeginning, 2)
    agent = ppax.PPO(mlp(env, hidden=(8,)))
    state = ppax.start(agent, env, 4, jax.random.key(0))
    program = ppax.compile(agent, env, state)
    for _ in range(2):
        with pytest.raises(EnvError, match="never begins"):
            program(agent, env, state, 1)
        assert env.host._stepper is None


def test_a_killed_worker_is_named_and_the_run_can_be_resumed(tmp_path):
    env = host(Maze, 4, vectorization="async", workers=2)
    before = workers_of(os.getpid())

    def kill(state, row):
        if row["iteration"] == 3:
            os.kill((set(workers_of(os.getpid())) - set(before)).pop(), signal.SIGKILL)

    with pytest.raises(EnvError, match="exit status -9"):
        fit(env, 6, run_dir=tmp_path, callbacks=[kill])
    assert gone(set(workers_of(os.getpid())) - set(before))
    assert json.loads((tmp_path / "stopped.json").read_text())["kind"] == "environment"
    agent = ppax.PPO(mlp(env, (8,)), num_epochs=1)
    with env:
        run = ppax.resume(tmp_path, agent, env, console=False)  # the environments are created again
    assert int(run.state.iteration) == 6
    assert run.history[0]["iteration"] == 4


# ---------------------------------------------------------------- resume


def test_resume_restores_learner_keys_and_counters_with_new_episodes(tmp_path):
    """A state continues its own environments; otherwise they reset, and no step is counted twice."""
    env, first = host(Maze, 4), []
    whole = fit(env, 6, run_dir=tmp_path / "whole")
    half = fit(host(Maze, 4), 6, run_dir=tmp_path / "half", callbacks=[lambda state, row: row["iteration"] >= 3])
    assert rows_of(half.history) == rows_of(whole.history)[:3]  # same seed, same rows
    other = host(Maze, 4)
    reset = other.host.reset
    other.host.__dict__["reset"] = lambda seeds: first.append(seeds) or reset(seeds)
    resumed = ppax.resume(tmp_path / "half", half.agent, other, console=False)
    assert len(first) == 1
    assert [row["iteration"] for row in resumed.history] == [4, 5, 6]
    assert resumed.history[0]["env_steps"] > half.history[-1]["env_steps"]
    assert resumed.history[0]["learning_rate"] == whole.history[3]["learning_rate"]
    assert jax.random.key_data(resumed.state.key).tolist() == jax.random.key_data(whole.state.key).tolist()


def test_chunks_and_evaluation_do_not_affect_training():
    """Environments are reset once, however often rows are logged or the policy is evaluated."""
    runs = []
    for every, judged in ((1, False), (6, False), (1, True)):
        env = host(Maze, 4)
        agent = ppax.PPO(mlp(env, (8,)), num_epochs=1)

        def judge(state, row, agent=agent, env=env, judged=judged):
            if judged:
                ppax.evaluate(agent, env, state.learner, jax.random.key(0), 3)

        log = Log(every=every, console=False)
        runs.append(ppax.fit(agent, env, 6 * 8 * 4, num_steps=8, log=log, callbacks=[judge]))
    for other in runs[1:]:
        for a, b in zip(*(jax.tree.leaves(run.state.learner) for run in (runs[0], other)), strict=True):
            np.testing.assert_array_equal(a, b)


def test_evaluation_plays_whole_episodes_with_fixed_shares():
    """The requested number of episodes is played, also with fewer environments; each has a fixed share."""
    run = fit(host(Maze, 4), 3, stop="episode_length >= 1")
    assert int(run.state.iteration) == 1
    assert run.stopped.startswith("episode_length")
    result = run.evaluate(episodes=10, deterministic=False)
    assert result.returns.shape == result.lengths.shape == (10,)
    assert result.finished.all()
    assert 1 <= result.lengths.min() <= result.lengths.max() <= LIMIT
    again = run.evaluate(episodes=10, deterministic=False)
    np.testing.assert_array_equal(result.returns, again.returns)
    limited = ppax.evaluate(run.agent, run.env, run.state.learner, jax.random.key(0), 10, max_steps=2)
    assert (len(limited.returns), limited.unplayed, limited.lengths.max()) == (10, 0, 2)
    assert not limited.finished[limited.lengths == 2].all()


# ---------------------------------------------------------------- the command line, in processes of their own


def command(*arguments):
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from ppax.cli.main import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def running(process, run_dir, rows):
    """Return the worker processes of a run after it has logged some rows."""
    until = time.monotonic() + 120.0
    path = run_dir / "metrics.jsonl"
    while not path.exists() or path.read_text().count("\n") < rows:
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < until
        time.sleep(0.02)
    return workers_of(process.pid)


SMALL = ("--num-envs", 4, "--num-steps", 16, "--agent.num-epochs", 1, "--agent.network.hidden", 8, "--log.every", 1)
SMALL += ("--log.checkpoint-seconds", 0, "--eval.episodes", 4)


def test_kill_interrupt_and_resume_leave_no_worker_processes(tmp_path):
    """Kill with -9, resume and interrupt, resume to the end; the workers end each time."""
    run_dir = tmp_path / "run"
    options = ("--total-steps", 50_000, "--run-dir", run_dir, "--vectorization", "async")
    process = command("train", "gymnasium/CartPole-v1", *SMALL, *options)
    pids = running(process, run_dir, 3)
    assert pids
    process.kill()
    process.communicate()
    assert gone(pids)
    process = command("resume", run_dir)
    done = (run_dir / "metrics.jsonl").read_text().count("\n")
    pids = running(process, run_dir, done + 3)
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 75, text
    assert "resume with: ppax resume" in text
    assert gone(pids)
    iterations = [json.loads(line)["iteration"] for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert iterations == list(range(1, len(iterations) + 1))  # each iteration once
    process = command("evaluate", run_dir, "--episodes", 3, "--json")
    text, _ = process.communicate(timeout=60)
    assert json.loads(text.splitlines()[-1])["episodes"] == 3


def test_exit_code_and_message_of_a_fault(tmp_path, capsys, monkeypatch):
    import gymnasium

    gymnasium.register("Trouble-v0", lambda: Trouble("raise"), disable_env_checker=True)
    try:
        arguments = [
            "train",
            "gymnasium/Trouble-v0",
            *map(str, SMALL),
            "--run-dir",
            str(tmp_path / "run"),
            "--no-cache",
        ]
        assert main.main(arguments) == 3
    finally:
        del gymnasium.registry["Trouble-v0"]
    assert "the wheel fell off" in capsys.readouterr().err


# ---------------------------------------------------------------- learning


@pytest.mark.nightly
def test_cartpole_is_learned():
    env = ppax.make("gymnasium/CartPole-v1", 8)
    linear = ppax.schedules.Linear()
    agent = ppax.PPO(mlp(env), learning_rate=1e-3, schedule=linear, ent_coef=0.01)
    run = ppax.fit(agent, env, 100_000, num_steps=128, log=Log(console=False))
    assert all(row["ratio_first_max_dev"] < 1e-4 for row in run.history)
    assert run.evaluate(episodes=32).mean_return >= 400


# ---------------------------------------------------------------- leaks


def test_a_finished_run_keeps_no_environment_and_no_program():
    """JAX keeps compiled programs: a second equal run adds none, and no run keeps its environments alive."""

    def once():
        env = host(Maze, 4)
        fit(env, 2)
        return weakref.ref(env.host)

    def programs():
        gc.collect()
        return len(jax.devices()[0].client.live_executables())

    seen, counts = [], []
    for _ in range(3):
        ref = once()
        counts.append(programs())
        seen.append(ref)
    assert [ref() for ref in seen] == [None] * 3
    assert counts[2] == counts[1]
    one, other = host(Maze, 4), host(Maze, 4)  # both alive, so that nothing can be told apart by a reused address
    assert jax.tree.structure(one) == jax.tree.structure(other)


def test_a_timeout_of_months_and_paths_that_are_no_strings(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, Path("/tmp")])
    with host(Maze, 2, vectorization="async", workers=1, timeout=1e7) as env:
        assert env.host.reset([1, 2])[0].first.all()


def test_the_counter_of_steps_goes_on_after_the_largest_number():
    """After 2^32 - 1 comes 1, as 0 stands for environments before their reset."""
    env = host(Maze, 2)
    env.host.position = 2**32 - 12
    run = fit(env, 2)
    assert env.host.position == 1 + 16 + 1 - 12  # a reset, 16 steps, and 0 is left out
    assert (np.asarray(run.state.actor.env_state) == env.host.position).all()
    env.close()


def test_workers_of_deleted_environments_end():
    before = set(workers_of(os.getpid()))
    env = host(Maze, 4, vectorization="async", workers=2)
    fit(env, 1)
    pids = set(workers_of(os.getpid())) - before
    assert len(pids) == 2
    del env
    gc.collect()
    assert gone(pids)


def test_spaces_that_differ_in_one_number_have_different_programs():
    """Gymnasium compares spaces approximately and abbreviates their bounds in print."""

    def structure(high, **options):
        space = spaces.Box(-1.0, np.array([*np.ones(2000), high]), dtype=np.float64)
        return jax.tree.structure(host(partial(Spaces, space, spaces.Discrete(2)), 2, **options))

    assert structure(1.0) == structure(1.0)
    assert hash(structure(1.0)) == hash(structure(1.0))
    assert structure(1.0) != structure(1.0 + 1e-7)
    assert structure(1.0) != structure(1.0, action_repeat=2)
