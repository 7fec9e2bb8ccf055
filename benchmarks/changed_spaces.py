"""A trained policy gets three new numbers of its observation: it acts as before, and learns to use them.

    python benchmarks/changed_spaces.py            # five seeds; some minutes
    python benchmarks/changed_spaces.py --quick    # one seed, few steps, nothing written

A point flies in three dimensions, and its reward is minus its distance to a goal. The first policy is trained with the
goal at the origin; it observes position and velocity. Then goals are drawn in each episode. Three runs of the same
length: from this policy, with the goal as three new numbers (`init_from.observations = ["0:6", "new:3"]`); from random
weights, with the same nine numbers; and from this policy without the goal in its observations. `difference` is the
largest difference of a mean action between old and new policy before training.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from ppax.types import EnvReset, EnvStep, part, static

import ppax
from ppax.run.restore import initial_state, state_shapes
from ppax.run.warm_start import prepare, settings_and_object
from report import Report, bar, panel

STEPS, FIRST_STEPS, EVERY, LENGTH = 200_000, 200_000, 4, 50
QUIET = {"console": False}
RUNS = {"new numbers": ("0:6", "new:3"), "from scratch": None, "without them": ()}


class Flight(NamedTuple):
    """State of the point."""

    position: jax.Array  # [3]
    velocity: jax.Array  # [3]
    goal: jax.Array  # [3]


@part
class Point:
    """Point with inertia that is pushed to a goal."""

    far: float = static("largest coordinate of a goal", default=1.0)
    sees_goal: bool = static("whether the goal is observed", default=True)
    num_agents = None
    action_space = spaces.Box(-1.0, 1.0, (3,), np.float32)

    @property
    def observation_space(self) -> spaces.Box:
        """Position, velocity and maybe the goal."""
        return spaces.Box(-np.inf, np.inf, (9 if self.sees_goal else 6,), np.float32)

    def reset(self, key: jax.Array) -> EnvReset:
        """A place and a goal at random, at rest."""
        place_key, goal_key = jax.random.split(key)
        place = jax.random.uniform(place_key, (3,), minval=-1.0, maxval=1.0)
        goal = self.far * jax.random.uniform(goal_key, (3,), minval=-1.0, maxval=1.0)
        state = Flight(place, jnp.zeros(3), goal)
        return EnvReset(state, self._observed(state))

    def step(self, state: Flight, action: jax.Array, key: jax.Array) -> EnvStep:
        """Push the point."""
        velocity = 0.9 * state.velocity + 0.1 * action
        state = Flight(jnp.clip(state.position + 0.3 * velocity, -2.0, 2.0), velocity, state.goal)
        reward = -jnp.linalg.norm(state.position - state.goal)
        return EnvStep(state, self._observed(state), reward, jnp.zeros((), bool), jnp.zeros((), bool))

    def _observed(self, state: Flight) -> jax.Array:
        seen = [state.position, state.velocity] + ([state.goal] if self.sees_goal else [])
        return jnp.concatenate(seen)


def plan(point: Point, steps: int, seed: int) -> Any:
    """Run of this benchmark on an environment."""
    env = ppax.envs.VectorEnv(ppax.envs.TimeLimit(point, LENGTH), 64)
    agent = {"normalize_obs": True}
    return ppax.build(env, total_steps=steps, seed=seed, agent=agent, num_steps=64, log=QUIET)


def measured(seed: int, steps: int, first_steps: int) -> dict[str, Any]:
    """Result of one seed: returns of the first policy, and before and after the training of each of RUNS."""
    first = plan(Point(far=0.0, sees_goal=False), first_steps, seed).fit()
    rows: dict[str, Any] = {"seed": seed, "first": round(first.evaluate(256).mean_return, 3)}
    evaluation = ppax.EvalSettings(every=EVERY, episodes=256)
    for name, items in RUNS.items():
        agent, env, run = plan(Point(sees_goal=items != ()), steps, seed + 100)
        start = None if items is None else ppax.InitFrom(first, observations=items)
        settings = {"num_steps": run.num_steps, "log": run.log, "evaluation": evaluation, "init_from": start}
        done = ppax.fit(agent, env, steps, seed + 100, **settings)
        curve = [(row["env_steps"], row["eval_return"]) for row in done.history if np.isfinite(row["eval_return"])]
        rows[name] = {"steps": [int(x) for x, _ in curve], "returns": [round(float(y), 3) for _, y in curve]}
        if name == "new numbers":
            rows["difference"] = difference(first, (agent, env, run), start)
        print(seed, name, rows[name]["returns"][0], rows[name]["returns"][-1], flush=True)
    return rows


def difference(first: ppax.TrainedRun, begun: Any, start: ppax.InitFrom) -> float:
    """Largest difference of mean actions of the two policies before training, for observations with random goals."""
    agent, env, run = begun
    settings, given = settings_and_object(start)
    state = initial_state(agent, env, run, prepare(agent, state_shapes(agent, env, run), settings, given))
    obs, begins = jax.random.uniform(jax.random.key(1), (1000, 9), minval=-1.5, maxval=1.5), jnp.ones(1000, bool)
    old = first.agent.policy(first.state.learner, (), obs[:, :6], begins, None)
    new = agent.policy(state.learner, (), obs, begins, None)
    return float(jnp.abs(old.distribution.mode() - new.distribution.mode()).max())


def spread(values: list[float]) -> dict[str, float]:
    """Median and range."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def main() -> None:
    """Measure, print, write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a smoke test: one seed, few steps, nothing written")
    options = parser.parse_args()
    seeds = [1000] if options.quick else [1000 + i for i in range(options.seeds)]
    steps, first_steps = (16_384, 16_384) if options.quick else (STEPS, FIRST_STEPS)
    task = "A point that flies to a goal: a trained policy gets the goal as three new numbers of its observation"
    settings = {"seeds": seeds, "steps": steps, "first_steps": first_steps, "runs": RUNS}
    report = Report(None if options.quick else "changed_spaces", task, settings)
    results: list[dict[str, Any]] = []
    for seed in seeds:
        results.append(measured(seed, steps, first_steps))
        print(results[-1]["difference"], flush=True)
        panels = []
        for title, at in (("before training", 0), ("after a tenth of training", None), ("after training", -1)):
            place = len(results[0]["new numbers"]["returns"]) // 10 if at is None else at
            bars = [bar(name, spread([row[name]["returns"][place] for row in results]), None) for name in RUNS]
            panels.append(panel(f"mean return {title}", bars, "higher") | {"parity": False})
        report.save(results=results, panels=panels)
    report.finish()


if __name__ == "__main__":
    main()
