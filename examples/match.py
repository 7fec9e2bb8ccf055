"""Teams of a PettingZoo environment whose agents die: two methods train, then `ppax.match` lets them play each other.

One method is one policy for all four agents, the other a policy with a memory for each team. A third player has not
been trained. Agents keep their names: in metrics, in the dicts of `policy.act`, in the sides of the match.
"""

import numpy as np
from gymnasium import spaces

import ppax
from ppax.networks import memories, network

ITERATIONS, GAMES = 30, 200


class Battle:
    """Each living agent hides or shoots: a shot hits one of the living enemies with probability 0.3, hidden ones 0.2.

    Who hits gets 1, who is hit gets -1 and is dead. The game ends when a team is out, or after 20 steps.
    """

    possible_agents = ("red_0", "red_1", "blue_0", "blue_1")

    def observation_space(self, agent):
        return spaces.Box(0.0, 1.0, (4,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents, self.time = list(self.possible_agents), 0
        return self.seen(), {agent: {} for agent in self.agents}

    def seen(self):
        """Who is alive: the own team first, and time."""
        red = [float(agent in self.agents) for agent in self.possible_agents]
        alive = {"red": red, "blue": red[2:] + red[:2]}
        return {agent: np.array([*alive[agent[:-2]][1:], self.time / 20], np.float32) for agent in self.possible_agents}

    def step(self, actions):
        acting, reward, hit = list(self.agents), dict.fromkeys(self.agents, 0.0), set()
        for agent, action in actions.items():
            enemies = [other for other in acting if other[:-2] != agent[:-2]]
            target = enemies[self.rng.integers(len(enemies))]
            if action == 1 and self.rng.random() < (0.3 if actions[target] else 0.2):
                reward[agent] += 1.0
                hit.add(target)
        reward |= {agent: reward[agent] - 1.0 for agent in hit}
        self.time += 1
        left = {agent for agent in acting if agent not in hit}
        over = len({agent[:-2] for agent in left}) < 2
        terminated = {agent: agent in hit or over for agent in acting}
        truncated = {agent: self.time == 20 and not terminated[agent] for agent in acting}
        self.agents = [agent for agent in acting if not (terminated[agent] or truncated[agent])]
        return {agent: self.seen()[agent] for agent in acting}, reward, terminated, truncated, {}

    def close(self):
        pass


def main() -> dict[str, float]:
    """Return the shares of games that each trained policy wins against the untrained one."""
    with ppax.envs.host(Battle, 16) as env:
        steps = ITERATIONS * env.num_streams * 32
        shared = ppax.fit(ppax.PPO(network(env), learning_rate=1e-3), env, steps, num_steps=32)
        untrained = ppax.fit(ppax.PPO(network(env)), env, 1, num_steps=1)
    with ppax.envs.grouped(ppax.envs.host(Battle, 16), {"red": [0, 1], "blue": [2, 3]}) as teams:
        memory = {name: network(team, memory=memories.GRU(16)) for name, team in teams.groups.items()}
        groups = {name: ppax.PPO(one, learning_rate=1e-3) for name, one in memory.items()}
        grouped = ppax.fit(ppax.Groups(groups, teams.sizes), teams, steps, num_steps=32)
    print("logged:", [name for name in grouped.history[-1] if name.startswith("episode_return/")])

    policy, game = grouped.policy(), Battle()  # the loop of PettingZoo: dicts of the agents that are alive
    obs, _ = game.reset(seed=0)
    while game.agents:
        actions = policy.act({agent: obs[agent] for agent in game.agents}, deterministic=False)
        obs, *_ = game.step(actions)
        print("acted:", ", ".join(f"{agent} {'shoots' if action else 'hides'}" for agent, action in actions.items()))

    result = ppax.match({"one policy": shared, "two with memory": grouped, "untrained": untrained}, env, GAMES)
    print(result)
    return {name: float(result.wins[i, 2]) for i, name in enumerate(result.policies[:2])}


if __name__ == "__main__":
    main()
