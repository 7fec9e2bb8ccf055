"""Breaks of the adapters of Pgx, XLand-MiniGrid, MiniGrid and the DeepMind Control Suite."""

from breaks.base import Mutation

SUITES = "tests/envs/suites/"
PGX, XMINIGRID = SUITES + "test_pgx.py::", SUITES + "test_xminigrid.py::"
MINIGRID, CONTROL = SUITES + "test_minigrid.py::", SUITES + "test_dm_control.py::"
RULES = PGX + "test_tic_tac_toe_follows_its_rules"

MUTATIONS: list[Mutation] = [
    Mutation(
        "environments of ppax and of suites that have no time limit refuse one",
        "    if LIMIT in of_inner and named and not _takes_limit(name, single, of_inner[LIMIT]):\n",
        "    if False:\n",
        ("tests/envs/test_settings.py::test_a_time_limit_can_be_given_to_any_compiled_environment",),
        "envs/making.py",
    ),
    Mutation(
        "a suite without a library makes every environment of ppax one of its own",
        ' for name, suite in SUITES.items() if suite.library != "ppax"}',
        " for name, suite in SUITES.items()}",
        ("tests/system/test_docs.py::test_suite_of_extending_can_be_made_by_name",),
        "envs/suites/registry.py",
    ),
    Mutation(
        "the move of a player who waits is played",
        "move = action if self.num_agents is None else action[state.current_player]",
        "move = action if self.num_agents is None else action[0]",
        (RULES,),
        "suites/pgx.py",
    ),
    Mutation(
        "players who wait have legal moves",
        "return legal & (jnp.arange(self.env.num_players) == state.current_player)[:, None]",
        "return jnp.broadcast_to(legal, (self.env.num_players, legal.size))",
        (RULES,),
        "suites/pgx.py",
    ),
    Mutation(
        "all players see the game from the side of the one whose turn it is",
        "obs = _numbers(jax.vmap(self.env._observe, (None, 0))(state, players))",
        "obs = _numbers(jnp.stack([state.observation] * self.env.num_players))",
        (RULES, PGX + "test_players_see_their_own_card_only"),
        "suites/pgx.py",
    ),
    Mutation(
        "nobody sees whose turn it is",
        "turn = (players == state.current_player).astype(obs.dtype).reshape(-1, *[1] * (obs.ndim - 1))",
        "turn = jnp.zeros_like(players, obs.dtype).reshape(-1, *[1] * (obs.ndim - 1))",
        (RULES, PGX + "test_players_see_their_own_card_only"),
        "suites/pgx.py",
    ),
    Mutation(
        "MinAtar of Pgx never ends by time",
        "return TimeLimit(game, MINATAR_STEPS) if env_id.startswith(MINATAR) else game",
        "return game",
        (PGX + "test_games_of_minatar_are_truncated",),
        "suites/pgx.py",
    ),
    Mutation(
        "XLand-MiniGrid's time limit is a termination",
        "return EnvStep(timestep, _planes(timestep.observation), reward, ended & terminated, ended & ~terminated)",
        "return EnvStep(timestep, _planes(timestep.observation), reward, ended, ended & ~ended)",
        (XMINIGRID + "test_the_goal_terminates_with_its_reward_and_the_limit_truncates",),
        "suites/xminigrid.py",
    ),
    Mutation(
        "every episode of XLand has the same rules",
        "params = params.replace(ruleset=self.rules.sample_ruleset(rule_key))",
        "params = params.replace(ruleset=self.rules.get_ruleset(0))",
        (XMINIGRID + "test_rules_are_drawn_at_every_reset",),
        "suites/xminigrid.py",
    ),
    Mutation(
        "a long mission of MiniGrid is cut off",
        "if len(words) > length:",
        "if False:",
        (MINIGRID + "test_missions_as_numbers",),
        "suites/minigrid_room.py",
    ),
    Mutation(
        "the states of doors are not seen",
        "each = [grid[..., i, None] == np.arange(size) for i, size in enumerate(KINDS)]",
        "each = [grid[..., min(i, 1), None] == np.arange(size) for i, size in enumerate(KINDS)]",
        (MINIGRID + "test_observations_are_those_of_minigrid",),
        "suites/minigrid_room.py",
    ),
    Mutation(
        "dm_control's time limit is a termination",
        "terminated = bool(now.last() and now.discount == 0.0)",
        "terminated = bool(now.last())",
        (CONTROL + "test_the_time_limit_truncates",),
        "suites/dm_control_task.py",
    ),
    Mutation(
        "dm_control's episodes do not follow the seed",
        "self.env.task.random.seed(seed)",
        "pass",
        (CONTROL + "test_steps_are_those_of_dm_control", CONTROL + "test_seeds_repeat_episodes"),
        "suites/dm_control_task.py",
    ),
]
