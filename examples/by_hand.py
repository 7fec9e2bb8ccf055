"""Training loop by hand: `collect` and `update`, the two halves of an iteration, with your own code between them."""

import jax

import ppax

ITERATIONS = 40
NUM_STEPS = 128


def main() -> float:
    """Train CartPole with `collect` and `update`; print the episode return and the entropy."""
    env = ppax.make("CartPole-v1", num_envs=16)
    agent = ppax.PPO(ppax.networks.mlp(env), learning_rate=1e-3)
    start = jax.jit(ppax.start, static_argnames="num_steps")
    state = start(agent, env, NUM_STEPS, jax.random.key(0))
    learner, actor, key = state.learner, state.actor, state.key
    collect, update = jax.jit(ppax.collect, static_argnames="num_steps"), jax.jit(ppax.PPO.update)

    for iteration in range(ITERATIONS):
        key, collect_key, update_key = jax.random.split(key, 3)
        # rollout [T, B] of num_steps steps, the state of the environments after it, and statistics of finished episodes
        actor, rollout, episodes = collect(agent, env, learner, actor, NUM_STEPS, collect_key)
        # num_epochs epochs over the rollout: the new learner and scalar metrics
        updated = update(agent, learner, rollout, update_key)
        learner = updated.learner
        mean_return = episodes.return_sum.sum() / episodes.count.sum()
        if iteration % 10 == 0 or iteration == ITERATIONS - 1:
            print(f"{iteration:3d}: return {float(mean_return):6.1f}, entropy {float(updated.metrics['entropy']):.3f}")

    played = ppax.evaluate(agent, env, learner, jax.random.key(1), episodes=32)
    print(f"the learner's most likely actions: {played.mean_return:.1f} over {len(played.returns)} episodes")
    return played.mean_return


if __name__ == "__main__":
    main()
