"""Pursuit of a prey by two hunters: three independent learners, then the same with self-play against past selves."""

from pathlib import Path

import ppax
from ppax.envs import VectorEnv, grouped

ITERATIONS, STEPS = 200, 64
FILM = Path("pursuit.gif")
OPTIONS = {"learning_rate": 1e-3, "gamma": 0.99, "normalize_obs": True, "normalize_reward": True}


def train(name: str, agent: ppax.Groups | ppax.SelfPlay, env: VectorEnv) -> tuple[ppax.TrainedRun, float]:
    """Train; print and return the fraction of prey caught, and print mean episode length and Elo ratings."""
    total = ITERATIONS * STEPS * env.num_streams
    run = ppax.fit(agent, env, total, num_steps=STEPS, log=ppax.Log(console=False))
    found = run.evaluate(episodes=384, deterministic=False)
    share = found.mean_metrics["caught"]
    elo = {key: round(x) for key, x in run.history[-1].items() if key.startswith("elo/") and "past" not in key}
    caught = f"{share:.0%} of {len(found.lengths) // 3} prey caught, episodes of {found.mean_length / 100:.2f} s"
    print(f"{name}: {caught} {elo or ''}")
    return run, share


def main() -> tuple[float, float]:
    """Train with independent learners, then with self-play; write a video of the latter."""
    env = grouped(ppax.make("Pursuit-3", num_envs=64), {"prey": [0], "hunters": [1, 2]})
    agents = {name: ppax.PPO(ppax.networks.network(group), **OPTIONS) for name, group in env.groups.items()}
    agents["hunters"] = ppax.Independent(agents["hunters"], 2)
    groups = ppax.Groups(agents, env.sizes)
    _, apart = train("independent learners", groups, env)
    # In half of the environments one group is played by a past self (of eight), whose rows are not learned from
    pool = ppax.Pool(every=20, size=8, share=0.5, opponents=2, sampling="hard")
    run, against = train("with past selves", ppax.SelfPlay(groups, pool, env.num_envs), env)
    film = ppax.film(run, FILM, episodes=3)
    print(f"{film.frames} pictures: {FILM}")
    return apart, against


if __name__ == "__main__":
    main()
