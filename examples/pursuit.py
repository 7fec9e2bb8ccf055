"""Pursuit of a prey by two hunters: three independent learners, then the same with self-play against past selves."""

from pathlib import Path

import jax

import ppax
from ppax.agents.self_play import Pool
from ppax.envs import VectorEnv, grouped
from ppax.run import films

ITERATIONS = 200
FILM = Path("pursuit.gif")
OPTIONS = {"learning_rate": 1e-3, "gamma": 0.99, "normalize_obs": True, "normalize_reward": True}


def train(name: str, agent: ppax.Groups | ppax.SelfPlay, env: VectorEnv) -> tuple[ppax.TrainState, float]:
    """Train; print and return the fraction of prey caught, and print mean episode length and Elo ratings."""
    state = ppax.start(agent, env, num_steps=64, key=jax.random.key(0))
    state, metrics = jax.jit(ppax.train)(agent, env, state, ITERATIONS)
    lengths = ppax.evaluate(agent, env, state.learner, jax.random.key(1), 384, deterministic=False).lengths[::3]
    elo = {name: round(float(x)) for name, x in metrics.items() if name.startswith("elo/") and "past" not in name}
    share = float((lengths < 200).mean())
    caught = f"{share:.0%} of {len(lengths)} prey caught, episodes of {lengths.mean() / 100:.2f} s"
    print(f"{name}: {caught} {elo or ''}")
    return state, share


def main() -> tuple[float, float]:
    """Train with independent learners, then with self-play; write a video of the latter."""
    env = grouped(ppax.make("Pursuit-3", num_envs=64), {"prey": [0], "hunters": [1, 2]})
    agents = {name: ppax.PPO(ppax.networks.network(group), **OPTIONS) for name, group in env.groups.items()}
    agents["hunters"] = ppax.Independent(agents["hunters"], 2)
    groups = ppax.Groups(agents, env.sizes)
    _, apart = train("independent learners", groups, env)
    # In half of the environments one group is played by a past self (of eight), whose rows are not learned from
    pool = Pool(every=20, size=8, share=0.5, opponents=2, sampling="hard")
    against_past = ppax.SelfPlay(groups, pool, env.num_envs)
    state, against = train("with past selves", against_past, env)
    played = films.play(against_past, env, state.learner, jax.random.key(2), episodes=3)
    print(f"{films.write_video(FILM, played.frames, 30)} pictures: {FILM}")
    return apart, against


if __name__ == "__main__":
    main()
