"""JaxMARL's particle environments: simple_spread with one policy, with a central critic; two tasks with groups."""

import jax
from ppax.protocols import Agent

import ppax
from ppax.envs import VectorEnv
from ppax.networks import network

ITERATIONS = 100
OPTIONS = {"learning_rate": 2e-3, "gamma": 0.99, "num_epochs": 4, "schedule": ppax.schedules.Linear()}


def score(name: str, agent: Agent, env: VectorEnv) -> float:
    """Train, print the mean return of each agent or group, and return the mean over all agents."""
    state = ppax.start(agent, env, num_steps=26, key=jax.random.key(0))  # 25 steps of an episode and its autoreset step
    state, _ = jax.jit(ppax.train)(agent, env, state, ITERATIONS)
    result = ppax.evaluate(agent, env, state.learner, jax.random.key(1), 512, deterministic=False)
    print(f"{name}: {', '.join(f'{who} {one.mean_return:.2f}' for who, one in result.by_agent.items())}")
    return result.mean_return


def main() -> dict[str, float]:
    """Train four times; return the mean return of each run."""
    env = ppax.make("jaxmarl/MPE_simple_spread_v3", 64)
    scores = {"one policy": score("spread, one policy", ppax.PPO(network(env), **OPTIONS), env)}
    env = ppax.make("jaxmarl/MPE_simple_spread_v3", 64, agent_ids=True, central_critic=True)
    critic = ppax.critics.PopArt()
    central = ppax.PPO(network(env), critic=critic, **OPTIONS)
    scores["central critic"] = score("spread, central critic", central, env)
    for world in ("MPE_simple_tag_v3", "MPE_simple_speaker_listener_v4"):
        env = ppax.make(f"jaxmarl/{world}", 64)
        agents = {name: ppax.PPO(network(group), **OPTIONS) for name, group in env.groups.items()}
        scores[world] = score(world, ppax.Groups(agents, env.sizes), env)
    return scores


if __name__ == "__main__":
    main()
