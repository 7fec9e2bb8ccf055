"""Memory task: a cue at the start of a corridor shows which way to turn at its end, ten steps later."""

import jax

import ppax
from ppax.networks.memories import GRU, NoMemory

ITERATIONS = 40


def main() -> dict[str, float]:
    """Train without memory and with a GRU; the best return is 1, the return of guessing 0."""
    env = ppax.make("CueCorridor-10", num_envs=64)
    scores = {}
    for memory in (NoMemory(), GRU(width=32)):
        network = ppax.networks.network(env, hidden=(32,), memory=memory)
        agent = ppax.PPO(network, learning_rate=3e-3)  # with a memory, sequences are whole rollouts
        state = ppax.start(agent, env, num_steps=32, key=jax.random.key(0))
        state, _ = jax.jit(ppax.train)(agent, env, state, ITERATIONS)
        name = type(memory).__name__
        scores[name] = ppax.evaluate(agent, env, state.learner, jax.random.key(1)).mean_return
        print(f"{name}: {scores[name]:.2f}")
    return scores


if __name__ == "__main__":
    main()
