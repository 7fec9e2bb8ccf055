"""Privileged teacher: a student that sees less than its teacher, and PPO from the student.

Behind each door stands another one. A sign tells the key of the door that is four doors ahead, so that an agent that
sees the signs alone must remember them; the simulator knows the key of the door at hand. A wrong key ends the episode.
A teacher that sees the simulator's entry learns the task in seconds. Its student sees the signs, has a memory and
follows the teacher, which acts in a decreasing share of the steps (DAgger). Then PPO goes on from the student; at
first its critic learns alone.
"""

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from ppax.types import EnvReset, EnvStep, part, static

import ppax
from ppax.envs import VectorEnv
from ppax.networks.memories import GRU

ITERATIONS = 60  # of the teacher; the student has four times as many
NUM_STEPS = 32


@part
class Doors:
    """Doors with keys; a sign tells the key of the door `ahead` doors further, the first ones have key 0."""

    ahead: int = static("doors between a sign and its door", default=4, low=0)
    keys: int = static("number of keys", default=6, low=2)
    doors: int = static("number of doors of an episode", default=24, low=1)

    num_agents = None

    @property
    def observation_space(self):
        """Key of a door ahead, which the student sees, and key of this door, which the simulator knows."""
        one = spaces.Box(0.0, 1.0, (self.keys,), np.float32)
        return spaces.Dict(sign=one, privileged=one)

    @property
    def action_space(self):
        """One of the keys."""
        return spaces.Discrete(self.keys)

    def _observe(self, right, door):
        hot = jax.nn.one_hot(right, self.keys)
        return {"sign": hot[door + self.ahead], "privileged": hot[door]}

    def reset(self, key):
        """Draw the right keys of all doors."""
        right = jax.random.randint(key, (self.doors + self.ahead + 1,), 0, self.keys)
        right = jnp.where(jnp.arange(len(right)) < self.ahead, 0, right)  # no sign has told them
        return EnvReset((jnp.int32(0), right), self._observe(right, 0))

    def step(self, state, action, key):
        """Open a door with the right key, or end the episode."""
        door, right = state
        opens = action == right[door]
        after = (door + 1, right)
        return EnvStep(after, self._observe(right, door + 1), opens.astype(jnp.float32), ~opens, door + 1 >= self.doors)


def main() -> dict[str, float]:
    """Train the teacher, its student, and PPO from the student; print and return mean numbers of opened doors."""
    env = VectorEnv(Doors(), 32, name="Doors")
    total, log = ITERATIONS * NUM_STEPS * env.num_streams, ppax.Log(console=False)

    sees_all = ppax.networks.network(env, hidden=(32,), actor_obs=("privileged",))
    teacher = ppax.fit(
        ppax.PPO(sees_all, learning_rate=2.5e-3, ent_coef=0.01), env, total, num_steps=NUM_STEPS, log=log
    )

    sees_signs = ppax.networks.network(env, hidden=(), memory=GRU(32), actor_obs=("sign",))
    student = ppax.fit(
        ppax.PPO(
            sees_signs,
            learning_rate=2.5e-3,
            loss=ppax.losses.NoPolicyLoss(),
            extensions=(ppax.imitation.distill(env, teacher.policy(), beta=0.9),),
            schedule=ppax.schedules.Linear(leaves=("extensions.distillation.beta",)),
        ),
        env,
        4 * total,
        num_steps=NUM_STEPS,
        log=log,
    )
    policy = student.policy()
    policy.act({"sign": np.zeros(env.action_space.n, np.float32)})  # acting needs no privileged entry

    # PPO from the student; at first the critic alone learns, whose values were those of a mixture of both policies
    tuned = ppax.PPO(
        sees_signs,
        learning_rate=3e-4,
        optimizer=ppax.optimizers.ActorCritic(),
        extensions=(ppax.extensions.CriticWarmup(steps=total / 4),),
    )
    run = ppax.fit(tuned, env, total, num_steps=NUM_STEPS, init_from=student, log=log)

    runs = {"teacher": teacher, "student": student, "PPO from the student": run}
    scores = {name: one.evaluate(episodes=64).mean_return for name, one in runs.items()}
    for name, score in scores.items():
        print(f"{name}: {score:.1f} doors")
    return scores


if __name__ == "__main__":
    main()
