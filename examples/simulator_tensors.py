"""Simulator whose state is tensors on a device: MuJoCo Warp steps, JAX acts and learns, and both read the same memory.

Needs `pip install mujoco-warp torch`. With GPU versions of PyTorch and JAX, the data of a step stay on the GPU; set
XLA_PYTHON_CLIENT_PREALLOCATE=false, since JAX otherwise preallocates three quarters of its memory.
"""

import jax
import mujoco
import mujoco_warp
import numpy as np
import torch
import warp
from gymnasium import spaces

import ppax

ITERATIONS, NUM_ENVS, LIMIT = 25, 64, 200
XML = """
<mujoco>
  <option timestep="0.02" integrator="Euler"/>
  <worldbody>
    <body name="cart">
      <joint name="slide" type="slide" axis="1 0 0" damping="0.1"/>
      <geom type="box" size="0.1 0.05 0.05" mass="1" contype="0" conaffinity="0"/>
      <body name="pole">
        <joint name="hinge" type="hinge" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 0 0 0.6" size="0.02" mass="0.1" contype="0" conaffinity="0"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="slide" gear="10"/></actuator>
</mujoco>
"""


class Poles:
    """Carts with a pole: reward 1 per step until the pole falls or the cart leaves; truncated after LIMIT steps.

    Observations are the simulator's own arrays, which every step overwrites.
    """

    num_envs = NUM_ENVS
    single_observation_space = spaces.Dict({name: spaces.Box(-np.inf, np.inf, (2,)) for name in ("qpos", "qvel")})
    single_action_space = spaces.Box(-1.0, 1.0, (1,))

    def __init__(self, device):
        self.device, model = torch.device(device), mujoco.MjModel.from_xml_string(XML)
        with warp.ScopedDevice(device):
            self.model = mujoco_warp.put_model(model)
            self.data = mujoco_warp.make_data(model, nworld=NUM_ENVS)
        arrays = self.data.qpos, self.data.qvel, self.data.ctrl
        self.qpos, self.qvel, self.ctrl = (warp.to_torch(x) for x in arrays)  # the same memory
        self.age = torch.zeros(NUM_ENVS, device=self.device)

    def reset(self, seed=None):
        """Begin an episode in all environments."""
        self.random = torch.Generator(self.device).manual_seed(seed or 0)
        self._start(torch.ones(NUM_ENVS, dtype=torch.bool, device=self.device))
        return {"qpos": self.qpos, "qvel": self.qvel}, {}

    def step(self, action):
        """Push the carts, and begin the next episode where one has ended."""
        self.ctrl.copy_(action)
        with warp.ScopedDevice(self.data.qpos.device):
            mujoco_warp.step(self.model, self.data)
        self.age += 1
        terminated = (self.qpos[:, 1].abs() > 0.2) | (self.qpos[:, 0].abs() > 1.0)
        truncated = self.age >= LIMIT
        final = {"qpos": self.qpos.clone(), "qvel": self.qvel.clone()}
        self._start(terminated | truncated)
        obs, reward = {"qpos": self.qpos, "qvel": self.qvel}, torch.ones_like(self.age)
        return obs, reward, terminated, truncated, {"final_obs": final}

    def _start(self, where):
        for x in (self.qpos, self.qvel):
            start = 0.1 * torch.rand(x.shape, generator=self.random, device=self.device) - 0.05
            x.copy_(torch.where(where[:, None], start, x))
        self.age.masked_fill_(where, 0.0)


def main():
    """Train, and return the mean length of the last episodes."""
    simulator = Poles("cuda" if jax.default_backend() == "gpu" else "cpu")
    with ppax.envs.host(ppax.envs.TensorBatch(simulator, exchange="dlpack")) as env:
        agent = ppax.PPO(ppax.networks.network(env, hidden=(32, 32)), learning_rate=3e-3, gamma=0.98, num_epochs=4)
        run = ppax.fit(agent, env, ITERATIONS * 64 * NUM_ENVS, num_steps=64)
        print(
            f"episodes of {run.history[0]['episode_length']:.0f} steps became {run.history[-1]['episode_length']:.0f}"
        )
        return run.history[-1]["episode_length"]


if __name__ == "__main__":
    main()
