"""examples/serve.py: a started process and a real client; batches and a full queue with a policy that waits."""

import contextlib
import importlib.util
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces

import ppax

httpx = pytest.importorskip("httpx")
uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("starlette")
EXAMPLE = Path(__file__).parents[2] / "examples" / "serve.py"


def example():
    spec = importlib.util.spec_from_file_location("serve", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "mine"
    env = ppax.make("CartPole-v1", 2)
    agent = ppax.PPO(ppax.networks.mlp(env, (8,)), num_epochs=1)
    ppax.fit(agent, env, 64, num_steps=8, run_dir=path, log=ppax.Log(console=False))
    return path


@pytest.fixture(scope="module")
def url(run_dir):
    """Address of a process that serves the run."""
    command = [sys.executable, str(EXAMPLE), str(run_dir), "--port", "0", "--max-batch", "8"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def until(condition):
    deadline = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_actions_are_those_of_the_policy_for_clients_at_the_same_time(url, run_dir):
    obs = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    with httpx.Client(base_url=url, timeout=120.0) as client:
        health = client.get("/health")
        assert (health.status_code, health.json()) == (
            200,
            {"status": "ok", "environment": "CartPole-v1", "waiting": 0},
        )
        with ThreadPoolExecutor(16) as pool:
            replies = list(pool.map(lambda x: client.post("/act", json={"observation": x.tolist()}), obs))
    assert {reply.status_code for reply in replies} == {200}
    np.testing.assert_array_equal([reply.json()["action"] for reply in replies], ppax.load(run_dir).act(obs))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "must be"),
        (b"[]", "must be"),
        (b'{"obs": [0, 0, 0, 0]}', "must be"),
        (b'{"observation": [0, 0, 0]}', r"shape \(3,\): must be \(4,\)"),
        (b'{"observation": [[0, 0, 0, 0]]}', r"shape \(1, 4\)"),
        (b'{"observation": [0, 0, 0, NaN]}', "not finite"),
        (b'{"observation": [0, 0, 0, "x"]}', "must be"),
        (b'{"observation": ' + b"[" * 5000, "must be"),
    ],
)
def test_a_bad_request_is_refused_alone(url, content, message):
    reply = httpx.post(f"{url}/act", content=content, timeout=120.0)
    assert reply.status_code == 422
    assert re.search(message, reply.text)


def test_a_request_that_is_too_large_is_refused(url):
    with contextlib.suppress(httpx.WriteError):  # the server may close before it has read everything
        assert httpx.post(f"{url}/act", content=b" " * (2**24 + 1), timeout=120.0).status_code == 413
    assert httpx.get(f"{url}/health", timeout=120.0).status_code == 200


def test_v_is_answered_where_it_is_asked_for(run_dir):
    policy, obs = ppax.load(run_dir), [0.1, 0.2, -0.3, 0.4]
    testclient = pytest.importorskip("starlette.testclient")
    with testclient.TestClient(example().application(policy, max_batch=2, return_value=True)) as client:
        answer = client.post("/act", json={"observation": obs}).json()
    action, value = policy.act(obs, return_value=True)
    assert answer == {"action": int(action), "value": pytest.approx(float(value), rel=1e-5)}
    assert abs(float(value)) > 1e-4


class Waits:
    """Policy that waits for an event; the action is the first number of the observation."""

    def __init__(self):
        self.go, self.batches = threading.Event(), []
        space = spaces.Box(-9.0, 9.0, (2,), np.float32)
        self.spec = SimpleNamespace(observation_space=space, memory={}, masked=False, num_agents=1, env="waits")

    def act(self, obs, deterministic, return_value):
        self.batches.append(len(obs))
        self.go.wait(60.0)
        if (obs < 0).any():
            raise ValueError("negative")
        return obs[:, 0]


@contextlib.contextmanager
def served(policy, **options):
    """Address of a server in a thread."""
    policy.go.set()  # for the batches that compile
    server = uvicorn.Server(
        uvicorn.Config(example().application(policy, **options), port=0, log_level="critical", lifespan="on")
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started)
        policy.go.clear()
        policy.batches.clear()
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        policy.go.set()
        server.should_exit = True
        thread.join()


def ask(url, number):
    return httpx.post(f"{url}/act", json={"observation": [number, 0.0]}, timeout=60.0)


def test_requests_that_wait_are_the_next_batch_and_too_many_are_refused():
    policy = Waits()
    with served(policy, max_batch=8, max_waiting=5) as url, ThreadPoolExecutor(8) as pool:
        first = pool.submit(ask, url, 1.0)
        until(lambda: policy.batches == [1])
        others = [pool.submit(ask, url, float(number)) for number in range(2, 7)]
        until(lambda: httpx.get(f"{url}/health").json()["waiting"] == 5)
        refused = ask(url, 7.0)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        policy.go.set()
        replies = [future.result() for future in (first, *others)]
    assert [reply.status_code for reply in replies] == [200] * 6
    assert [reply.json()["action"] for reply in replies] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert policy.batches == [1, 5]


def test_batches_have_at_most_max_batch_observations():
    policy = Waits()
    with served(policy, max_batch=2, max_waiting=8) as url, ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(ask, url, 1.0)]
        until(lambda: policy.batches == [1])
        futures += [pool.submit(ask, url, 1.0) for _ in range(4)]
        until(lambda: httpx.get(f"{url}/health").json()["waiting"] == 4)
        policy.go.set()
        assert {future.result().status_code for future in futures} == {200}
    assert policy.batches == [1, 2, 2]


def test_a_policy_that_fails_answers_with_an_error_and_goes_on():
    policy = Waits()
    with served(policy) as url:
        policy.go.set()
        assert ask(url, -1.0).status_code == 500
        assert ask(url, 1.0).json() == {"action": 1.0}


def test_every_size_of_batch_is_compiled_before_the_first_request():
    policy = Waits()
    policy.go.set()
    example().Batcher(policy, 6, 10).compile()
    assert policy.batches == [1, 2, 4, 6]


def test_dicts_of_arrays_are_served():
    policy = Waits()
    inner = policy.spec.observation_space
    policy.spec.observation_space = spaces.Dict(
        {"a": inner, "b": spaces.Dict({"c": spaces.Box(0, 255, (3, 1), np.uint8)})}
    )
    shapes = []
    policy.act = lambda obs, deterministic, return_value: (
        shapes.append((obs["a"].shape, obs["b"]["c"].shape, obs["b"]["c"].dtype))
        or obs["a"][:, 0] + obs["b"]["c"][:, 2, 0]
    )
    with served(policy, max_batch=2) as url:
        assert shapes[-1] == ((2, 2), (2, 3, 1), np.uint8)
        answer = httpx.post(
            f"{url}/act", json={"observation": {"a": [1, 0], "b": {"c": [[1], [2], [5]]}}}, timeout=60.0
        )
        assert answer.json() == {"action": 6.0}
        for wrong, text in (
            ([1, 0], "must be an object with a, b"),
            ({"a": [1, 0]}, "must be an object with a, b"),
            ({"a": [1, 0], "b": {"c": [1, 2, 3]}}, "shape (3,): must be (3, 1)"),
            ({"a": [1, 0], "b": {"c": [[1], [2.5], [3]]}}, "numbers that are not whole numbers of uint8"),
            ({"a": [1, 0], "b": {"c": [[1], [256], [3]]}}, "numbers that are not whole numbers of uint8"),
        ):
            answer = httpx.post(f"{url}/act", json={"observation": wrong}, timeout=60.0)
            assert (answer.status_code, text in answer.text) == (422, True)


def test_policies_that_need_a_session_are_refused():
    policy = Waits()
    policy.spec.memory = {"carry": None}
    with pytest.raises(SystemExit, match="without memory"):
        example().application(policy)
