"""Learning tests with many agents: navigators, pursuit, JaxMARL. Some minutes each.

pytest -m nightly tests/system/test_learning_crowds.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.networks import network
from ppax.ppo.minibatches import Shuffle
from ppax.ppo.schedules import Linear

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800), pytest.mark.usefixtures("vmapped_keys")]


def share_that_arrives(iterations, seed, **options):
    """Return the fraction of navigators at their targets, of eight in each of 256 environments, after 200 steps."""
    env = ppax.make("Navigator-8", 32)
    policy = network(env, distribution="squashed", log_std_init=-0.5)
    agent = ppax.PPO(policy, gamma=0.97, normalize_obs=True, minibatch=Shuffle(8), schedule=Linear(), **options)
    state = ppax.start(agent, env, 100, jax.random.key(seed))
    state, _ = ppax.compile(agent, env, state)(agent, env, state, iterations, iterations)
    return ppax.evaluate(agent, env, state.learner, jax.random.key(2), 256 * 8).mean_metrics["arrived"]


def test_eight_navigators_arrive():
    """One shared policy, 3.8 million steps of an agent; the criterion is one radius from the target."""
    shares = [share_that_arrives(150, seed, learning_rate=3e-3) for seed in range(3)]
    assert min(shares) >= 0.95, shares


def test_untrained_navigators_do_not_arrive():
    """Negative control."""
    assert share_that_arrives(2, 0, learning_rate=0.0) < 0.2


def hunt(prey_speed, predator_speed):
    """Return the fraction of prey caught and the seconds: both trained, and each against an untrained one."""
    env = ppax.make("Pursuit-2", 64, env_params={"prey_speed": prey_speed, "predator_speed": predator_speed})
    options = {"learning_rate": 1e-3, "normalize_obs": True, "normalize_reward": True, "schedule": Linear()}
    agent = ppax.Independent(ppax.PPO(network(env), **options), 2)
    state = ppax.start(agent, env, 100, jax.random.key(0))
    learned = jax.jit(ppax.train)(agent, env, state, 200)[0].learner
    fresh = ppax.start(agent, env, 100, jax.random.key(5)).learner

    def play(prey, predator):
        both = jax.tree.map(lambda x, y: jnp.stack([x[0], y[1]]), prey, predator)
        found = ppax.evaluate(agent, env, both, jax.random.key(1), 512, deterministic=False)
        returns = np.asarray(found.returns).reshape(-1, 2)
        np.testing.assert_allclose(returns.sum(axis=1), 0.0, atol=1e-3)  # zero-sum
        return float((found.lengths[::2] < 200).mean()), float(found.lengths.mean()) / 100

    return play(learned, learned), play(learned, fresh), play(fresh, learned)


@pytest.mark.parametrize(
    ("speeds", "caught", "seconds"),
    [
        ((1.0, 3.0), (0.99, 1.0), (0.0, 0.3)),  # the predator is faster: quick capture
        ((1.0, 1.0), (0.9, 1.0), (0.4, 1.14)),  # jaxagents: 6 of 6, after 0.40 to 1.14 s
        ((3.0, 1.0), (0.4, 1.0), (0.5, 2.0)),  # the prey is faster: 2 to 32 % escape, depending on the run
    ],
    ids=("fast predator", "equal", "fast prey"),
)
def test_pursuit_with_three_ratios_of_speed(speeds, caught, seconds):
    """Trained prey survives longer than untrained prey; trained predators catch sooner than untrained ones."""
    both, beginner_hunts, beginner_runs = hunt(*speeds)
    assert caught[0] <= both[0] <= caught[1]
    assert seconds[0] <= both[1] <= seconds[1]
    assert beginner_hunts[0] < 0.5 < beginner_runs[0]
    assert beginner_runs[1] < both[1] < beginner_hunts[1]


@pytest.mark.filterwarnings("ignore")  # JaxMARL's own
@pytest.mark.parametrize("rate", [2e-3, 0.0], ids=["learning", "control"])
def test_speaker_and_listener_learn_to_communicate(rate):
    """Different players with one agent each, 170 000 steps: the return of 25 steps rises from -40 to -16."""
    returns = unlike_players("MPE_simple_speaker_listener_v4", rate)
    assert returns["listener"] > -22 if rate else returns["listener"] < -30, returns


@pytest.mark.filterwarnings("ignore")
def test_adversaries_of_simple_tag_learn():
    """Three adversaries against a prey; after 170 000 steps they touch it more often than untrained ones."""
    learned, beginners = (unlike_players("MPE_simple_tag_v3", rate) for rate in (2e-3, 0.0))
    assert learned["adversary_0"] > 3.0 * max(beginners["adversary_0"], 1.0), (learned, beginners)


@pytest.mark.filterwarnings("ignore")
def test_two_cooks_deliver_soups():
    """Half a million steps with shaping rewards; a soup has reward 20, untrained policies deliver none."""
    pytest.importorskip("jaxmarl")
    with jax.numpy_rank_promotion("allow"):
        env, plain = (ppax.make("jaxmarl/overcooked", 64, env_params={"shaping": share}) for share in (1.0, 0.0))
        agent = ppax.PPO(network(env, activation="relu"), learning_rate=1e-3, schedule=Linear(), num_epochs=4)
        state = ppax.start(agent, env, 128, jax.random.key(0))
        before = ppax.evaluate(agent, plain, state.learner, jax.random.key(1), 128, deterministic=False).mean_return
        state, _ = ppax.compile(agent, env, state)(agent, env, state, 60)
        after = ppax.evaluate(agent, plain, state.learner, jax.random.key(1), 128, deterministic=False).mean_return
    assert before < 5, before
    assert after > 40, after


def unlike_players(world, rate):
    """Return the mean return of each player of a JaxMARL environment with groups, one agent per group."""
    pytest.importorskip("jaxmarl")
    options = {"learning_rate": rate, "schedule": Linear()}
    with jax.numpy_rank_promotion("allow"):
        env = ppax.make(f"jaxmarl/{world}", 64)
        agents = {name: ppax.PPO(network(group), **options) for name, group in env.groups.items()}
        agent = ppax.Groups(agents, env.sizes)
        state = ppax.start(agent, env, 26, jax.random.key(0))
        state, _ = jax.jit(ppax.train)(agent, env, state, 100)
        result = ppax.evaluate(agent, env, state.learner, jax.random.key(1), 512, deterministic=False)
    return {name: one.mean_return for name, one in result.by_agent.items()}
