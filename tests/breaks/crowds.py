"""Breaks of groups of unlike agents and of self-play on the host."""

from breaks.base import Mutation

ROWS = "tests/training/host/test_crowds.py::"
SELF_PLAY = "tests/training/host/test_self_play.py::"

MUTATIONS: list[Mutation] = [
    Mutation(
        "the second batch of environments has the rows of the first in the groups' arrays",
        "slice(rows.start // agents * size, rows.stop // agents * size)",
        "slice(0, (rows.stop - rows.start) // agents * size)",
        (ROWS + "test_every_row_by_hand[async]",),
        "hosting/arrays.py",
    ),
    Mutation(
        "agents of groups keep the order of the environment",
        "self.names = [agent for members in groups for agent in members] or possible",
        "self.names = possible",
        (ROWS + "test_agents_alike_are_put_into_groups_by_their_places",),
        "hosting/team.py",
    ),
    Mutation(
        "a central critic of groups observes the agents in the order of the groups",
        "joint = seen[np.argsort(self._numbers)].reshape(-1)",
        "joint = seen.reshape(-1)",
        (ROWS + "test_indices_and_joint_observations_keep_the_order_of_the_environment",),
        "hosting/team.py",
    ),
    Mutation(
        "absent agents keep their masks",
        "return [mask if acts else None for mask, acts in masks] if known else None",
        "return [mask for mask, acts in masks] if known else None",
        (ROWS + "test_masks_of_one_group_memory_of_the_other_and_evaluation[Hunt]",),
        "hosting/team.py",
    ),
    Mutation(
        "a group that is absent after the first reset has no masks",
        "later = not acts and isinstance(",
        "later = False and isinstance(",
        (ROWS + "test_masks_of_one_group_memory_of_the_other_and_evaluation[LateHunt]",),
        "hosting/spec.py",
    ),
    Mutation(
        "in a second batch past selves sit as in the first",
        "batch, begin = inputs.first.shape[0] // num_agents, start // num_agents  # environments",
        "batch, begin = inputs.first.shape[0] // num_agents, start * 0",
        (SELF_PLAY + "test_past_selves_play_in_their_environments_alone[async]",),
        "training/host/policy.py",
    ),
    Mutation(
        "past selves play in evaluations on the host",
        "    if alone.pool is None:\n        return alone\n    return dataclasses",
        "    if True:\n        return alone\n    return dataclasses",
        (SELF_PLAY + "test_a_trained_player_beats_its_first_self",),
        "training/backends.py",
    ),
    Mutation(
        "an episode begins where the first agent's does",
        "else (begun | ~acting).all(axis=2) & begun.any(axis=2)",
        "else begun[:, :, 0]",
        ("tests/agents/test_self_play.py::test_an_episode_begins_with_those_who_are_there",),
        "agents/self_play.py",
    ),
]
