"""Groups on the host: three hunters and a prey of PettingZoo's simple_tag, each group with its own policy.

Needs `pip install "ppax[pettingzoo]"`.
"""

import jax

import ppax
from ppax.networks import network

ITERATIONS = 60


def main() -> dict[str, float]:
    """Train; return the mean return of each group, before and after."""
    # worker processes step half of the environments while the policy acts for the other half
    with ppax.make("pettingzoo/mpe/simple_tag_v3", 16, vectorization="async") as env:
        options = {"learning_rate": 2e-3, "num_epochs": 4, "schedule": ppax.schedules.Linear()}
        # groups by the names of PettingZoo's agents: adversary (3 agents with 16 inputs) and agent (1 agent with 14)
        agents = {name: ppax.PPO(network(group), **options) for name, group in env.groups.items()}
        groups = ppax.Groups(agents, env.sizes)
        untrained = groups.init(env.observation_space, jax.random.key(0))
        scores = {"before": ppax.evaluate(groups, env, untrained, jax.random.key(1), 256)}
        steps = 26  # 25 steps of an episode, and the autoreset step
        run = ppax.fit(groups, env, ITERATIONS * env.num_streams * steps, num_steps=steps)
        scores["after"] = run.evaluate(256)
    for when, result in scores.items():
        print(f"{when}: {', '.join(f'{who} {one.mean_return:.1f}' for who, one in result.by_agent.items())}")
    return {f"{name} {when}": scores[when].by_agent[name].mean_return for when in scores for name in env.groups}


if __name__ == "__main__":
    main()
