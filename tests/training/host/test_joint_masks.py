"""Action masks of Dict and Tuple actions on the host: given by component, never broken, learned as in one program."""

from functools import partial

import jax
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax.cli.main import main
from ppax.core.types import ConfigError
from ppax.envs import EnvError, host
from ppax.envs.hosting.arrays import JointMaskForm, sample_allowed
from ppax.networks import network
from support.crowds import Hunt
from support.workshop import ACTION, Workshop
from support.worlds import QUICK


def flat(time):
    """The mask by hand: in the sorted order of keys, aim has one entry."""
    move = [1, time % 2 == 0, time % 2 == 1]
    bits = [1, 0, 1, 1] if time % 2 else [0, 1, 1, 1]
    return np.array([1, *move, *([1] * 9 if time == 2 else [*bits, 1, 0, 0, 1, 1])], bool)


def test_a_mask_by_component_is_stored_flat():
    with host(Workshop, 2) as env:
        env.host.reset([0, 1])
        assert env.host.spec.mask_size == 13
    world, form = Workshop(), JointMaskForm(ACTION)
    for time in range(5):
        world.time = time
        np.testing.assert_array_equal(form(world._masks()), flat(time))
    random = np.random.default_rng(0)
    for _ in range(50):
        world.time = 1
        action = sample_allowed(ACTION, world._masks(), random)
        assert ACTION.contains(action)
        world.step(action)


@pytest.mark.parametrize(("how", "workers"), [("sync", None), ("async", 2)])
def test_no_forbidden_action_is_taken_and_the_policy_learns(how, workers):
    """The environment refuses every forbidden action, in training, in evaluation and by the trained policy."""
    with host(Workshop, 8, vectorization=how, workers=workers) as env:
        agent = ppax.PPO(network(env, hidden=(16,)), learning_rate=0.01, num_epochs=4)
        run = ppax.fit(agent, env, 8 * 16 * 30, num_steps=16, log=ppax.config.Log(console=False))
        assert run.evaluate(8).mean_return > 4.9  # of 5
        world, policy = Workshop(), run.policy()
        (obs, info), total, ended = world.reset(), 0.0, False
        while not ended:
            obs, reward, ended, _, info = world.step(policy.act(obs, mask=info["action_mask"]))
            total += reward
    assert total > 4.9


def test_probabilities_are_those_of_a_mask_by_component():
    """The compiled policy with a dict of masks, as compiled environments give it, is the oracle."""
    with host(Workshop, 1) as env:
        agent = ppax.PPO(network(env, hidden=(4,)))
        learner = agent.init(env.observation_space, jax.random.key(0))
    world, obs, first = Workshop(), np.zeros((1, 1), np.float32), np.zeros(1, bool)
    look = jax.jit(lambda mask: agent.policy(learner, (), obs, first, mask).distribution, compiler_options=QUICK)
    for time in range(5):
        world.time = time
        given = world._masks()
        tools = given["tools"] or (np.ones((2, 2)), (np.ones(2), np.ones(3)))
        tree = {
            "move": given["move"][None],
            "aim": np.ones((1, 1), bool),
            "tools": (np.ravel(tools[0])[None].astype(bool), np.concatenate(tools[1])[None].astype(bool)),
        }
        one, other = look(flat(time)[None]), look(tree)
        for x, y in zip(*map(jax.tree.leaves, (one, other)), strict=True):
            np.testing.assert_array_equal(x, y)
        assert (np.exp(one.components["move"].log_probs)[0] > 0).tolist() == given["move"].tolist()


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("list", r"is a list; the masks of .* are a dict of \['aim', 'move', 'tools'\]"),
        ("key", r"has the entries \['speed'\]; the masks of .* are a dict"),
        ("box", r"\['aim'\] is given, and a Box of actions has no mask: leave it out"),
    ],
)
def test_masks_unlike_the_action_are_refused_before_training(form, said):
    env = host(partial(Workshop, form), 1)
    with pytest.raises((ConfigError, EnvError), match=said):
        ppax.fit(ppax.PPO(network(env, hidden=(4,))), env, 64, num_steps=8, log=ppax.config.Log(console=False))


class Armed(Hunt):
    """Hunt whose hunters choose a pair: where to go, of which one may never go to 2, and a number."""

    def action_space(self, agent):
        own = super().action_space(agent)
        return spaces.Tuple([own, spaces.Box(-1.0, 1.0, (1,), np.float32)]) if agent.startswith("hunter") else own

    def _reward(self, agent, action):
        if agent.startswith("hunter"):
            assert action[0] < 2
        return 0.0

    def _info(self, agents):
        mask = (np.array([1, 1, 0]), None)
        return {agent: {"action_mask": mask} if agent.startswith("hunter") else {} for agent in agents}


def test_groups_of_players_with_masks_of_tuples():
    with host(Armed, 2) as env:
        assert env.host.spec.mask_size == (("hunter", 4),)
        agents = {name: ppax.PPO(network(group, hidden=(4,)), num_epochs=1) for name, group in env.groups.items()}
        agent = ppax.Groups(agents, env.sizes)
        run = ppax.fit(agent, env, 8 * 12 * 4, num_steps=12, log=ppax.config.Log(console=False))
        assert np.isfinite(run.evaluate(4).mean_return)


def test_a_run_of_the_command_line_its_resume_and_its_bundle(tmp_path):
    options = [
        "--num-envs",
        "2",
        "--num-steps",
        "16",
        "--total-steps",
        "64",
        "--eval.episodes",
        "2",
        "--no-log.console",
    ]
    options += ["--agent.schedule", "constant"]  # a longer run has the same numbers
    trust = ["--trust", "support"]
    target = "support.workshop:Workshop"
    assert main(["train", target, *options, *trust, "--run-dir", str(tmp_path / "run"), "--no-cache"]) == 0
    assert main(["resume", str(tmp_path / "run"), "--total-steps", "128", *trust, "--no-cache"]) == 0
    bundle = tmp_path / "policy.zip"
    assert main(["export", str(tmp_path / "run"), "--out", str(bundle), "--formats", "numpy,stablehlo"]) == 0
    policy, world = ppax.load(bundle), Workshop()
    obs, info = world.reset()
    for _ in range(5):
        obs, *_, info = world.step(policy.act(obs, mask=info["action_mask"]))
