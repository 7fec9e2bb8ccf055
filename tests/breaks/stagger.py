"""Breaks of staggered first episodes, compiled and on the host."""

from breaks.base import Mutation

COMPILED, HOST = "tests/envs/test_stagger.py::", "tests/envs/hosting/test_stagger.py::"
LOOP = COMPILED + "test_later_episodes_are_whole_and_cut_ones_are_not_logged"
BEFORE = COMPILED + "test_first_episodes_are_those_without_stagger_up_to_their_length"
SINGLE = HOST + "test_first_episodes_end_at_their_length_and_later_ones_are_whole"
MUTATIONS = [
    Mutation(
        "every episode is staggered again, compiled",
        "left = jnp.where(over, 0, jnp.maximum(left - 1, 0))",
        "left = jnp.where(over, 3, jnp.maximum(left - 1, 0))",
        (LOOP,),
        "envs/vector.py",
    ),
    Mutation(
        "a first episode that ended by itself leaves its length to the next one, compiled",
        "left = jnp.where(over, 0, jnp.maximum(left - 1, 0))",
        "left = jnp.maximum(left - 1, 0)",
        (LOOP,),
        "envs/vector.py",
    ),
    Mutation(
        "first episodes end one step late, compiled",
        "cut = (left == 1)[:, None]",
        "cut = (left == 2)[:, None]",
        (BEFORE, LOOP),
        "envs/vector.py",
    ),
    Mutation(
        "an end by itself in the step of the cut is not logged",
        "cut = (left == 1)[:, None] & valid & ~(terminated | truncated)",
        "cut = (left == 1)[:, None] & valid",
        (LOOP,),
        "envs/vector.py",
    ),
    Mutation(
        "cut episodes are logged, compiled",
        "over = steps.ended if rows.logged is None else steps.ended & rows.logged",
        "over = steps.ended",
        (LOOP,),
        "training/collection.py",
    ),
    Mutation(
        "a cut episode is not truncated for learning",
        "truncated, logged = truncated | cut, (~cut).reshape(self.num_streams)",
        "terminated, logged = terminated | cut, (~cut).reshape(self.num_streams)",
        (BEFORE, COMPILED + "test_a_cut_episode_is_bootstrapped_from_its_final_observation"),
        "envs/vector.py",
    ),
    Mutation(
        "evaluations are staggered, compiled",
        "        env = dataclasses.replace(env, stagger=False)\n",
        "        pass\n",
        (COMPILED + "test_evaluation_plays_whole_first_episodes",),
        "envs/making.py",
    ),
    Mutation(
        "a time limit inside an action repeat counts steps of the agent",
        "jnp.ceil(jnp.asarray(env.max_steps, jnp.float32) / repeats)",
        "jnp.ceil(jnp.asarray(env.max_steps, jnp.float32))",
        (COMPILED + "test_the_limit_is_read_from_the_time_limits",),
        "envs/stagger.py",
    ),
    Mutation(
        "the largest length is never drawn",
        "(), 1, longest + 1)",
        "(), 1, longest)",
        (COMPILED + "test_lengths_are_uniform_and_the_first_states_unchanged",),
        "envs/stagger.py",
    ),
    Mutation(
        "a drawn limit counts with its low end",
        "env = env.with_numbers(env.high)",
        "env = env.with_numbers(env.low)",
        (COMPILED + "test_a_limit_that_is_drawn_counts_with_its_high_end",),
        "envs/stagger.py",
    ),
    Mutation(
        "all environments have the same length, on the host",
        "np.random.default_rng([seed, 1])",
        "np.random.default_rng([0, 1])",
        (HOST + "test_lengths_are_uniform_and_belong_to_the_seed",),
        "hosting/batch.py",
    ),
    Mutation(
        "the environment of a cut episode is not reset, on the host",
        "            self.over[i] = True\n\n    def close",
        "\n    def close",
        (SINGLE,),
        "hosting/batch.py",
    ),
    Mutation(
        "a first episode that ended by itself leaves its length to the next one, on the host",
        "self.over[i], self.cut[i], self.left[i] = False, False, 0",
        "self.over[i], self.cut[i] = False, False",
        (SINGLE,),
        "hosting/batch.py",
    ),
    Mutation(
        "the mark of a cut episode stays for later steps",
        "        arrays.logged[:] = True  # type: ignore[index]\n",
        "",
        (SINGLE,),
        "hosting/batch.py",
    ),
    Mutation(
        "agents that are absent are cut",
        "            if not self.spec.turns:  # else agents that wait have an episode, too\n"
        "                running &= arrays.valid[place]\n",
        "",
        (HOST + "test_agents_of_a_team_are_cut_together",),
        "hosting/batch.py",
    ),
    Mutation(
        "agents that wait for their turn are not cut",
        "            if not self.spec.turns:  # else agents that wait have an episode, too\n",
        "            if True:\n",
        (HOST + "test_turns_are_cut_for_the_agents_that_wait_too",),
        "hosting/batch.py",
    ),
    Mutation(
        "a recorded episode goes on after a cut",
        "                arrays.episode_stats.over[place] |= running\n",
        "                pass\n",
        (HOST + "test_cut_episodes_are_not_logged",),
        "hosting/batch.py",
    ),
    Mutation(
        "the reset after a cut ends a recorded episode, too",
        "            arrays.episode_stats.over[place] = False\n",
        "            pass\n",
        (HOST + "test_cut_episodes_are_not_logged",),
        "hosting/batch.py",
    ),
    Mutation(
        "cut episodes are logged, on the host",
        "over = over if rollout.logged is None else over & rollout.logged",
        "over = over",
        (HOST + "test_cut_episodes_are_not_logged",),
        "host/rollouts.py",
    ),
    Mutation(
        "evaluations are staggered, on the host",
        "return Host(spec, num_envs, self._apart, self.factories",
        "return Host(self.spec, num_envs, self._make, self.factories",
        (HOST + "test_evaluations_and_films_see_whole_episodes",),
        "hosting/stepper.py",
    ),
    Mutation(
        "films are staggered, on the host",
        "spec = env.host.spec._replace(stagger=0)",
        "spec = env.host.spec",
        (HOST + "test_evaluations_and_films_see_whole_episodes",),
        "hosting/rendering.py",
    ),
    Mutation(
        "action repeat does not shorten the limit of Gymnasium",
        "return -(-min(found) // action_repeat) if found else None",
        "return min(found) if found else None",
        (HOST + "test_the_limit_is_that_of_gymnasium",),
        "hosting/spec.py",
    ),
    Mutation(
        "a bool is refused where it may stand for a number",
        '    if option.limits.get("switch") and isinstance(value, bool):\n        return value\n',
        "",
        (COMPILED + "test_run_files_name_it",),
        "core/options.py",
    ),
    Mutation(
        "the command line takes true for a text",
        '            return text.lower() == "true"\n',
        "            return text\n",
        (COMPILED + "test_the_command_line_names_it",),
        "cli/options.py",
    ),
]
