"""Signals while a program computes: `jax.device_get`, by which runs and sweeps wait for one, lets handlers run."""

import signal
from types import FrameType

import jax
import jax.numpy as jnp
import pytest


@pytest.mark.parametrize("get", [jax.device_get, lambda tree: jax.device_get({"a": tree, "b": tree})])
def test_handlers_run_while_the_host_waits_for_a_program(get: object) -> None:
    running: list[bool] = []

    def handler(number: int, frame: FrameType | None) -> None:
        running.append(not result.is_ready())

    before = signal.signal(signal.SIGALRM, handler)
    # products, as JAX runs programs without much work in the main thread
    result = jax.jit(lambda n: jax.lax.fori_loop(0, n, lambda i, x: jnp.tanh(x @ x), jnp.eye(128)))(jnp.int32(20_000))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert callable(get)
        get(result)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert running == [True]
