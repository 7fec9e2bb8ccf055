"""A trained policy gets three new numbers of its observation: it acts as before, and learns to use them.

    python benchmarks/changed_spaces.py            # three tasks, five seeds; some ten minutes
    python benchmarks/changed_spaces.py --quick    # one seed, few steps, nothing written
    python benchmarks/changed_spaces.py --rows     # why CartPole falls back: three minutes, printed

`point`: a point with inertia flies in three dimensions; its reward is minus its distance to a goal. The first policy
is trained with the goal at the origin, and observes position and velocity. Then goals are drawn in each episode: these
are the three new numbers. The first policy of `point` has 50,000 steps, in which it learns little, and that of
`point, trained long` 200,000, after which most of its mean actions are beyond their bounds. `CartPole`: the first
policy sees the angle alone, with which it reaches about 42; the new numbers are place and velocities.

Three runs of the same length: from the first policy with the new numbers (`init_from.observations`); from random
weights with the same observations; and from the first policy without the new numbers. `difference` is the largest
difference of the policies' outputs before training, for observations at random.

`--rows` has no first policy: the weights of the first layer for place and velocities are those of a new network, a
tenth of them, or 0 as new weights are. It prints the evaluations of each seed.
"""

from __future__ import annotations

import argparse
import dataclasses
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

LENGTH = 50  # of the point's episodes
QUIET = {"console": False}
RUNS = ("new numbers", "from scratch", "without them")
# steps of the first run and of each later one; items of init_from.observations; places of the old numbers
TASKS: dict[str, tuple[int, int, tuple[str, ...], list[int]]] = {
    "point": (50_000, 200_000, ("0:6", "new:3"), [0, 1, 2, 3, 4, 5]),
    "point, trained long": (200_000, 200_000, ("0:6", "new:3"), [0, 1, 2, 3, 4, 5]),
    "CartPole": (100_000, 100_000, ("new:2", "0", "new"), [2]),
}


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


def plan(task: str, steps: int, seed: int, first: bool, seen: bool) -> Any:
    """Run on the environment of the first policy or on the later one, whose new numbers are `seen` or hidden."""
    if task == "CartPole":
        env = ppax.make("CartPole-v1", 64)
        if not seen:
            env = ppax.envs.VectorEnv(ppax.envs.PartialView(env.env, seen=(2,)), 64)
    else:
        point = Point(far=0.0 if first else 1.0, sees_goal=seen)
        env = ppax.envs.VectorEnv(ppax.envs.TimeLimit(point, LENGTH), 64)
    return ppax.build(env, total_steps=steps, seed=seed, agent={"normalize_obs": True}, num_steps=32, log=QUIET)


def measured(task: str, seed: int, quick: bool) -> dict[str, Any]:
    """Result of one seed: the first policy's return, and those of the evaluations of each of RUNS."""
    first_steps, steps, items, places = TASKS[task]
    first_steps, steps = (8192, 16_384) if quick else (first_steps, steps)
    first = plan(task, first_steps, seed, first=True, seen=False).fit()
    rows: dict[str, Any] = {"seed": seed, "first": round(first.evaluate(256).mean_return, 3)}
    evaluation = ppax.EvalSettings(every=max(1, steps // (20 * 64 * 32)), episodes=128)
    starts = (ppax.InitFrom(first, observations=items), None, ppax.InitFrom(first))
    for name, start in zip(RUNS, starts, strict=True):
        agent, env, run = plan(task, steps, seed + 100, first=False, seen=name != "without them")
        settings = {"num_steps": run.num_steps, "log": run.log, "evaluation": evaluation, "init_from": start}
        done = ppax.fit(agent, env, steps, seed + 100, **settings)
        curve = [(row["env_steps"], row["eval_return"]) for row in done.history if np.isfinite(row["eval_return"])]
        rows[name] = {"steps": [int(x) for x, _ in curve], "returns": [round(float(y), 3) for _, y in curve]}
        if name == "new numbers":
            rows["difference"] = difference(first, (agent, env, run), start, places)
        print(task, seed, name, rows[name]["returns"][0], rows[name]["returns"][-1], flush=True)
    return rows


def difference(first: ppax.TrainedRun, begun: Any, start: ppax.InitFrom, places: list[int]) -> float:
    """Largest difference of means or logits of the two policies before training, for observations at random."""
    agent, env, run = begun
    settings, given = settings_and_object(start)
    state = initial_state(agent, env, run, prepare(agent, state_shapes(agent, env, run), settings, given))
    shape = 1000, *env.observation_space.shape
    obs, begins = jax.random.uniform(jax.random.key(1), shape, minval=-1.5, maxval=1.5), jnp.ones(1000, bool)
    old = first.agent.policy(first.state.learner, (), obs[:, places], begins, None).distribution
    new = agent.policy(state.learner, (), obs, begins, None).distribution
    pairs = zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True)
    return max(float(jnp.abs(x - y).max()) for x, y in pairs)


def from_rows(scale: float, seed: int) -> list[float]:
    """Returns of a new network on CartPole, whose weights for place and velocities are multiplied by `scale`."""
    agent, env, run = plan("CartPole", 100_000, seed, first=False, seen=True)
    state = ppax.start(agent, env, run.num_steps, jax.random.key(seed))
    params = state.learner.params
    for tower in ("actor", "critic"):
        layer = params[tower]["0"]
        rows = jnp.array([[scale], [scale], [1.0], [scale]])  # place, velocity, angle, angular velocity
        params = {**params, tower: {**params[tower], "0": {**layer, "kernel": layer["kernel"] * rows}}}
    state = dataclasses.replace(state, learner=state.learner._replace(params=params))
    settings = {"num_steps": run.num_steps, "log": run.log, "init_from": ppax.InitFrom(state, keep=("params",))}
    evaluation = ppax.EvalSettings(every=2, episodes=128)
    done = ppax.fit(agent, env, 100_000, seed + 100, evaluation=evaluation, **settings)
    return [round(row["eval_return"]) for row in done.history if np.isfinite(row["eval_return"])]


def spread(values: list[float]) -> dict[str, float]:
    """Median and range."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def main() -> None:
    """Measure, print, write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a smoke test: one seed, few steps, nothing written")
    parser.add_argument("--rows", action="store_true", help="weights of the new numbers at 0 without a first policy")
    options = parser.parse_args()
    seeds = [1000] if options.quick else [1000 + i for i in range(options.seeds)]
    if options.rows:
        for scale in (1.0, 0.1, 0.0):
            for seed in seeds:
                print(f"weights x {scale}, seed {seed}:", *from_rows(scale, seed), flush=True)
        return
    task = "A trained policy gets three new numbers of its observation: mean return of an evaluation"
    report = Report(None if options.quick else "changed_spaces", task, {"seeds": seeds, "tasks": TASKS, "runs": RUNS})
    results: dict[str, list[dict[str, Any]]] = {}
    for name in TASKS:
        for seed in seeds:
            results.setdefault(name, []).append(measured(name, seed, options.quick))
            print(results[name][-1]["difference"], flush=True)
        panels = []
        for one, rows in results.items():
            tenth = max(1, len(rows[0]["new numbers"]["returns"]) // 10)
            for title, place in (("before training", 0), ("after a tenth", tenth), ("after training", -1)):
                bars = [bar(run, spread([row[run]["returns"][place] for row in rows]), None) for run in RUNS]
                panels.append(panel(f"{one}: {title}", bars, "higher") | {"parity": False})
        report.save(results=results, panels=panels)
    report.finish()


if __name__ == "__main__":
    main()
