"""Use of a trained policy without ppax: train, export, and balance the pole with the NumPy reader of the bundle."""

import importlib.util
import zipfile
from pathlib import Path
from types import ModuleType

import gymnasium
import numpy as np

import ppax

ITERATIONS = 60


def main() -> float:
    """Train CartPole, then balance Gymnasium's pole with the exported policy; return the mean length of episodes."""
    env = ppax.make("CartPole-v1", num_envs=64)
    agent = ppax.PPO(ppax.networks.mlp(env), learning_rate=1e-3, normalize_obs=True)
    run = ppax.fit(agent, env, ITERATIONS * 32 * 64, num_steps=32, log=ppax.Log(console=False))
    written = run.policy().export("pole.zip", formats=["numpy"])
    print(f"pole.zip: {written.path.stat().st_size:,} bytes, {', '.join(written.differences)}")

    # from here on, nothing needs ppax or JAX: copy the bundle to another machine
    policy = reader_of("pole.zip").NumpyPolicy("pole.zip")
    lengths = [balance(policy, seed) for seed in range(5)]
    print(f"{np.mean(lengths):.0f} steps balanced")
    return float(np.mean(lengths))


def reader_of(bundle: str) -> ModuleType:
    """Import the file `numpy_policy.py` of a bundle of your own: it is code, unlike all other files in it."""
    path = Path("numpy_policy.py")
    path.write_bytes(zipfile.ZipFile(bundle).read(path.name))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def balance(policy: object, seed: int) -> int:
    """Length of one episode of Gymnasium's own CartPole."""
    game = gymnasium.make("CartPole-v1")
    obs, _ = game.reset(seed=seed)
    over, length = False, 0
    while not over:
        out = policy({"obs": obs[None], "first": [length == 0]})
        obs, _, terminated, truncated, _ = game.step(int(out["action"][0]))
        over, length = terminated or truncated, length + 1
    game.close()
    return length


if __name__ == "__main__":
    main()
