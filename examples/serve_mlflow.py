"""Policy as an MLflow model: train, export, load with MLflow, and balance the pole with the model's actions.

Needs pip install "ppax[mlflow]". The same model is served over HTTP by `mlflow models serve -m pole`.
"""

import tempfile
from pathlib import Path

import gymnasium
import mlflow.pyfunc
import numpy as np

import ppax

ITERATIONS = 60


def main() -> float:
    """Train CartPole, then balance Gymnasium's pole with the MLflow model; return the mean length of episodes."""
    env = ppax.make("CartPole-v1", num_envs=64)
    agent = ppax.PPO(ppax.networks.mlp(env), learning_rate=1e-3, normalize_obs=True)
    run = ppax.fit(agent, env, ITERATIONS * 32 * 64, num_steps=32, log=ppax.Log(console=False))
    with tempfile.TemporaryDirectory() as folder:
        run.policy().export_mlflow(Path(folder) / "pole", return_value=True)
        # from here on, nothing needs ppax or JAX: copy the directory to another machine
        model = mlflow.pyfunc.load_model(f"{folder}/pole")
        lengths = [balance(model, seed) for seed in range(5)]
    print(f"{np.mean(lengths):.0f} steps balanced")
    return float(np.mean(lengths))


def balance(model: mlflow.pyfunc.PyFuncModel, seed: int) -> int:
    """Length of one episode of Gymnasium's own CartPole; the value of its first observation is printed."""
    game = gymnasium.make("CartPole-v1")
    obs, _ = game.reset(seed=seed)
    over, length = False, 0
    while not over:
        out = model.predict({"obs": obs[None]})
        if length == 0:
            print(f"seed {seed}: V = {out['value'][0]:.1f}")
        obs, _, terminated, truncated, _ = game.step(int(out["action"][0]))
        over, length = terminated or truncated, length + 1
    game.close()
    return length


if __name__ == "__main__":
    main()
