"""Collect and learn by hand: the two halves of an iteration, with room between them for whatever you like."""

import jax

import ppax

ITERATIONS = 40
NUM_STEPS = 128


def main() -> float:
    """Train CartPole one half iteration at a time, and print what each of them says."""
    env = ppax.make("CartPole-v1", num_envs=16)
    agent = ppax.PPO(ppax.networks.mlp(env), learning_rate=1e-3)
    start = jax.jit(ppax.start, static_argnames="num_steps")
    state = start(agent, env, NUM_STEPS, jax.random.key(0))
    learner, actor, key = state.learner, state.actor, state.key
    collect, update = jax.jit(ppax.collect, static_argnames="num_steps"), jax.jit(ppax.PPO.update)

    for iteration in range(ITERATIONS):
        key, collect_key, update_key = jax.random.split(key, 3)
        # num_steps steps of every environment, [T, B], where collection stands now, and the episodes that finished
        actor, rollout, episodes = collect(agent, env, learner, actor, NUM_STEPS, collect_key)
        # num_epochs passes over them: a new learner, and scalars about what happened
        learner, metrics = update(agent, learner, rollout, update_key)
        mean_return = episodes.return_sum.sum() / episodes.count.sum()
        if iteration % 10 == 0 or iteration == ITERATIONS - 1:
            print(f"{iteration:3d}: return {float(mean_return):6.1f}, entropy {float(metrics['entropy']):.3f}")

    played = ppax.evaluate(agent, env, learner, jax.random.key(1), episodes=32)
    print(f"the learner's most likely actions: {played.mean_return:.1f} over {len(played.returns)} episodes")
    return played.mean_return


if __name__ == "__main__":
    main()
