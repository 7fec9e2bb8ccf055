"""How a policy of brax/halfcheetah runs: its speed, and what its feet do on the ground.

    pip install "ppax[brax]"
    ppax train brax/halfcheetah --preset none --total-steps 2_000_000 --run-dir cheetah   # half an hour on two cores
    python benchmarks/halfcheetah_gait.py cheetah

It plays one episode of 1,000 steps in Brax's own environment, and prints for each 100 steps the mean speed, and for
each foot the share of time in which it touches the ground, the median speed of the foot along the ground meanwhile, and
how deep it was below the ground at most. A foot that pushes the body forward by friction stands still on the ground;
one whose speed is that of the body slides.
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from brax import envs

import ppax

STEPS, PART = 1_000, 100
TOUCHES = 0.01  # m above the ground


def play(run_dir: str) -> tuple[np.ndarray, float, Any]:
    """Positions of the joints [STEPS, nq] in an episode, its return, and MuJoCo's model of the body."""
    env, policy = envs.get_environment("halfcheetah"), ppax.load(run_dir)
    step = jax.jit(env.step)
    state = jax.jit(env.reset)(jax.random.key(0))
    positions, total = [], 0.0
    for _ in range(STEPS):
        action = np.clip(policy.act(np.asarray(state.obs)), -1.0, 1.0)
        state = step(state, jnp.asarray(action))
        positions.append(np.asarray(state.pipeline_state.q))
        total += float(state.reward)
    return np.array(positions), total, env.sys.mj_model


def lowest_points(model: Any, positions: np.ndarray, geom: int) -> np.ndarray:
    """Place along the track and height above the ground of a capsule's lowest point, [STEPS, 2]."""
    data, found = mujoco.MjData(model), []
    for q in positions:
        data.qpos[:] = q
        mujoco.mj_kinematics(model, data)
        half = data.geom_xmat[geom].reshape(3, 3)[:, 2] * model.geom_size[geom, 1]
        end = min((data.geom_xpos[geom] + half, data.geom_xpos[geom] - half), key=lambda point: float(point[2]))
        found.append((end[0], end[2] - model.geom_size[geom, 0]))
    return np.array(found)


def main() -> None:
    """Play and print."""
    if len(sys.argv) != 2:
        raise SystemExit("python benchmarks/halfcheetah_gait.py RUN_DIR")
    positions, total, model = play(sys.argv[1])
    seconds = 0.05  # of a step
    names = {name: mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_GEOM, name) for name in ("bfoot", "ffoot")}
    feet = {name: lowest_points(model, positions, geom) for name, geom in names.items()}
    print(f"return {total:,.0f}; turns of the body {abs(positions[-1, 2] - positions[0, 2]) / (2 * np.pi):.2f}")
    for begin in range(0, STEPS, PART):
        part = slice(begin, begin + PART)
        cells = [f"body {np.diff(positions[part, 0]).mean() / seconds:5.1f} m/s"]
        for name, points in feet.items():
            place, height = points[part].T
            touching = height < TOUCHES
            both = touching[1:] & touching[:-1]
            slip = f"{np.median(np.diff(place)[both]) / seconds:.1f} m/s" if both.any() else "-"
            cells.append(f"{name} touches {touching.mean():.0%}, then at {slip}, lowest {height.min():.3f} m")
        print(f"steps {begin + 1:>4} to {begin + PART:>5}: {'; '.join(cells)}")


if __name__ == "__main__":
    main()
