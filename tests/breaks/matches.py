"""Breaks of matches, and of the names of agents."""

from breaks.base import Mutation

MATCHES = "tests/run/test_matches.py::"
NAMES = "tests/agents/test_player_names.py::"
POLICIES = "tests/policy/test_many_agents.py::"
TEAMS = (MATCHES + "test_teams_of_a_host_environment_whose_agents_come_and_go",)

MUTATIONS: list[Mutation] = [
    Mutation(
        "names of agents count as in the groups that are there",
        "names = tuple(map(str, team.env.possible_agents))",
        "names = tuple(map(str, team.names))",
        (NAMES + "test_groups_are_made_of_names",),
        "envs/making.py",
    ),
    Mutation(
        "a film puts the agents into groups by their places",
        "players[group].append(streams.index(stream))",
        "players[group].append(stream)",
        (
            "tests/run/films/test_film.py::test_a_policy_of_groups_is_filmed_in_the_environment_with_and_without_its_groups",
        ),
        "run/matches.py",
    ),
    Mutation(
        "policies of a match keep their seats",
        "for i, j in pairs for side in range(sides)]",
        "for i, j in pairs if i < j for side in range(1)]",
        (MATCHES + "test_wins_returns_and_ratings_of_a_game_with_known_probabilities",),
        "run/matches.py",
    ),
    Mutation(
        "who has lost a game of a match has won it",
        "points = game_score(mine - theirs,",
        "points = game_score(theirs - mine,",
        (MATCHES + "test_wins_returns_and_ratings_of_a_game_with_known_probabilities",),
        "run/matches.py",
    ),
    Mutation(
        "the seatings of a match have games of their own",
        "programs[which](learner, evaluation_key(seed), max_steps)",
        "programs[which](learner, evaluation_key(seed + len(seatings)), max_steps)",
        (MATCHES + "test_the_same_weights_under_two_names_are_exactly_even",),
        "run/matches.py",
    ),
    Mutation(
        "all players of a match have the weights of the first one",
        "chosen = np.array(streams)",
        "chosen = np.zeros_like(streams)",
        TEAMS,
        "run/matches.py",
    ),
    Mutation(
        "a policy of groups plays every side of a match with its first group",
        "group = groups.pop()",
        "group = spec.sizes[0][0]",
        TEAMS,
        "run/matches.py",
    ),
    Mutation(
        "games with several other seats count each pair",
        "got[row, column] += (points_of == points).mean(axis=1).sum()",
        "got[row, column] += (points_of == points).sum()",
        (MATCHES + "test_one_against_several_others",),
        "run/matches.py",
    ),
    Mutation(
        "all games of an environment on the host are one",
        "self._games[rows] += resets.repeat(self._num_agents)",
        "self._games[rows] += 0",
        TEAMS,
        "training/host/episodes.py",
    ),
    Mutation(
        "games beyond those that were asked for count",
        "num_envs * number if number < self._quota[stream] else -1",
        "num_envs * number",
        (MATCHES + "test_an_agent_that_is_not_in_each_game_gets_nothing_in_the_others",),
        "training/host/episodes.py",
    ),
    Mutation(
        "games after one that never ended count, without the agents that are not recorded any more",
        "self._quota[team] = np.minimum(self._quota[team], self._games[i])",
        "pass",
        (MATCHES + "test_games_that_never_end_are_left_out",),
        "training/host/episodes.py",
    ),
    Mutation(
        "ratings of who has won all games have no bound",
        "won, played = won + 0.5 * met, played + 1.0 * met",
        "won, played = won + 0.0 * met, played + 0.0 * met",
        (MATCHES + "test_two_ratings_differ_by_the_odds_of_a_win",),
        "agents/self_play.py",
    ),
    Mutation(
        "players in the metrics of an update have numbers for names",
        "metrics = with_names(update.metrics, env.num_agents, env.sizes, env.agent_names)",
        "metrics = update.metrics",
        (NAMES + "test_players_of_a_host_environment_have_its_names_in_all_metrics[entropy]",),
        "ppax/training/loop.py",
    ),
    Mutation(
        "names of agents keep their order when groups change it",
        "tuple(names[i] for i in self._order())",
        "names",
        (NAMES + "test_compiled_environments_may_name_their_agents_also_inside_wrappers",),
        "wrappers/agent_groups.py",
    ),
    Mutation(
        "an evaluation forgets the names of the agents",
        "metrics=out.metrics,\n            names=self._env.agent_names,",
        "metrics=out.metrics,",
        (NAMES + "test_an_evaluation_has_the_names_of_the_agents",),
        "ppax/training/evaluation.py",
    ),
    Mutation(
        "agents of a group act with the observation of its first member",
        "every[place] = own[i][0]",
        "every[:] = own[i][0]",
        (POLICIES + "test_a_dict_by_agent_and_arrays_by_group_give_the_same_actions",),
        "policy/inputs.py",
    ),
    Mutation(
        "absent agents of a dict by agent go on in their memory",
        "given[self._streams(read.names)] = True",
        "given[:] = True",
        (POLICIES + "test_absent_agents_of_groups_keep_their_memory_until_they_are_reset",),
        "policy/inputs.py",
    ),
    Mutation(
        "a dict by group is read as one by agent where they have the same names",
        "return np.ndim(leaf.of(obs[name])) == len(leaf.shape)",
        "return True",
        (POLICIES + "test_groups_that_have_the_names_of_their_agents_take_both_forms",),
        "policy/inputs.py",
    ),
    Mutation(
        "a file may have groups of any number of agents",
        "        if not 1 <= self.num_agents <= MOST_AGENTS or not self.sizes:",
        "        if not self.sizes:",
        (POLICIES + "test_a_specification_without_names_has_numbered_agents",),
        "policy/spec.py",
    ),
]
