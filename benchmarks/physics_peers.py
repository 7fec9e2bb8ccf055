"""ppax and Brax's PPO on environments of Brax and MuJoCo Playground. Runs inside a worker (worker.py).

Both train with the same number of environments, steps, epochs, minibatches and network sizes, observations normalised.
What differs by the design of each system:

* Brax's `train` compiles an epoch of a fixed number of training steps. Here it runs in a thread and waits in its
  `progress_fn` for the next order, so epochs take turns with the other system. Its evaluations are off.
* Brax computes advantages again in every minibatch, samples from a squashed normal distribution whose spread depends on
  the state, and every episode begins in the same state. It uses all devices, ppax as many as its rules say.
* ppax resets an environment in a separate autoreset row, which is not an environment step: it counts valid steps.
"""

from __future__ import annotations

import dataclasses
import functools
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import ours
import w1
from w1 import Prepared, Trained, Work

NUM_STEPS, MINIBATCHES, HIDDEN = 16, 8, (128, 128)
EPOCHS_OF_BRAX = 10_000  # as many as anyone could ask for


class Task(NamedTuple):
    """An environment, as both systems name it."""

    ppax: str
    load: Callable[[], dict[str, Any]]  # arguments of Brax's `train` that are of the environment


def _ant() -> dict[str, Any]:
    from brax import envs

    return {"environment": envs.get_environment("ant"), "episode_length": 1000}


def _cartpole() -> dict[str, Any]:
    from mujoco_playground import registry, wrapper

    config = registry.get_default_config("CartpoleBalance")
    env = registry.load("CartpoleBalance", config, config_overrides={"impl": "jax"} if "impl" in config else None)
    sizes = {"episode_length": int(config.episode_length), "action_repeat": int(config.action_repeat)}
    return {"environment": env, "wrap_env_fn": wrapper.wrap_for_brax_training, **sizes}


TASKS = {"ant": Task("brax/ant", _ant), "playground": Task("playground/CartpoleBalance", _cartpole)}


def prepare_ppax(work: Work, task: str) -> Prepared:
    """`ppax.compile` of a network in W1's agent, observations normalised."""
    import jax

    import ppax
    from ppax.networks import mlp
    from ppax.ppo.minibatches import Shuffle

    env = ppax.make(TASKS[task].ppax, work.num_envs)
    own = {"minibatch": Shuffle(MINIBATCHES), "seq_len": NUM_STEPS, "normalize_obs": True}  # Brax shuffles sequences
    agent = dataclasses.replace(ours.agent_with(mlp(env, hidden=HIDDEN, activation="silu")), **own)
    state = jax.jit(lambda key: ppax.start(agent, env, NUM_STEPS, key))(jax.random.key(work.seed))
    program = ppax.compile(agent, env, state)
    held = {"state": state}

    def run(iterations: int) -> Trained:
        before = ours.count_steps(held["state"])
        result, elapsed = w1.timed(
            lambda: jax.block_until_ready(program(agent, env, held["state"], iterations, iterations))
        )
        held["state"] = result[0]
        return Trained(elapsed, ours.count_steps(held["state"]) - before)

    return run, {"compile_seconds": program.compile_seconds}


class Turns:
    """Brax's `train` in a thread: it computes an epoch for each order, and waits for the next."""

    def __init__(self, train: Callable[..., Any]):
        self._orders: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, args=(train,), daemon=True).start()  # ends with the process

    def _run(self, train: Callable[..., Any]) -> None:
        try:
            self._orders.get()
            train(progress_fn=self._progress)
        except BaseException as error:
            self._answers.put(error)

    def _progress(self, *_: Any) -> None:
        self._answers.put(None)
        self._orders.get()

    def take(self) -> float:
        """Seconds of one epoch; raises what `train` raised."""
        start = time.perf_counter()
        self._orders.put(None)
        error = self._answers.get()
        if error is not None:
            raise error
        return time.perf_counter() - start


def _replicated(tree: Any, devices: Any) -> Any:
    """`jax.device_put_replicated`, which jax 0.10 no longer has and Brax 0.14 calls: a leading axis of devices."""
    import jax
    import jax.numpy as jnp

    return jax.tree.map(lambda x: jnp.stack([x] * len(devices)), tree)


def prepare_brax(work: Work, task: str) -> Prepared:
    """Brax's `train`, in epochs of `work.iterations` training steps."""
    import jax
    from brax.training.agents.ppo import networks, train

    jax.device_put_replicated = _replicated
    given = TASKS[task].load()
    steps = work.iterations * work.num_envs * NUM_STEPS * given.get("action_repeat", 1)
    sizes = {"policy_hidden_layer_sizes": HIDDEN, "value_hidden_layer_sizes": HIDDEN}
    call = functools.partial(
        train.train,
        **given,
        num_timesteps=EPOCHS_OF_BRAX * steps,
        num_evals=EPOCHS_OF_BRAX + 1,
        run_evals=False,
        num_envs=work.num_envs,
        unroll_length=NUM_STEPS,
        batch_size=work.num_envs // MINIBATCHES,
        num_minibatches=MINIBATCHES,
        num_updates_per_batch=w1.EPOCHS,
        normalize_observations=True,
        learning_rate=w1.LEARNING_RATE,
        entropy_cost=w1.ENT_COEF,
        discounting=w1.GAMMA,
        max_grad_norm=w1.MAX_GRAD_NORM,
        network_factory=functools.partial(networks.make_ppo_networks, **sizes),
        seed=work.seed,
    )
    turns = Turns(call)
    first = turns.take()  # compiles

    def run(iterations: int) -> Trained:
        if iterations != work.iterations:
            raise ValueError(f"compiled for {work.iterations} training steps, asked for {iterations}")
        return Trained(turns.take(), work.iterations * work.num_envs * NUM_STEPS)

    return run, {"start_seconds": first}


PREPARE: dict[str, Callable[[Work], Prepared]] = {}
for _task in TASKS:
    PREPARE |= {
        f"ppax-{_task}": functools.partial(prepare_ppax, task=_task),
        f"brax-{_task}": functools.partial(prepare_brax, task=_task),
    }
FIXED = tuple(name for name in PREPARE if name.startswith("brax"))
