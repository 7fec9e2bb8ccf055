"""Pairwise combinations of options: cases in which each pair of choices occurs train for three updates.

A new option is a new line in AXES: a name, and for each of its choices the fields of PPO that it sets ("loss.x" is a
field of the loss), or an extension by the name of its axis ("kl.x" is a field of the one KLControl). The number of
cases grows with the two longest axes only.
"""

import dataclasses
import inspect
import itertools
import re

import jax
import numpy as np
import optax
import pytest

import ppax
from ppax.agents.metrics import EPISODE_METRICS
from ppax.devices import platforms
from ppax.devices.layout import Program
from ppax.envs import AdaptiveRanges, TimeLimit, VectorEnv, builtin, with_schedule
from ppax.extensions import (
    CAPS,
    L2C2,
    PPG,
    RND,
    ActionRate,
    CriticWarmup,
    EntropyTarget,
    FeatureNorm,
    HeldNoise,
    KLControl,
    NextObservation,
    OwnCritic,
    RewardSpreading,
    SelfPrediction,
    Symmetry,
)
from ppax.networks import Tower, mlp
from ppax.networks.memories import GRU, LRU, Attention, Stack
from ppax.ppo.advantages import CanonicalVTrace
from ppax.ppo.critics import PopArt, Quantile, TwoHot
from ppax.ppo.losses import DPO, SPO, ClippedSurrogate, KLPenalty, Rollback
from ppax.ppo.minibatches import Prioritised, Shuffle
from ppax.ppo.optimizers import ActorCritic, Adam, Optax
from ppax.ppo.recompute import Epoch, Minibatch
from support.trained import policy_of
from support.worlds import QUICK, RANDOM_MASKS, SGD, Leaky, Spaced

ENV = VectorEnv(TimeLimit(builtin.CartPole(), 11), 4)
HYBRID = VectorEnv(Spaced("nested", RANDOM_MASKS["nested"]), 4)  # all kinds of actions at once, masked
BOX = VectorEnv(TimeLimit(builtin.Pendulum(), 11), 4)
WIDENED = AdaptiveRanges(("env.gravity",), (5.0,), (20.0,), widen_at=8.0, narrow_at=4.0, episodes=2.0)
RANGED = with_schedule(ENV, WIDENED)  # environments with a state of their own in the training state
NETWORKS = {
    ENV: mlp(ENV, hidden=(8,)),
    BOX: mlp(BOX, hidden=(8,), gsde=True),
    HYBRID: mlp(HYBRID, hidden=(8,), distribution="squashed", state_std=True),
}


pytestmark = pytest.mark.usefixtures("forget_each_program")


def network_of(env):
    return NETWORKS[ENV if env is RANGED else env]


NOVELTY = RND(embedding=4, hidden=(4,), predictor_hidden=(4,), num_minibatches=2)
STEPS = 8


def stacked(network):
    """Return the network with a stack of memories, whose scans are recomputed."""
    return dataclasses.replace(network, memory=Stack(LRU(6), 2, residual=True, norm=True), remat=True)


def apart(network):
    """Return the network with a memory for the actor alone, and a critic with layers of its own."""
    critic = Tower(hidden=(6, 6), activation="mish", layer_norm=True)
    return dataclasses.replace(network, actor=Tower(memory=GRU(6)), critic=critic, policy_gain=0.1)


def taught(env):
    """Return the distillation of the better of two policies, by the values of their critics."""
    each = [policy_of(ppax.PPO(network_of(env)), env), policy_of(ppax.PPO(stacked(network_of(env))), env)]
    return ppax.imitation.distill(env, teachers=each, select=ppax.imitation.ByValue(), coef=0.1)


def cloned(env):
    """Return the cloning of three random steps, each an episode."""
    obs, actions = ([space.sample() for _ in range(3)] for space in (env.observation_space, env.action_space))
    ends = {"terminations": np.zeros(3, bool), "truncations": np.ones(3, bool)}
    return ppax.imitation.clone(env, {"observations": np.stack(obs), "actions": np.stack(actions), **ends}, coef=0.1)


def styled(env):
    """Return a motion prior from random observations."""
    obs = jax.tree.map(lambda *x: np.stack(x), *(env.observation_space.sample() for _ in range(3)))
    ends = {"terminations": np.zeros(3, bool), "truncations": np.arange(3) == 2}
    return ppax.imitation.motion_prior(env, {"observations": obs, **ends}, hidden=(4,), num_minibatches=2)


AXES = {
    "loss": [
        {"ent_coef": 0.01},
        {"loss": ClippedSurrogate(dual_clip=3.0)},
        {"loss": KLPenalty(), "kl.coef_target": 1e-3},
        {"loss": SPO()},
        {"loss": Rollback()},
        {"loss": DPO()},
    ],
    "critic": [
        {},
        {"critic": TwoHot(-10.0, 30.0, 9)},
        {"critic": Quantile(5)},
        {"critic": PopArt(value_clip=0.2)},
        {"critic.value_clip": 0.2, "critic.huber_delta": 1.0},
    ],
    "recompute": [
        {},
        {"recompute": Epoch()},
        {"recompute": Minibatch()},
        {"recompute": Epoch(), "advantage": CanonicalVTrace()},
    ],
    "normalize": [
        {"normalize_advantage": "minibatch"},
        {"normalize_advantage": "rollout", "normalize_obs": True},
        {"normalize_advantage": "off", "normalize_obs": True, "normalize_reward": True},
    ],
    "stop": [{}, {"kl.target_kl": 1e-4}],
    "rate": [{}, {"kl.rate_target": 1e-2}],
    "dtype": [{}, {"compute_dtype": "bfloat16"}],
    "memory": [
        {},
        {"memory": lambda network: dataclasses.replace(network, memory=GRU(6)), "seq_len": 4},
        {
            "memory": lambda network: dataclasses.replace(network, memory=Attention(6, steps=3, heads=2)),
            "seq_len": 2,
        },
        {"memory": stacked, "seq_len": 4},
        {"memory": apart, "seq_len": 8},
        {"memory": Leaky, "seq_len": 4},
    ],
    "chunks": [{"program": Program(chunk_rows=10**6)}, {"program": Program(chunk_rows=8)}],
    "minibatch": [
        {"minibatch": Shuffle(2)},
        {"minibatch": Shuffle(2, shuffle=False)},
        {"minibatch": Prioritised(num_minibatches=2)},
    ],
    "entropy": [{}, {"entropy": EntropyTarget(0.5), "ent_coef": 0.02}],
    "optimizer": [
        {"optimizer": Adam()},
        {"optimizer": SGD(momentum=0.9), "learning_rate": 0.03},
        {"optimizer": Optax(optax.lion, b1=0.9)},
        {
            "optimizer": ActorCritic(actor_epochs=1, critic_max_grad_norm=1.0),
            "max_grad_norm": None,
            "warmup": CriticWarmup(0.0),
        },
    ],
    "drip": [{}, {"drip": RewardSpreading(0.5)}],
    "auxiliary": [
        {},
        {"auxiliary": SelfPrediction(hidden=(4,))},
        {"auxiliary": NextObservation(hidden=(4,))},
        {"auxiliary": FeatureNorm()},
        {"auxiliary": taught},
    ],
    "phase": [{}, {"phase": PPG(every=1, num_epochs=2)}, {"phase": PPG(every=2, num_epochs=1, rollouts=2)}],
    "intrinsic": [
        {},
        {"intrinsic": NOVELTY},
        {"intrinsic": styled},
        {"intrinsic": OwnCritic(NOVELTY, num_minibatches=2, hidden=(4,))},
    ],
    "space": [{}, {"env": BOX}, {"env": RANGED}, {"env": HYBRID}],
}
EXTENSIONS = (
    "drip",
    "intrinsic",
    "auxiliary",
    "phase",
    "entropy",
    "warmup",
)  # axes whose choices are extensions, in their order
# of networks without memory and of plain minibatches alone
MIRRORS = {ENV: Symmetry((-1, -2, -3, -4), (2, 1)), BOX: Symmetry((1, -2, -3), (-1,), mirror_coef=0.5)}
WITHOUT_MEMORY = {name: AXES[name] for name in AXES if name not in ("memory", "auxiliary", "space")} | {
    "minibatch": AXES["minibatch"][:2],
    "auxiliary": [{"auxiliary": lambda env: MIRRORS[env]}, {"auxiliary": cloned}],
    "space": AXES["space"][:2],
}


def pairs(case):
    """Return the pairs of choices in a case [one index per axis; None: not chosen yet]."""
    chosen = [(axis, choice) for axis, choice in enumerate(case) if choice is not None]
    return set(itertools.combinations(chosen, 2))


def covering(sizes):
    """Return cases that cover every pair of choices of two axes, built greedily by the number of new pairs."""
    ranges = [[(axis, choice) for choice in range(size)] for axis, size in enumerate(sizes)]
    missing = {pair for one, other in itertools.combinations(ranges, 2) for pair in itertools.product(one, other)}
    cases = []
    while missing:
        case = [None] * len(sizes)
        for axis, choice in min(missing):
            case[axis] = choice
        for axis in sorted(range(len(sizes)), key=lambda axis: -sizes[axis]):
            if case[axis] is None:
                options = [[*case[:axis], choice, *case[axis + 1 :]] for choice in range(sizes[axis])]
                # vary the choice among equals
                turn = len(cases) % sizes[axis]
                case = max(options[turn:] + options[:turn], key=lambda option: len(pairs(option) & missing))
        missing -= pairs(case)
        cases.append(tuple(case))
    return cases


CASES = covering([len(choices) for choices in AXES.values()])
PLAIN_CASES = covering([len(choices) for choices in WITHOUT_MEMORY.values()])


def agent_of(case, axes=AXES):
    """Return the agent and the environment of a case."""
    fields = {"env": ENV, "memory": lambda network: network, "learning_rate": 3e-3, "num_epochs": 2}
    for choice, choices in zip(case, axes.values(), strict=True):
        fields |= choices[choice]
    env = fields.pop("env")
    fields["network"] = fields.pop("memory")(network_of(env))
    for name in ("auxiliary", "intrinsic"):
        if inspect.isfunction(fields.get(name)):  # those with the environment's spaces
            fields[name] = fields[name](env)
    if "phase" in fields:
        fields.pop("warmup", None)  # refused together: tests/extensions/test_critic_warmup.py
    extensions = [fields.pop(name) for name in EXTENSIONS if name in fields]
    controls = {name.removeprefix("kl."): fields.pop(name) for name in list(fields) if name.startswith("kl.")}
    extensions += [KLControl(**controls)] if controls else []
    extensions += [CAPS(), L2C2(value_coef=0.1), ActionRate()] if env is BOX else []  # of one Box alone
    extensions += [HeldNoise(3)] if env is BOX and not isinstance(fields["network"], Leaky) else []
    fields["extensions"] = tuple(extensions)
    agent = ppax.PPO(**{name: value for name, value in fields.items() if "." not in name})
    for name, value in fields.items():
        part, _, number = name.partition(".")
        if number:
            agent = dataclasses.replace(agent, **{part: dataclasses.replace(getattr(agent, part), **{number: value})})
    return agent, env


@pytest.mark.parametrize(("axes", "cases"), [(AXES, CASES), (WITHOUT_MEMORY, PLAIN_CASES)], ids=["all", "plain"])
def test_the_cases_cover_every_pair(axes, cases):
    """Count pairs independently of the generator."""
    axes = list(axes.values())
    for one, other in itertools.combinations(range(len(axes)), 2):
        seen = {(case[one], case[other]) for case in cases}
        assert len(seen) == len(axes[one]) * len(axes[other]), (one, other)
    assert len(cases) <= 45


def test_a_choice_sets_its_fields():
    agent, env = agent_of([len(choices) - 1 for choices in AXES.values()])
    assert isinstance(agent.loss, DPO)
    assert isinstance(agent.network, Leaky)
    assert env is HYBRID
    control = next(one for one in agent.extensions if isinstance(one, KLControl))
    assert (agent.critic.value_clip, agent.critic.huber_delta, control.target_kl) == (0.2, 1.0, 1e-4)
    classes = [type(one) for one in agent.extensions]
    assert classes == [
        RewardSpreading,
        OwnCritic,
        ppax.imitation.Distillation,
        PPG,
        EntropyTarget,
        KLControl,
    ]
    without_phase = [len(choices) - 1 if name != "phase" else 0 for name, choices in AXES.items()]
    assert CriticWarmup in [type(one) for one in agent_of(without_phase)[0].extensions]


def marked(cases, every):
    """Return parameters of cases, of which one in `every` is in the daily tests."""
    return [pytest.param(case, marks=() if i % every == 0 else pytest.mark.nightly) for i, case in enumerate(cases)]


def name_of(case):
    return "".join(map(str, case))


@pytest.mark.parametrize("case", marked(CASES, 5), ids=name_of)
def test_three_updates(case):
    check_three_updates(*agent_of(case))


@pytest.mark.parametrize("case", marked(PLAIN_CASES, 20), ids=name_of)
def test_three_updates_of_networks_without_memory(case):
    check_three_updates(*agent_of(case, WITHOUT_MEMORY))


def check_three_updates(agent, env):
    """Check ratio, metrics and parameters of three iterations."""
    state = jax.jit(ppax.start, static_argnums=2, compiler_options=QUICK)(agent, env, STEPS, jax.random.key(0))
    train = jax.jit(ppax.train, compiler_options=QUICK)
    first = state.learner.params
    for _ in range(3):
        state, metrics = train(agent, env, state, 1, 10)
        assert float(metrics["ratio_first_max_dev"]) < 3e-6  # rounding of log-probabilities of many actions
        assert float(metrics["ratio_max"]) > 1.0 + 1e-7  # the parameters change
        for name in metrics:
            unknown = name in EPISODE_METRICS or name.endswith(".performance")  # until an episode has ended
            assert np.isfinite(metrics[name]) or unknown, name
    # of three iterations: behind a first layer of zeros the first gradient is 0, and the KL limit may allow one step
    for (path, old), new in zip(jax.tree.leaves_with_path(first), jax.tree.leaves(state.learner.params), strict=True):
        assert np.isfinite(new).all(), path
        assert (old != new).any(), path
    stops = any(isinstance(one, KLControl) and one.target_kl is not None for one in agent.extensions)
    assert ("updates_skipped" in metrics) == stops
    assert ("kl_coef" in metrics) == isinstance(agent.loss, KLPenalty)


@pytest.mark.parametrize("case", marked(CASES, 20), ids=name_of)
def test_the_program_for_a_gpu_is_lowered(case, monkeypatch):
    """XLA gets a program for CUDA from this machine, with the rules of accelerators; only running it takes a GPU."""
    monkeypatch.setitem(platforms.RULES, "cpu", platforms.ACCELERATOR)
    agent, env = agent_of(case)
    state = jax.eval_shape(lambda key: ppax.start(agent, env, STEPS, key), jax.random.key(0))
    lowered = jax.jit(ppax.train).trace(agent, env, state, 2, 10).lower(lowering_platforms=("cuda",))
    text = lowered.as_text()
    assert "stablehlo.dot_general" in text
    calls = set(re.findall(r"custom_call @(\w+)", text))
    assert not {name for name in calls if name.startswith(("lapack", "Eigen", "xla_ffi_python"))}, calls
