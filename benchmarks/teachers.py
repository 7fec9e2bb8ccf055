"""Privileged teacher and student, PPO alone with as many steps, a student of two teachers, and one that sees images.

    python benchmarks/teachers.py            # five seeds of each in one program; some minutes on two cores
    python benchmarks/teachers.py --quick    # a few iterations, nothing written

The world of the first part is that of examples/privileged_teacher.py: a sign tells the key of the door that is four
doors ahead, and a wrong key ends the episode. The teacher sees the key of this door; the student, and PPO alone, see
the signs and have the same memory (GRU). The student follows the teacher by distillation with DAgger's beta from 0.9 to
0. PPO alone has as many steps as teacher and student together.

In the second part doors have two tasks: the key is the sign's, or the opposite one. One teacher was paid for one task,
one for the other, and a student has both: by the task in the observation, or by the value of their own critics.

In the third part a paddle catches ten balls. The teacher sees their state, the student, and PPO alone, images.
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from ppax.types import EnvReset, EnvStep, part, static

import ppax
from ppax.envs import VectorEnv
from ppax.networks.memories import GRU
from ppax.policy import PolicySpec
from report import Report, bar, panel

NUM_ENVS, NUM_STEPS, SEEDS, EPISODES = 32, 32, 5, 128
TEACHER, STUDENT, TASK = 60, 240, 60  # iterations
EXAMPLE = Path(__file__).parents[1] / "examples" / "privileged_teacher.py"
AGENT = {"learning_rate": 2.5e-3}
BETA = 0.9


@part
class TwoTasks:
    """Doors whose key is the sign's in task 0, and the opposite one in task 1; a wrong key ends the episode."""

    pays: tuple[float, ...] = static("reward of a door in each task", default=(1.0, 1.0))

    num_agents = None
    keys, doors = 6, 24
    observation_space = spaces.Dict(sign=spaces.Box(0.0, 1.0, (6,), np.float32), task=spaces.Discrete(2))
    action_space = spaces.Discrete(6)

    def _observe(self, task, sign):
        return {"sign": jax.nn.one_hot(sign, self.keys), "task": task}

    def reset(self, key):
        task_key, sign_key = jax.random.split(key)
        task, sign = jax.random.randint(task_key, (), 0, 2), jax.random.randint(sign_key, (), 0, self.keys)
        return EnvReset((jnp.int32(0), task, sign), self._observe(task, sign))

    def step(self, state, action, key):
        door, task, sign = state
        opens = action == jnp.where(task == 0, sign, self.keys - 1 - sign)
        following = jax.random.randint(key, (), 0, self.keys)
        reward = jnp.where(opens, jnp.float32(self.pays)[task], 0.0)
        after = (door + 1, task, following)
        return EnvStep(after, self._observe(task, following), reward, ~opens, door + 1 >= self.doors)


@part
class Catch:
    """A paddle at the bottom of a screen catches balls, which fall straight down; an episode has ten balls.

    The entry `state` has column and row of the ball and the paddle's column, each one-hot; `camera` is an image of
    8 x 8 pixels, in which ball and paddle have a pixel each.
    """

    num_agents = None
    side, balls = 8, 10
    observation_space = spaces.Dict(
        state=spaces.Box(0.0, 1.0, (24,), np.float32), camera=spaces.Box(0, 255, (8, 8, 1), np.uint8)
    )
    action_space = spaces.Discrete(3)

    def _observe(self, state):
        _, column, row, paddle = state
        camera = jnp.zeros((self.side, self.side, 1), jnp.uint8)
        camera = camera.at[row, column].set(255).at[self.side - 1, paddle].set(255)
        codes = [jax.nn.one_hot(x, self.side) for x in (column, row, paddle)]
        return {"state": jnp.concatenate(codes), "camera": camera}

    def reset(self, key):
        state = jnp.int32(0), jax.random.randint(key, (), 0, self.side), jnp.int32(0), jnp.int32(self.side // 2)
        return EnvReset(state, self._observe(state))

    def step(self, state, action, key):
        ball, column, row, paddle = state
        paddle, row = jnp.clip(paddle + action - 1, 0, self.side - 1), row + 1
        landed = row == self.side - 1
        reward = jnp.where(landed & (column == paddle), 1.0, 0.0)
        column = jnp.where(landed, jax.random.randint(key, (), 0, self.side), column)
        after = ball + landed, column, jnp.where(landed, 0, row), paddle
        return EnvStep(after, self._observe(after), reward, ball + landed >= self.balls, jnp.zeros((), bool))


def trained(agent: ppax.PPO, env: VectorEnv, iterations: int) -> Any:
    """States of all seeds after training, in one program."""
    states = ppax.start_sweep(agent, env, NUM_STEPS, jax.random.split(jax.random.key(7), SEEDS))
    return jax.jit(ppax.sweep)(agent, env, states, iterations, iterations)[0]


def learner_of(states: Any, seed: int) -> Any:
    """Learner of one seed."""
    return jax.tree.map(lambda x: x[seed], states.learner)


def returns(agent: ppax.PPO, env: VectorEnv, states: Any) -> list[float]:
    """Mean return of each seed's policy alone, by the modes of its actions."""
    learners = [learner_of(states, seed) for seed in range(SEEDS)]
    return [float(ppax.evaluate(agent, env, x, jax.random.key(5), EPISODES).mean_return) for x in learners]


def policy_of(agent: ppax.PPO, env: VectorEnv, states: Any) -> ppax.Policy:
    """Policy of the first seed."""
    return ppax.Policy(agent, learner_of(states, 0), PolicySpec(env.observation_space, env.action_space))


def student_of(network: Any, **teachers: Any) -> ppax.PPO:
    """Agent that follows its teachers, which act in a decreasing share of the steps."""
    return ppax.PPO(
        network,
        loss=ppax.losses.NoPolicyLoss(),
        extensions=(ppax.imitation.distill(beta=BETA, **teachers),),
        schedule=ppax.schedules.Linear(leaves=("extensions.distillation.beta",)),
        **AGENT,
    )


def privileged(short: int) -> dict[str, list[float]]:
    """Doors opened by the teacher, its student, and PPO alone."""
    spec = importlib.util.spec_from_file_location(EXAMPLE.stem, EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    env = VectorEnv(example.Doors(), NUM_ENVS)
    sees_all = ppax.networks.network(env, hidden=(32,), actor_obs=("privileged",))
    sees_signs = ppax.networks.network(env, hidden=(), memory=GRU(32), actor_obs=("sign",))
    found = {}
    teacher = ppax.PPO(sees_all, ent_coef=0.01, **AGENT)
    states = trained(teacher, env, TEACHER // short)
    found["teacher"] = returns(teacher, env, states)
    student = student_of(sees_signs, env=env, teacher=policy_of(teacher, env, states))
    found["student"] = returns(student, env, trained(student, env, STUDENT // short))
    alone = ppax.PPO(sees_signs, ent_coef=0.01, **AGENT)
    found["PPO alone"] = returns(alone, env, trained(alone, env, (TEACHER + STUDENT) // short))
    return found


def two_tasks(short: int) -> dict[str, list[float]]:
    """Doors opened in episodes of both tasks by each of two teachers, and by students of both."""
    env, found, teachers = VectorEnv(TwoTasks(), NUM_ENVS), {}, []
    network = ppax.networks.network(env, hidden=(64,))
    for task in range(2):
        paid = VectorEnv(TwoTasks(tuple(float(i == task) for i in range(2))), NUM_ENVS)
        agent = ppax.PPO(network, ent_coef=0.01, **AGENT)
        states = trained(agent, paid, 2 * TASK // short)
        found[f"teacher {task}"] = returns(agent, env, states)
        teachers.append(policy_of(agent, env, states))
    rules = {"by task": ppax.imitation.ByTask("task"), "by value": ppax.imitation.ByValue()}
    for name, select in rules.items():
        student = student_of(network, env=env, teachers=teachers, select=select)
        found[f"student, {name}"] = returns(student, env, trained(student, env, TASK // short))
    return found


def camera(short: int) -> dict[str, list[float]]:
    """Balls caught by a teacher that sees the state, its student that sees images, and PPO alone with images."""
    env, found = VectorEnv(Catch(), NUM_ENVS), {}
    networks = {
        one: ppax.networks.network(env, hidden=(64,), actor_obs=(one,), critic_obs=("state",))
        for one in ("state", "camera")
    }
    teacher = ppax.PPO(networks["state"], ent_coef=0.01, **AGENT)
    states = trained(teacher, env, 2 * TASK // short)
    found["teacher"] = returns(teacher, env, states)
    student = student_of(networks["camera"], env=env, teacher=policy_of(teacher, env, states))
    found["student"] = returns(student, env, trained(student, env, 4 * TASK // short))
    alone = ppax.PPO(networks["camera"], ent_coef=0.01, **AGENT)
    found["PPO alone"] = returns(alone, env, trained(alone, env, 6 * TASK // short))
    return found


def bars_of(found: dict[str, list[float]], targets: dict[str, float]) -> list[dict[str, Any]]:
    """A bar for each agent: the median over seeds with the range."""
    return [
        bar(name.replace(" ", "\n"), {"median": float(np.median(x)), "min": min(x), "max": max(x)}, targets.get(name))
        for name, x in found.items()
    ]


def main() -> None:
    """Measure both parts, print rows, write the results."""
    parser = argparse.ArgumentParser(description="Students of a privileged teacher, and of two teachers.")
    parser.add_argument("--quick", action="store_true", help="a smoke test: nothing written")
    quick = parser.parse_args().quick
    sizes = {"num_envs": NUM_ENVS, "num_steps": NUM_STEPS, "seeds": SEEDS, "agent": AGENT, "beta": BETA}
    sizes |= {"iterations": {"teacher": TEACHER, "student": STUDENT, "PPO alone": TEACHER + STUDENT}}
    task = "Doors opened of 24: a student that sees less than its teacher, one of two; balls caught of 10: images"
    report = Report(None if quick else "teachers", task, sizes)
    panels = []
    short = 30 if quick else 1
    parts = {
        "privileged teacher": privileged,
        "two tasks, a teacher for each": two_tasks,
        "student of images, teacher of the state": camera,
    }
    for name, measure in parts.items():
        found = measure(short)
        for agent, each in found.items():
            print(name, agent, [round(x, 2) for x in each], flush=True)
        best = float(np.median(found["teacher"])) if "teacher" in found else 24.0
        targets = {agent: 0.95 * best for agent in found if agent.startswith("student")}
        panels.append(panel(name, bars_of(found, targets), "higher") | {"parity": False})
        report.save(**{name: found}, panels=panels)
    report.finish()


if __name__ == "__main__":
    main()
