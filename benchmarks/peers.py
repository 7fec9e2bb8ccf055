"""The systems under test, each called in its fastest documented way. Runs inside a worker (worker.py).

All train CartPole-v1 with W1's settings: the same network, sizes and number of gradient steps. What differs by the
design of each system:

* rejax takes two Adam steps, one for the actor and one for the critic, where the others take one for both; it clips
  each element of the gradient and not its norm, clips the value loss, and treats the time limit as a true end. Its
  `train` alternates training with evaluation; here its `train_iteration` is looped without any. It returns no metrics.
* PureJaxRL fixes the number of updates when it is compiled and always starts from fresh weights: its program is
  compiled for the length of a timed run and called again and again, with another key each time. It returns the info of
  every step and environment, clips the value loss, treats the time limit as a true end, and its Adam has an epsilon
  of 1e-5. It is on no package index: the environment variable PUREJAXRL names a folder with `purejaxrl/ppo.py` in it.
  Its wrappers import brax and navix, which CartPole does not use: where they are missing, empty modules stand in.
* PureJaxRL's recurrent PPO (W3) was written for an older Flax; two calls of its GRU cell, changed since, get
  their old form back (`_OldGRU`). It compiles for a fixed length too. Its embedding, GRU and heads are those of W3.
* ppax is called with its defaults: `compute_dtype = "auto"` rounds factors of products to bfloat16 on processors with
  a unit for it. Systems of ppax whose name ends in `-float32` compute in float32, as
  the other libraries always do; those ending in `-bfloat16` have `compute_dtype = "bfloat16"`.
* ppax resets an environment in a separate autoreset row, which is not an environment step: its speed counts valid steps
  only. It returns training metrics, and splits the work over one device per core if that is faster.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import os
import shlex
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ours
import w1
from w1 import Prepared, Trained, Work, compile_timed, timed

FIXED = ("purejaxrl", "purejaxrl-rnn")  # the length of a run is compiled in
FOLDER = "PUREJAXRL"
BEFORE, FOLDER_BEFORE = "before", "PPAX_BEFORE"  # another version of ppax: a checkout that this variable names
UNUSED = {
    "brax": ("brax", "brax.envs", "brax.envs.wrappers", "brax.envs.wrappers.training"),
    "navix": ("navix",),
}


OLD_GYMNAX = Path(__file__).parent / ".gymnax"  # gymnax below 1, where the installed one is newer


def gymnax_version() -> str:
    """Version of the gymnax that rejax and PureJaxRL use; "" without one."""
    folders = [str(OLD_GYMNAX), *sys.path]
    found = [one.version for one in importlib.metadata.distributions(name="gymnax", path=folders)]
    return next((version for version in found if version.startswith("0.")), "")


def use_old_gymnax() -> None:
    """Let `import gymnax` find a version below 1, as rejax and PureJaxRL need: gymnax 1 has another interface.

    That is the installed one, or else one in benchmarks/.gymnax, which is first put there by pip or uv. So these peers
    run in one environment with ppax and its extra `gymnax`, by the same JAX. Raises SystemExit where that fails.
    """
    if not gymnax_version():
        tool = [sys.executable, "-m", "pip"] if importlib.util.find_spec("pip") else ["uv", "pip"]
        command = [*tool, "install", "--quiet", "--no-deps", "--target", str(OLD_GYMNAX), "gymnax<1"]
        print(f"rejax and PureJaxRL need gymnax below 1: {shlex.join(command)}", file=sys.stderr)
        try:
            subprocess.run(command, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise SystemExit(f"{shlex.join(command)} failed, which rejax and PureJaxRL need: {error}") from error
    if (OLD_GYMNAX / "gymnax").is_dir():
        sys.path.insert(0, str(OLD_GYMNAX))


# ---------------------------------------------------------------- rejax


def prepare_rejax(work: Work) -> Prepared:
    """rejax's training iteration in the loop of its own `train`, without the evaluations; state donated."""
    import jax
    from rejax import PPO

    agent = PPO.create(
        env="CartPole-v1",
        agent_kwargs={"hidden_layer_sizes": w1.HIDDEN, "activation": "tanh"},
        num_envs=work.num_envs,
        num_steps=w1.NUM_STEPS,
        num_epochs=w1.EPOCHS,
        num_minibatches=w1.MINIBATCHES,
        learning_rate=w1.LEARNING_RATE,
        max_grad_norm=w1.MAX_GRAD_NORM,
        gamma=w1.GAMMA,
        gae_lambda=w1.GAE_LAMBDA,
        clip_eps=w1.CLIP_EPS,
        vf_coef=w1.VF_COEF,
        ent_coef=w1.ENT_COEF,
    )

    def train(state: Any, iterations: Any) -> Any:
        return jax.lax.fori_loop(0, iterations, lambda _, state: agent.train_iteration(state), state)

    start, start_seconds = timed(lambda: jax.block_until_ready(jax.jit(agent.init_state)(jax.random.key(work.seed))))
    program, seconds = compile_timed(jax.jit(train, donate_argnums=0), start, 1)
    held = {"state": start}

    def run(iterations: int) -> Trained:
        held["state"], elapsed = timed(lambda: jax.block_until_ready(program(held["state"], iterations)))
        return Trained(elapsed, work.rows(iterations))

    return run, {"start_seconds": start_seconds, **seconds}


# ---------------------------------------------------------------- PureJaxRL


def prepare_purejaxrl(work: Work, module: str = "ppo") -> Prepared:
    """PureJaxRL's whole `train`, for `work.iterations` updates; for many seeds under `jax.vmap`, as its README says."""
    import jax

    ppo = load_purejaxrl(module)
    total = work.iterations * w1.NUM_STEPS * work.num_envs
    own = {"NUM_ENVS": work.num_envs, "TOTAL_TIMESTEPS": total, "LR": w1.LEARNING_RATE, "ANNEAL_LR": False}
    train, keys = ppo.make_train(purejaxrl_config(**own)), jax.random.split(jax.random.PRNGKey(work.seed), 1000)
    if work.num_seeds > 1:
        train = jax.vmap(train)
        keys = jax.vmap(lambda key: jax.random.split(key, work.num_seeds))(keys)
    program, seconds = compile_timed(jax.jit(train), keys[0])
    left = iter(keys)

    def run(iterations: int) -> Trained:
        if iterations != work.iterations:
            raise ValueError(f"compiled for {work.iterations} updates, asked for {iterations}")
        key = jax.block_until_ready(next(left))
        _, elapsed = timed(lambda: jax.block_until_ready(program(key)))
        return Trained(elapsed, work.rows(iterations))

    return run, seconds


def purejaxrl_config(**changes: Any) -> dict[str, Any]:
    """The settings in the main program of its ppo.py, with some changed."""
    own = {"LR": 2.5e-4, "NUM_ENVS": 4, "NUM_STEPS": 128, "TOTAL_TIMESTEPS": 5e5, "UPDATE_EPOCHS": 4}
    own |= {"NUM_MINIBATCHES": 4, "GAMMA": 0.99, "GAE_LAMBDA": 0.95, "CLIP_EPS": 0.2, "ENT_COEF": 0.01}
    own |= {"VF_COEF": 0.5, "MAX_GRAD_NORM": 0.5, "ACTIVATION": "tanh", "ENV_NAME": "CartPole-v1"}
    return own | {"ANNEAL_LR": True, "DEBUG": False} | changes


def purejaxrl_folder() -> Path | None:
    """Where PureJaxRL lies; None where it was not named. Raises SystemExit where it is not there."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return None
    if not (Path(folder) / "purejaxrl" / "ppo.py").is_file():
        raise SystemExit(f"{FOLDER}={folder}: there is no purejaxrl/ppo.py; name a checkout, or unset it")
    return Path(folder)


class _Stub(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return object


@functools.cache
def load_purejaxrl(module: str = "ppo") -> Any:
    """Its module `ppo`, or `ppo_rnn`."""
    folder = purejaxrl_folder()
    if folder is None:
        raise SystemExit(f"{FOLDER} is not set: it names a folder with purejaxrl/ppo.py in it")
    use_old_gymnax()
    for package, names in UNUSED.items():
        if importlib.util.find_spec(package) is None:
            sys.modules |= {name: _Stub(name) for name in names}
    sys.path.insert(0, str(folder / "purejaxrl"))
    loaded = importlib.import_module(module)
    if module == "ppo_rnn":
        loaded.nn = _OldFlax()
    return loaded


class _OldFlax:
    """flax.linen, with the calls of the GRU cell as they were when PureJaxRL's recurrent PPO was written."""

    def __getattr__(self, name: str) -> Any:
        from flax import linen

        return _OldGRU if name == "GRUCell" else getattr(linen, name)


class _OldGRU:
    def __new__(cls) -> Any:
        from flax import linen

        return linen.GRUCell(features=w1.MEMORY_WIDTH)

    @staticmethod
    def initialize_carry(key: Any, batch: tuple[int, ...], size: int) -> Any:
        import jax.numpy as jnp

        return jnp.zeros((*batch, size))


PREPARE: dict[str, Callable[[Work], Prepared]] = {
    "ppax": ours.prepare_ppax,
    "ppax-float32": functools.partial(ours.prepare_ppax, dtype="float32"),
    "ppax-bfloat16": functools.partial(ours.prepare_ppax, dtype="bfloat16"),
    BEFORE: ours.prepare_ppax,
    "ppax-chunks": lambda work: ours.prepare_ppax(work, chunk_rows=2**20),
    **{f"ppax-unroll{n}": functools.partial(ours.prepare_ppax, unroll=n) for n in (1, 16)},
    "program": lambda work: ours.prepare_ppax(work, afresh=True),
    "fit": ours.prepare_fit,
    "sweep": ours.prepare_sweep,
    "rejax": prepare_rejax,
    "purejaxrl": prepare_purejaxrl,
    "purejaxrl-rnn": lambda work: prepare_purejaxrl(work, "ppo_rnn"),
    **{
        f"ppax-{name}{end}": functools.partial(ours.prepare_ppax, memory=name, dtype=dtype)
        for name in ours.MEMORIES
        for dtype, end in ours.DTYPES.items()
    },
}
