"""A turn-based game of PettingZoo: one policy plays both sides of tic-tac-toe, and then against random moves.

Needs `pip install "ppax[pettingzoo]"`. The same lines train Connect Four, "pettingzoo/classic/connect_four_v3".
"""

import numpy as np
from pettingzoo.classic import tictactoe_v3

import ppax
from ppax.networks import network

ITERATIONS, GAMES = 60, 200


def main() -> dict[str, float]:
    """Train; return the mean result against random moves: 1 won, 0 drawn, -1 lost."""
    with ppax.make("pettingzoo/classic/tictactoe_v3", 32) as env:
        # a step is a turn of one player; in half of the rows a player waits for the other one
        agent = ppax.PPO(network(env), learning_rate=1e-3, ent_coef=0.02, gamma=1.0)
        run = ppax.fit(agent, env, ITERATIONS * env.num_streams * 64, num_steps=64)
    results = {side: against_random(run.policy(), place) for place, side in enumerate(("first", "second"))}
    print("against random moves:", ", ".join(f"as {side} player {result:.2f}" for side, result in results.items()))
    return results


def against_random(policy: ppax.Policy, side: int) -> float:
    """Return the mean result of the policy's most likely moves against random ones."""
    game, rng, total = tictactoe_v3.env(), np.random.default_rng(0), 0.0
    for _ in range(GAMES):
        game.reset()
        for player in game.agent_iter():
            seen, reward, terminated, truncated, _ = game.last()
            if terminated or truncated:
                total += reward if player == game.possible_agents[side] else 0.0
                game.step(None)
            elif player == game.possible_agents[side]:
                game.step(int(policy.act(seen["observation"], mask=seen["action_mask"].astype(bool))))
            else:
                game.step(int(rng.choice(np.flatnonzero(seen["action_mask"]))))
    return total / GAMES


if __name__ == "__main__":
    main()
