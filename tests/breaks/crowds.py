"""Breaks of groups of unlike agents and of self-play on the host."""

from breaks.base import Mutation

ROWS = "tests/training/host/test_crowds.py::"
SELF_PLAY = "tests/training/host/test_self_play.py::"
VIEWS = "tests/envs/wrappers/test_views.py::"
JOINT = "tests/training/host/test_joint_masks.py::"

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
        "joint = np.concatenate([seen[i] for i in np.argsort(self._numbers)])",
        "joint = np.concatenate(seen)",
        (
            ROWS + "test_indices_and_joint_observations_keep_the_order_of_the_environment",
            "tests/training/host/test_crowds.py::test_a_central_critic_of_unlike_agents_observes_all_of_them",
        ),
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
        "later = not acts and mask_form(",
        "later = False and mask_form(",
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
    Mutation(
        "an agent of a group that has left is in the joint observation",
        "_joint(size, obs[name], out[rows[name]])",
        "_joint(size, obs[name], out[rows[name]] & False)",
        (VIEWS + "test_unlike_agents_have_one_joint_observation",),
        "wrappers/views.py",
    ),
    Mutation(
        "agents of a group have the joint observation of other groups",
        "{key: x[rows[name]] for key, x in added.items()}",
        "{key: x[: rows[name].stop - rows[name].start] for key, x in added.items()}",
        (VIEWS + "test_unlike_agents_have_one_joint_observation",),
        "wrappers/views.py",
    ),
    Mutation(
        "masks of components are in the order of the space",
        "return {key: space.spaces[key] for key in sorted(space.spaces)}",
        "return {key: space.spaces[key] for key in reversed(sorted(space.spaces))}",
        (JOINT + "test_a_mask_by_component_is_stored_flat",),
        "hosting/arrays.py",
    ),
    Mutation(
        "a component without a mask allows nothing",
        "parts.append(np.ones(form.size if form else 1, bool) if allows_all",
        "parts.append(np.zeros(form.size if form else 1, bool) if allows_all",
        (JOINT + "test_a_mask_by_component_is_stored_flat",),
        "hosting/arrays.py",
    ),
    Mutation(
        "a mask of a Box of actions is left unread",
        "if form is None and one is not None:",
        "if False:",
        (JOINT + "test_masks_unlike_the_action_are_refused_before_training",),
        "hosting/arrays.py",
    ),
    Mutation(
        "unknown entries of a mask are left unread",
        "if unknown or not (self._named or len(found) == len(keys)):",
        "if not (self._named or len(found) == len(keys)):",
        (JOINT + "test_masks_unlike_the_action_are_refused_before_training",),
        "hosting/arrays.py",
    ),
    Mutation(
        "a component without choices takes the mask of the next one",
        "return head.size if isinstance(head, CategoricalHead | IndependentHead) else 1",
        "return head.size",
        (JOINT + "test_probabilities_are_those_of_a_mask_by_component",),
        "networks/heads.py",
    ),
]
