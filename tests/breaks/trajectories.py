"""Breaks of trajectories, of the LIDAR, and of the metrics that the predecessors' worlds report."""

from breaks.base import Mutation

TRAJECTORIES = "tests/training/test_trajectories.py::"
STATES = TRAJECTORIES + "test_states_and_rewards_are_those_of_the_environment"
SENSORS = "tests/envs/test_sensors.py::"
WORLDS = "tests/envs/test_predecessors.py::"

MUTATIONS = [
    Mutation(
        "a frame has the state after its step",
        "seen = env_state, actor.obs\n        actor, (action, *steps) = jax.lax.scan(step, actor, keys)",
        "first = jax.lax.scan(step, actor, keys)[0]\n"
        "        seen = unwrapped(env.env, first.env_state.env)[1], actor.obs\n"
        "        actor, (action, *steps) = jax.lax.scan(step, actor, keys)",
        (STATES + "[one agent]",),
    ),
    Mutation(
        "the action of a frame is that of its last step",
        "jax.tree.map(lambda x: x[0], action)",
        "jax.tree.map(lambda x: x[-1], action)",
        (TRAJECTORIES + "test_frames_are_every_nth_of_all[memory]",),
        "trajectories.py",
    ),
    Mutation(
        "a trajectory keeps the actions as the agent stores them",
        "return Moved(actor, out, env_action)",
        "return Moved(actor, out, action)",
        (TRAJECTORIES + "test_actions_are_those_of_the_policy[agents]",),
    ),
    Mutation(
        "a trajectory begins anew in spite of its actor",
        "start_actor(agent, env, start_key) if actor is None else actor",
        "start_actor(agent, env, start_key)",
        (TRAJECTORIES + "test_a_trajectory_goes_on_from_its_actor",),
    ),
    Mutation(
        "trajectories are deterministic although samples are asked for",
        "_play(agent, ended(native), sharding.local(learner), actor, key, num_steps, every, deterministic)",
        "_play(agent, ended(native), sharding.local(learner), actor, key, num_steps, every, True)",
        (TRAJECTORIES + "test_sampled_actions_have_the_spread_of_the_policy",),
    ),
    Mutation(
        "a trajectory has the parameters at the start of the schedule",
        "_play(agent, ended(native), sharding",
        "_play(agent, native, sharding",
        (TRAJECTORIES + "test_parameters_are_those_at_the_end_of_the_schedule",),
    ),
    Mutation(
        "every state is kept until the end",
        "jax.lax.scan(frame, begin, keys)",
        "jax.tree.map(lambda x: x, jax.lax.scan(lambda a, k: frame(a, k[None]), begin, keys.reshape(-1)))",
        (TRAJECTORIES + "test_states_between_frames_take_no_memory",),
    ),
    Mutation(
        "traced arrays are asked for their devices",
        "or isinstance(x, jax.core.Tracer) or len",
        "or len",
        (TRAJECTORIES + "test_it_is_pure_under_jit_and_vmap",),
    ),
    Mutation(
        "a trajectory whose steps do not fill its frames is played",
        "if num_steps % every:",
        "if False:",
        (TRAJECTORIES + "test_what_does_not_fit_is_refused",),
    ),
    Mutation(
        "LIDAR meets a body at its centre",
        "ahead - jnp.sqrt(jnp.maximum(half_chord2, 0.0))",
        "ahead",
        (SENSORS + "test_distances_equal_ray_marching",),
    ),
    Mutation(
        "LIDAR sees the wall behind",
        "jnp.where(rays > 0.0, (high - position)[None], (position - low)[None])",
        "jnp.where(rays < 0.0, (high - position)[None], (position - low)[None])",
        (SENSORS + "test_distances_equal_ray_marching",),
    ),
    Mutation(
        "rays in 3-D are crowded at the poles",
        "height = 1.0 - (2.0 * number + 1.0) / num_rays",
        "height = np.cos(np.pi * (number + 0.5) / num_rays)",
        (SENSORS + "test_rays_are_even_unit_vectors",),
    ),
    Mutation(
        "every navigator has arrived",
        'metrics={"arrived": near}',
        'metrics={"arrived": near | True}',
        (WORLDS + "test_evaluations_count_captures_and_arrivals",),
    ),
    Mutation(
        "the metric of a capture is that of the first predator",
        'metrics={"caught": caught}',
        'metrics={"caught": near[0]}',
        (WORLDS + "test_evaluations_count_captures_and_arrivals",),
    ),
    Mutation(
        "the metric counts a car that rolls back",
        'metrics={"at_goal": at_goal}',
        'metrics={"at_goal": new.position >= self.goal}',
        (WORLDS + "test_endless_mountain_car_rewards_the_goal",),
    ),
]
