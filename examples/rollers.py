"""Physics of your own: a motorised disc rolls over loose discs to its target, which it senses by LIDAR and direction.

All is in this file: rigid discs that fall, touch, rub and roll, in a view from the side. In the directory of the file:

ppax train rollers:Rollers --trust rollers --env-params.max-steps 100 --total-steps 600_000
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array
from ppax.types import EnvReset, EnvStep, Scalar, number, part, static

import ppax
from ppax.envs import TimeLimit, VectorEnv, lidar, lidar_rays

ITERATIONS, STEPS = 60, 100
HALF = 2.0  # half of the width between the walls, m
SUBSTEPS, DT = 20, 0.0025  # of a step; explicit time steps must be short against the oscillation of a contact, s
PLANES = np.array([[0.0, 1.0], [1.0, 0.0], [-1.0, 0.0]], np.float32)  # normals of floor, left and right wall


class State(NamedTuple):
    """State of K discs, of which the first has the motor."""

    position: Array  # [K, 2] m; the floor is at height 0
    velocity: Array  # [K, 2] m/s
    spin: Array  # [K] rad/s, counterclockwise
    angle: Array  # [K] rad
    target: Array  # [] place on the floor, m


@part
class Rollers:
    """Disc that an external torque drives to a target over `loose` smaller discs, between two walls.

    Observation [5 + rays]: way to the target, velocity (2), speed of its rim and height, then the proximity of the
    nearest surface on each ray. Action [1]: the torque. Reward: by how much it comes closer, and 0.1 at the target.
    """

    torque: Scalar = number("torque of a full action, N m", default=0.5, low=0.0)
    gravity: Scalar = number("gravity, m/s^2", default=9.81, low=0.0)
    friction: Scalar = number("Coulomb's coefficient of friction", default=0.6, low=0.0)
    stiffness: Scalar = number("contact force for each metre of overlap, N/m", default=5000.0, low=0.0)
    damping: Scalar = number("contact force for each unit of approach velocity, N s/m", default=20.0, low=0.0)
    grip: Scalar = number("friction for each unit of slip, up to Coulomb's limit, N s/m", default=8.0, low=0.0)
    reach: Scalar = number("range of the LIDAR, m", default=1.0, above=0.0)
    loose: int = static("number of loose discs", default=4, low=1)
    rays: int = static("rays of the LIDAR", default=16, low=1)

    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    num_agents = None

    @property
    def observation_space(self):
        return spaces.Box(-np.inf, np.inf, (5 + self.rays,), np.float32)

    @property
    def radius(self):
        """Radii [K] in m; a disc's mass is proportional to its area, and the driven one has 1 kg."""
        return jnp.array([0.15] + self.loose * [0.06], jnp.float32)

    def reset(self, key):
        """Drop the driven disc from just above loose discs that lie on the floor, about evenly spaced."""
        place_key, target_key, shift_key = jax.random.split(key, 3)
        low, high = -HALF + 0.2, HALF - 0.2
        place = jax.random.uniform(place_key, (1,), minval=low, maxval=high)
        spots = jnp.linspace(low, high, self.loose, dtype=jnp.float32)
        spots = spots.at[1:-1].add(jax.random.uniform(shift_key, (max(0, self.loose - 2),), minval=-0.2, maxval=0.2))
        height = self.radius.at[0].set(0.35)
        position = jnp.stack([jnp.concatenate([place, spots]), height], axis=-1)
        rest = jnp.zeros_like(height)
        state = State(
            position=position,
            velocity=jnp.zeros_like(position),
            spin=rest,
            angle=rest,
            target=jax.random.uniform(target_key, minval=low, maxval=high),
        )
        return EnvReset(state, self._observe(state))

    def step(self, state, action, key):
        """Apply the torque for 0.05 s, in short time steps. The episode never ends: TimeLimit truncates it."""
        torque = self.torque * jnp.clip(action[0], -1.0, 1.0)
        new = jax.lax.fori_loop(0, SUBSTEPS, lambda _, state: self._move(state, torque), state)
        far, near = (jnp.abs(x.target - x.position[0, 0]) for x in (state, new))
        arrived = near < 0.1
        reward = far - near + jnp.where(arrived, 0.1, 0.0)
        never = jnp.zeros((), bool)
        return EnvStep(new, self._observe(new), reward, never, never, metrics={"arrived": arrived})

    def _move(self, state, torque):
        """Advance by DT: semi-implicit Euler, velocities first."""
        mass = (self.radius / self.radius[0]) ** 2
        inertia = 0.5 * mass * self.radius**2
        force, moment = self._contacts(state)
        fall = jnp.array([0.0, -1.0]) * self.gravity
        velocity = state.velocity + DT * (force / mass[:, None] + fall[None])
        spin = state.spin + DT * moment.at[0].add(torque) / inertia
        return State(state.position + DT * velocity, velocity, spin, state.angle + DT * spin, state.target)

    def _contacts(self, state):
        """Return force [K, 2] and torque [K] of all contacts of each disc with other discs, floor and walls."""
        radius, position = self.radius, state.position
        # the K + 3 things that a disc may touch; `normal` points from them to the disc
        way = position[:, None] - position[None]
        distance = jnp.sqrt((way**2).sum(axis=-1) + 1e-12)
        to_planes = position @ PLANES.T + jnp.array([0.0, HALF, HALF])[None]
        overlap = jnp.concatenate([radius[:, None] + radius[None] - distance, radius[:, None] - to_planes], axis=1)
        overlap = jnp.where(jnp.eye(*overlap.shape, dtype=bool), 0.0, overlap)  # a disc does not touch itself
        planes = jnp.broadcast_to(PLANES, (len(radius), *PLANES.shape))
        normal = jnp.concatenate([way / distance[..., None], planes], axis=1)  # [K, K + 3, 2]
        along = jnp.stack([-normal[..., 1], normal[..., 0]], axis=-1)
        still = jnp.zeros_like(PLANES)
        relative = state.velocity[:, None] - jnp.concatenate([state.velocity, still])[None]
        rim = radius * state.spin
        slip = (relative * along).sum(axis=-1) - rim[:, None] - jnp.concatenate([rim, still[:, 0]])[None]
        approach = (relative * normal).sum(axis=-1)
        push = jnp.maximum(self.stiffness * overlap - self.damping * approach, 0.0)
        push = jnp.where(overlap > 0.0, push, 0.0)  # contacts do not pull
        rub = -jnp.clip(self.grip * slip, -self.friction * push, self.friction * push)
        force = (push[..., None] * normal + rub[..., None] * along).sum(axis=1)
        return force, -radius * rub.sum(axis=1)

    def _observe(self, state):
        place, speed = state.position[0], state.velocity[0]
        walls = jnp.array([-HALF, 0.0]), jnp.array([HALF, jnp.inf])  # no ceiling
        distance = lidar(place, lidar_rays(self.rays), state.position, self.radius, walls) - self.radius[0]
        own = jnp.stack([state.target - place[0], *speed, self.radius[0] * state.spin[0], place[1]])
        return jnp.concatenate([own, 1.0 - jnp.clip(distance / self.reach, 0.0, 1.0)])

    def render(self, state):
        """Return a picture [H, W, 3]; the dark side of a disc shows how it has turned, a red line the target."""
        x, y = np.meshgrid(np.linspace(-HALF, HALF, 400), np.linspace(1.0, 0.0, 100))
        picture = np.full((*x.shape, 3), 250, np.uint8)
        picture[abs(x - float(state.target)) < 0.01] = (202, 62, 57)
        for place, radius, angle in zip(state.position, np.asarray(self.radius), state.angle, strict=True):
            right, up = x - float(place[0]), y - float(place[1])
            disc = np.hypot(right, up) < radius
            dark = right * np.cos(float(angle)) + up * np.sin(float(angle)) > 0.0
            picture[disc] = (56, 108, 176)
            picture[disc & dark] = (30, 60, 100)
        return picture


def main():
    world = Rollers()
    env = VectorEnv(TimeLimit(world, STEPS), 64)
    agent = ppax.PPO(ppax.networks.network(env), learning_rate=1e-3, gamma=0.97, normalize_obs=True)
    begin = ppax.start(agent, env, STEPS, jax.random.key(0)).learner
    before = ppax.evaluate(agent, env, begin, jax.random.key(1))
    run = ppax.fit(agent, env, total_steps=ITERATIONS * 64 * STEPS, num_steps=STEPS)
    after = run.evaluate(episodes=128)
    for name, found in (("untrained", before), ("trained", after)):
        share = found.mean_metrics["arrived"]
        print(f"{name}: mean return {found.mean_return:.2f}, {share:.0%} are at their target at the end")
    # the physics itself: how far bodies overlap, in every fifth state of 300 steps of the trained policy
    path = ppax.trajectory(agent, env, run.state.learner, 300, jax.random.key(2), every=5).env_state
    place, radius = np.asarray(path.position), np.asarray(world.radius)
    gap = np.linalg.norm(place[..., :, None, :] - place[..., None, :, :], axis=-1) - radius[:, None] - radius
    print(f"deepest overlap of two discs: {-gap[..., ~np.eye(len(radius), dtype=bool)].min() * 1000:.1f} mm")
    return before.mean_return, after.mean_return


if __name__ == "__main__":
    main()
