"""Host environments in actors of a Ray cluster: the bits of stepping here, faults, actors that die or hang."""

import os
import signal
import time
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

import ppax
from ppax.config import Log
from ppax.envs import EnvError, host
from ppax.envs.hosting.arrays import Layout
from ppax.training.loop import MEASURED, STAGES
from support.crowds import Hunt
from support.host_worlds import Maze, SleepyMaze, Trouble
from support.two_machines import token

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.usefixtures("cached_programs", "cluster"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning"),  # Ray's own
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # JAX's, of Ray's forks
]


@pytest.fixture(scope="module")
def cluster():
    """Local cluster of two CPUs, of this file alone."""
    token()
    ray.init("local", num_cpus=2, object_store_memory=200_000_000, include_dashboard=False, logging_level="warning")
    yield ray
    ray.shutdown()


def rows_of(run):
    return [{name: x for name, x in row.items() if name not in (*MEASURED, *STAGES)} for row in run.history]


def fit(env, iterations=4, num_steps=8, **options):
    agent = ppax.PPO(ppax.networks.mlp(env, (8,)), num_epochs=1)
    log = Log(every=1, checkpoint_seconds=0.0, console=False)
    return ppax.fit(agent, env, iterations * num_steps * env.num_envs, num_steps=num_steps, log=log, **options)


def walked(env, steps=40):
    """Arrays of all streams after a reset and after each of `steps` steps, whose actions depend on the step alone."""
    layout = Layout(env.num_envs, 1, 1, env.host.spec)
    given, rng, seen = layout.make(), np.random.default_rng(0), []
    env.host.reset(list(range(env.num_envs)))
    for _ in range(steps):
        seen.append([np.copy(x) for x in env.host.stepper.arrays.results()])
        given.act([rng.integers(0, 2, x.shape) for x in given.action])
        for number, rows in enumerate(env.host.batches):
            env.host.send(number, layout.rows(given, rows).action)
        for number in range(len(env.host.batches)):
            env.host.receive(number)
    return seen


@pytest.mark.parametrize("make", [Maze, partial(Hunt, masks=True)], ids=["one_agent", "groups_and_masks"])
def test_steps_equal_those_in_this_process_bit_for_bit(make):
    """Seven environments are no whole number for two batches of three actors each."""
    results = []
    for options in ({}, {"vectorization": "ray", "workers": 3}):
        with host(make, 7, **options) as env:
            results.append(walked(env))
            assert len(env.host.batches) == (2 if options else 1)
    ended = sum(int(step[-5].sum() + step[-4].sum()) if make is Maze else 1 for step in results[0])
    assert ended > 0
    for one, other in zip(*results, strict=True):
        for a, b in zip(one, other, strict=True):
            assert a.tobytes() == b.tobytes()


def test_a_run_has_the_bits_of_worker_processes_and_those_of_this_process_but_for_rounding():
    """However many actors there are, and although one of them sleeps at random."""
    runs = []
    for factories, options in (
        ([Maze] * 4, {}),
        ([Maze] * 4, {"vectorization": "async", "workers": 2}),
        ([Maze] * 4, {"vectorization": "ray", "workers": 1}),
        ([Maze, SleepyMaze, Maze, Maze], {"vectorization": "ray", "workers": 3}),
    ):
        with host(factories, **options) as env:
            runs.append(fit(env))
    one, *others = map(rows_of, runs)
    for row, other in zip(one, others[0], strict=True):
        np.testing.assert_allclose([*row.values()], [*other.values()], rtol=1e-4, atol=1e-5)
    assert others[0] == others[1] == others[2]
    for run in runs[2:]:
        for a, b in zip(*(jax.tree.leaves(x.state.learner) for x in (runs[1], run)), strict=True):
            np.testing.assert_array_equal(a, b)


FAULTS = {
    "raise": "environment 2 failed in step 5, action (?s:.*)in step\n(?s:.*)ValueError: the wheel fell off",
    "die": r"environment actor \d \(pid \d+ on .*\), of environments .*2.*, has ended: .*; all environments were",
    "hang": r"environment actor \d .*2.*, has not answered for 3 s \(--timeout 300, .*; all environments were closed",
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_is_one_error_with_the_environments(kind):
    factories = [partial(Trouble, what) for what in ("well", "well", kind, "well")]
    env = host(factories, vectorization="ray", workers=2, timeout=3.0 if kind == "hang" else 60.0)
    with pytest.raises(EnvError, match=FAULTS[kind]):
        walked(env)
    assert gone(env.host)


def gone(handle):
    """Whether the actors of environments end."""
    handle.close()
    until = time.monotonic() + 20.0
    while time.monotonic() < until and actors():
        time.sleep(0.2)
    return not actors()


def actors():
    """Process ids of the actors that step environments now."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [int(path.parent.name)] if b"ray::EnvActor" in path.read_bytes() else []
        except OSError:
            continue
    return found


def test_a_killed_actor_is_named_and_the_run_can_be_resumed(tmp_path):
    env = host(Maze, 4, vectorization="ray", workers=2)

    def kill(state, row):
        if row["iteration"] == 3:
            os.kill(actors()[0], signal.SIGKILL)

    with pytest.raises(EnvError, match=r"environment actor \d \(pid \d+ on .*has ended"):
        fit(env, 6, run_dir=tmp_path, callbacks=[kill])
    agent = ppax.PPO(ppax.networks.mlp(env, (8,)), num_epochs=1)
    with env:
        run = ppax.resume(tmp_path, agent, env, console=False)  # the environments are created again
    assert int(run.state.iteration) == 6
    assert run.history[0]["iteration"] == 4
    assert gone(env.host)


def test_a_connection_of_the_user_stays(cluster):
    with host(Maze, 2, vectorization="ray") as env:
        env.host.reset([0, 1])
    assert cluster.is_initialized()
