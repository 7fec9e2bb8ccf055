"""Whole `PPO.update` against the float64 reference learner: parameters, statistics and losses."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from jax.sharding import PartitionSpec

import reference
from ppax import PPO
from ppax.advantages import GAE, VTrace
from ppax.critics import PopArt, Quantile, Regression, TwoHot
from ppax.learning import batches, normalization
from ppax.learning.kl_control import KLControl, KLState
from ppax.losses import DPO, SPO, ClippedSurrogate, FeatureNorm, KLPenalty, Rollback
from ppax.minibatches import Shuffle
from ppax.networks import mlp
from ppax.program import sharding
from ppax.program.layout import Program
from ppax.program.sharding import SAME, SPLIT
from ppax.types import Batch, LearnerState, MinibatchIndices, Rollout, Transition, part, static

# float32 rounds at 6e-8 relative. Adam divides by sqrt(v) + 1e-5, so where a gradient is about 1e-5 its rounding
# error of some 1e-9 (a mean over tens of rows of size 1) moves the step by 1e-4 learning rates: with a learning
# rate of 1e-3 and 32 steps that is at most some 1e-6, on weights that move by 1e-2. Measured: 7e-7 at most.
PLAIN = Program()
PARAMS_ATOL = 2e-6  # controls must differ by 10 times as much


class Case(NamedTuple):
    steps: int = 7
    streams: int = 6
    minibatches: int = 3
    seq_len: int | None = None
    continuous: bool = False
    shared: bool = False
    masked: bool = False
    normalize_obs: bool = False
    normalize_reward: bool = False
    normalize_advantage: str = "minibatch"
    option: str = ""  # a key of OPTIONS


class Option(NamedTuple):
    """Option of the algorithm: fields of the agent and of the reference's hyperparameters."""

    agent: dict
    hyper: dict


@part
class Weighted:
    """Minibatch part with a random importance weight for each sequence."""

    num_minibatches: int = static(default=1)

    def __call__(self, batch, key):
        index_key, weight_key = jax.random.split(key)
        index = Shuffle(self.num_minibatches)(batch, index_key).index
        return MinibatchIndices(index, jax.random.uniform(weight_key, index.shape, minval=0.2, maxval=2.0))


CRITIC = {"value_clip": 0.3, "huber_delta": 1.1}
OPTIONS = {
    "": Option({}, {}),
    "dual": Option(
        {"loss": ClippedSurrogate(0.15, dual_clip=1.2), "critic": Regression(huber_delta=1.1)},
        {"dual_clip": 1.2, "huber_delta": 1.1},
    ),
    "value": Option({"critic": Regression(value_clip=0.3)}, {"value_clip": 0.3}),
    "kl": Option(
        {"loss": KLPenalty(0.8), "critic": Regression(**CRITIC)},
        {"objective": "kl", "kl_coef": 0.8} | CRITIC,
    ),
    "dpo": Option(
        {"loss": DPO(0.3, 0.1), "critic": Regression(**CRITIC)},
        {"objective": "dpo", "alpha": 0.3, "beta": 0.1} | CRITIC,
    ),
    # Old log-probabilities differ by 0.2, so KLs are around 0.02: each control acts in some steps and not in others
    "stop": Option({"kl": KLControl(0.034)}, {"target_kl": 0.034}),
    "rate": Option({"kl": KLControl(rate_target=0.03, rate_max=1.2e-3)}, {"rate_target": 0.03, "rate_max": 1.2e-3}),
    "coef": Option(
        {"loss": KLPenalty(0.8), "kl": KLControl(coef_target=0.012)},
        {"objective": "kl", "kl_coef": 0.8, "coef_target": 0.012},
    ),
    "kl all": Option(
        {"loss": KLPenalty(0.8), "kl": KLControl(0.05, 0.02, rate_min=5e-4, coef_target=0.1)},
        {
            "objective": "kl",
            "kl_coef": 0.8,
            "target_kl": 0.05,
            "rate_target": 0.02,
            "rate_min": 5e-4,
            "coef_target": 0.1,
        },
    ),
    "epoch": Option({"recompute": "epoch"}, {"recompute": "epoch"}),
    "minibatch": Option({"recompute": "minibatch"}, {"recompute": "minibatch"}),
    "vtrace epoch": Option(
        {"recompute": "epoch", "advantage": VTrace(0.9, 0.95, 0.9)},
        {"recompute": "epoch", "rho_clip": 0.95, "c_clip": 0.9},
    ),
    "vtrace minibatch": Option(
        {"recompute": "minibatch", "advantage": VTrace(0.9, 0.95, 0.9)},
        {"recompute": "minibatch", "rho_clip": 0.95, "c_clip": 0.9},
    ),
    "drip": Option({"reward_spread_decay": 0.6}, {"reward_spread_decay": 0.6}),
    "weights": Option({"minibatch": Weighted}, {}),
    "popart": Option({"critic": PopArt(0.3)}, {"critic": "popart", "rate": 0.3}),
    "popart clips": Option({"critic": PopArt(0.3, **CRITIC)}, {"critic": "popart", "rate": 0.3} | CRITIC),
    "popart minibatch": Option(
        {"critic": PopArt(0.3), "recompute": "minibatch"},
        {"critic": "popart", "rate": 0.3, "recompute": "minibatch"},
    ),
    "two_hot": Option(
        {"critic": TwoHot(-2.0, 3.0, 6, "linear")}, {"critic": "two_hot", "bins": (-2.0, -1.0, 0.0, 1.0, 2.0, 3.0)}
    ),
    "two_hot epoch": Option(
        {"critic": TwoHot(-20.0, 20.0, 5), "recompute": "epoch"},
        # symlog(20) = log 21; half of it is log sqrt 21
        {"critic": "two_hot", "bins": (-20.0, 1 - 21**0.5, 0.0, 21**0.5 - 1, 20.0), "recompute": "epoch"},
    ),
    "features": Option({"auxiliary": FeatureNorm(0.4)}, {"feature_coef": 0.4}),
    "spo": Option({"loss": SPO(0.15)}, {"objective": "spo", "clip_eps": 0.15}),
    "rollback": Option({"loss": Rollback(0.1, 0.6)}, {"objective": "rollback", "clip_eps": 0.1, "slope": 0.6}),
    "quantile": Option({"critic": Quantile(5, 0.4)}, {"critic": "quantile", "kappa": 0.4}),
}

OBS_SPACE = spaces.Box(-np.inf, np.inf, (2, 2))

# Every pair of choices is in some line.
CASES = [
    Case(),
    Case(continuous=True, normalize_obs=True, normalize_reward=True, seq_len=7),
    Case(shared=True, masked=True, normalize_obs=True, normalize_advantage="rollout", seq_len=1),
    Case(continuous=True, shared=True, normalize_reward=True, normalize_advantage="off", seq_len=1),
    Case(masked=True, normalize_reward=True, normalize_advantage="rollout", seq_len=7),
    Case(13, 5, 5, continuous=True, normalize_advantage="rollout"),
    Case(13, 5, 5, 13, shared=True, normalize_obs=True, normalize_advantage="off"),
    Case(13, 5, 5, 1, masked=True, normalize_obs=True, normalize_reward=True, normalize_advantage="off"),
    Case(13, 5, 5, 13, continuous=True, shared=True, normalize_obs=True, normalize_reward=True),
    Case(4, 3, 12, shared=True, normalize_reward=True),  # minibatches of one row: advantages are not standardised
    Case(1, 8, 2, continuous=True, normalize_obs=True, normalize_advantage="rollout"),  # rollouts of one step
    *(Case(continuous=i % 2 == 1, option=name) for i, name in enumerate(OPTIONS) if name),
    Case(8, 6, 3, 4, normalize_obs=True, normalize_reward=True, option="vtrace epoch"),
    Case(8, 6, 3, 4, shared=True, normalize_advantage="rollout", option="epoch"),
    Case(8, 6, 3, 4, continuous=True, normalize_obs=True, normalize_reward=True, option="vtrace minibatch"),
    Case(8, 6, 3, 4, masked=True, normalize_advantage="rollout", option="minibatch"),
    Case(8, 6, 3, 4, normalize_advantage="off", normalize_reward=True, option="weights"),
    Case(8, 6, 3, 4, normalize_advantage="rollout", normalize_reward=True, option="drip"),
    Case(8, 6, 3, 4, shared=True, normalize_obs=True, normalize_advantage="off", option="popart"),
    Case(8, 6, 3, 4, shared=True, masked=True, normalize_reward=True, option="two_hot"),
    Case(8, 6, 3, 4, masked=True, option="weights"),
    Case(8, 6, 3, 4, masked=True, option="popart minibatch"),
    Case(8, 6, 3, 4, shared=True, masked=True, option="features"),
    Case(4, 3, 12, masked=True, option="coef"),  # minibatches of one row, some invalid or idle
]

LAID_OUT = Case(8, 6, 3, 4, shared=True, normalize_obs=True, normalize_advantage="off", option="popart")

HYPER = reference.Hyper(
    gamma=0.93, gae_lambda=0.9, clip_eps=0.15, vf_coef=0.7, ent_coef=0.02, learning_rate=1e-3, max_grad_norm=0.4
)


def hyper_of(case: Case) -> reference.Hyper:
    names = ("normalize_obs", "normalize_reward", "normalize_advantage")
    same = {name: getattr(case, name) for name in names}
    return HYPER._replace(seq_len=length_of(case), **same, **OPTIONS[case.option].hyper)


def length_of(case: Case) -> int:
    return case.seq_len or (case.steps if "minibatch" in case.option else 1)


def agent_of(case: Case) -> PPO:
    class Spaces:
        observation_space = OBS_SPACE
        action_space = spaces.Box(-1.0, 1.0, (2,)) if case.continuous else spaces.Discrete(4)

    option = OPTIONS[case.option].agent
    if option.get("minibatch"):
        option = {"minibatch": option["minibatch"](case.minibatches)}
    parts = {
        "advantage": GAE(HYPER.gae_lambda),
        "loss": ClippedSurrogate(HYPER.clip_eps),
        "minibatch": Shuffle(case.minibatches),
    }
    return PPO(
        mlp(Spaces, hidden=(6, 5), shared=case.shared, **({"log_std_init": -0.3} if case.continuous else {})),
        **parts | option,
        learning_rate=HYPER.learning_rate,
        gamma=HYPER.gamma,
        vf_coef=HYPER.vf_coef,
        ent_coef=HYPER.ent_coef,
        max_grad_norm=HYPER.max_grad_norm,
        num_epochs=4,
        seq_len=case.seq_len,
        normalize_obs=case.normalize_obs,
        normalize_reward=case.normalize_reward,
        normalize_advantage=case.normalize_advantage,
    )


def flat_params(params) -> dict[str, np.ndarray]:
    """Convert ppax's nested parameters to the reference's flat dict: hidden layers numbered 0, 1, ..."""
    flat = {}
    for torso in ("actor", "critic"):
        layers = params.get(torso, {})
        for i, name in enumerate(sorted(layers, key=int)):
            flat |= {f"{torso}/{i}/{part}": layers[name][part] for part in ("kernel", "bias")}
    flat |= {f"{head}/{part}": params[head][part] for head in ("policy", "value") for part in ("kernel", "bias")}
    if "log_std" in params:
        flat["log_std"] = params["log_std"]
    assert len(flat) == len(jax.tree.leaves(params)), "a parameter that the reference does not know"
    return {name: np.asarray(leaf, np.float64) for name, leaf in flat.items()}


def episodes(rng: np.random.Generator, case: Case) -> dict[str, np.ndarray]:
    """Draw flags as of an environment: an end is followed by one or more invalid rows, then a first row."""
    shape = case.steps, case.streams
    terminated, truncated, first = (np.zeros(shape, bool) for _ in range(3))
    valid = np.ones(shape, bool)
    for b in range(case.streams):
        waiting = rng.integers(3) == 0  # the rollout may start between two episodes
        for t in range(case.steps):
            if waiting:
                valid[t, b] = False
                waiting = rng.random() < 0.3  # an absent agent waits longer
                if not waiting and t + 1 < case.steps:
                    first[t + 1, b] = True
            else:
                terminated[t, b], truncated[t, b] = rng.random(2) < 0.2
                waiting = terminated[t, b] or truncated[t, b]
    return {"terminated": terminated, "truncated": truncated, "first": first, "valid": valid}


def draw_rollout(rng: np.random.Generator, case: Case, learner: reference.Updated) -> tuple[Rollout, reference.Rollout]:
    """Draw one random rollout for both learners; every number is exact in float32. Invalid rows are NaN."""
    shape = case.steps, case.streams
    flags = episodes(rng, case)
    obs = rng.normal(0.5, 1.0, (*shape, 2, 2)).astype(np.float32)  # larger ones would saturate tanh
    mask = rng.random((*shape, 4)) < 0.5 if case.masked else None  # rows without an allowed action have action 0
    if case.continuous:
        action = rng.normal(0.0, 1.0, (*shape, 2)).astype(np.float32)
    else:
        chances = rng.random((*shape, 4)) + (0 if mask is None else 2 * mask)
        action = chances.argmax(axis=-1).astype(np.int32)
        action = action if mask is None else np.where(mask.any(axis=-1), action, 0)
    # log-probabilities near the current policy's, so that some ratios are outside the clip range on either side
    seen = obs
    if case.normalize_obs:
        stats = learner.opt_state.obs
        seen = np.clip((obs - stats.mean) / np.sqrt(stats.var + 1e-8), -10, 10)
    flat = (x if x is None else x.reshape(-1, *x.shape[2:]) for x in (seen, action, mask))
    log_prob = reference.act(learner.params, *flat)[0].log_prob.reshape(shape) + rng.normal(0.0, 0.2, shape)
    value, last_value = rng.normal(0.0, 1.0, shape), rng.normal(0.0, 1.0, case.streams)
    reward, trace = rng.normal(0.5, 2.0, shape), rng.normal(1.0, 3.0, shape)
    log_prob, value, last_value, reward, trace = (
        x.astype(np.float32) for x in (log_prob, value, last_value, reward, trace)
    )
    for x in (log_prob, reward, trace):  # not `value`: it is V of the final observation
        x[~flags["valid"]] = np.nan
    real = flags["valid"].copy()
    if OPTIONS[case.option].hyper.get("recompute"):  # the final observation is evaluated again
        real[1:] |= (flags["truncated"] & ~flags["terminated"])[:-1]
    obs[~real] = np.nan
    carry = dict.fromkeys(("actor",) if case.shared else ("actor", "critic"), ())
    steps = Transition(obs, action, log_prob, value, reward, **flags, carry=carry, action_mask=mask)
    shipped = jax.tree.map(jnp.asarray, Rollout(steps, last_value, trace))
    same = [obs, action, log_prob, value, reward, flags["terminated"], flags["truncated"], flags["valid"], mask]
    return shipped, reference.Rollout(*map(double, [*same, last_value, trace]))


def double(x: np.ndarray | None) -> np.ndarray | None:
    return x.astype(np.float64) if x is not None and x.dtype == np.float32 else x


def draw_indices(agent: PPO, case: Case, key) -> MinibatchIndices:
    """Draw the sequences of each minibatch of `update`, with its keys and its minibatch part."""
    valid = jnp.ones((case.steps * case.streams // length_of(case), length_of(case)), bool)
    steps = Transition(*[None] * 8, valid=valid, carry=())
    drawn = [agent.minibatch(Batch(steps, None), k) for k in jax.random.split(key, agent.num_epochs)]
    return jax.tree.map(lambda *x: np.stack(x), *drawn)


def fresh_learner(agent: PPO, rng: np.random.Generator) -> LearnerState:
    """Return an initial learner with random biases and a policy that is not uniform, to detect more errors."""
    shapes = jax.eval_shape(lambda key: agent.init(OBS_SPACE, key), jax.random.key(0))
    draw = lambda x: jnp.asarray(rng.normal(0.0, 0.6, x.shape), x.dtype)  # noqa: E731
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return LearnerState(
        params=jax.tree.map(draw, shapes.params),
        opt_state=zeros.opt_state,
        obs_stats=normalization.init_obs_stats(OBS_SPACE) if agent.normalize_obs else None,
        reward_stats=normalization.init_stats(()) if agent.normalize_reward else None,
        control=agent.kl.init(agent.loss),
        critic=agent.critic.init().state,
    )


def compiled(agent: PPO):
    """Compile the same program with fewer optimisations, in half the time."""
    update, devices = agent.update, agent.program.devices or 1
    if devices > 1:
        rollout = Rollout(PartitionSpec(None, sharding.AXIS), SPLIT, PartitionSpec(None, sharding.AXIS))
        update = sharding.split(update, devices, (SAME, rollout, SAME), SAME)
    return jax.jit(update, compiler_options={"xla_backend_optimization_level": 0})


class Played(NamedTuple):
    """Return two successive updates by ppax and the inputs for the reference."""

    start: dict[str, np.ndarray]
    learners: list
    metrics: list
    rollouts: list[reference.Rollout]
    drawn: list[MinibatchIndices]


@functools.cache
def play(case: Case, program: Program = PLAIN) -> Played:
    agent = dataclasses.replace(agent_of(case), program=program)
    rng = np.random.default_rng(CASES.index(case))
    learner = fresh_learner(agent, rng)
    start = flat_params(learner.params)
    played = Played(start, [], [], [], [])
    ours = reference.Updated(start, reference.init(start, (2, 2)), [])
    step = compiled(agent)
    for i in range(2):
        rollout, same = draw_rollout(rng, case, ours)
        learner, metrics = step(learner, rollout, jax.random.key(10 + i))[:2]
        drawn = draw_indices(agent, case, jax.random.key(10 + i))
        ours = reference.update(ours.params, ours.opt_state, same, hyper_of(case), drawn.index, drawn.weight)
        for done, new in zip(played[1:], (learner, metrics, same, drawn), strict=True):
            done.append(new)
    return played


def replay(case: Case, hyper: reference.Hyper, change=lambda rollout: rollout) -> list[reference.Updated]:
    """Return the reference's two updates with the same rollouts."""
    played = play(case)
    updated = [reference.Updated(played.start, reference.init(played.start, (2, 2)), [])]
    for rollout, drawn in zip(played.rollouts, played.drawn, strict=True):
        updated.append(reference.update(*updated[-1][:2], change(rollout), hyper, drawn.index, drawn.weight))
    return updated[1:]


def distance(case: Case, updated: list[reference.Updated], program: Program = PLAIN) -> float:
    """Return the largest difference of any parameter after any update."""
    pairs = [(flat_params(a.params), b.params) for a, b in zip(play(case, program).learners, updated, strict=True)]
    return max(np.abs(a[name] - b[name]).max() for a, b in pairs for name in a)


@pytest.mark.parametrize(
    "program",
    [Program(1, 5), Program(2, 4), *(pytest.param(Program(2, n), marks=pytest.mark.nightly) for n in (None, 1))],
    ids=str,
)
@pytest.mark.parametrize(
    "case",
    [*CASES[:2], LAID_OUT, CASES[4]],
    ids=["rows", "sequences", "popart", "masked"],
)
def test_every_layout_of_the_program_agrees_with_the_reference(case, program):
    assert distance(case, replay(case, hyper_of(case)), program) < PARAMS_ATOL


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if i < 9 or i % 3 == 0 else pytest.mark.nightly) for i, case in enumerate(CASES)],
    ids=lambda case: "-".join(map(str, case)),
)
def test_update_agrees_with_the_reference(case):
    played, updated = play(case), replay(case, hyper_of(case))
    assert distance(case, updated) < PARAMS_ATOL
    moved = max(np.abs(updated[-1].params[k] - p).max() for k, p in played.start.items())
    assert moved > 1e-3  # the parameters changed
    for learner, metrics, ours in zip(played.learners, played.metrics, updated, strict=True):
        history = {name: np.array([step[name] for step in ours.losses]) for name in ours.losses[0]}
        assert len(ours.losses) == 4 * case.minibatches
        rows = history.pop("rows") > 0
        del history["choices"]
        for name, x in history.items():
            x = x[rows]  # leave out minibatches without a valid row
            expected = x.max() if name == "ratio_max" else x.min() if name == "ratio_min" else x.mean()
            # standardisation in a minibatch of few rows divides by a small std, and the policy loss is a mean of terms
            # of size 1 that cancel
            np.testing.assert_allclose(metrics[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)
        dev = max(history["ratio_max"][0] - 1.0, 1.0 - history["ratio_min"][0])
        np.testing.assert_allclose(metrics["ratio_first_max_dev"], dev, rtol=1e-3, atol=2e-6)
        for ships, theirs in ((learner.obs_stats, ours.opt_state.obs), (learner.reward_stats, ours.opt_state.reward)):
            if ships is not None:
                assert ships.count[0] == theirs.count
                np.testing.assert_allclose(ships.mean.high, theirs.mean, rtol=1e-6, atol=1e-6)
                np.testing.assert_allclose(ships.var.high, theirs.var, rtol=1e-6)
        if hyper_of(case).critic == "popart":
            expected = reference.scale_of(ours.opt_state.targets)
            theirs = learner.critic.mean, jnp.sqrt(learner.critic.var), learner.critic.weight
            np.testing.assert_allclose(theirs, [*expected.values(), ours.opt_state.targets.weight], rtol=1e-5)
            np.testing.assert_allclose([metrics["popart_mean"], metrics["popart_std"]], theirs[:2])
        rate, coef, _ = KLState(*learner.control)
        np.testing.assert_allclose(1.0 if rate is None else rate, ours.opt_state.rate, rtol=1e-5)
        np.testing.assert_allclose(1.0 if coef is None else coef, ours.opt_state.coef)


@pytest.mark.parametrize(
    "changed",
    [
        {"gamma": 0.94},
        {"gae_lambda": 0.92},
        {"clip_eps": 0.16},
        {"vf_coef": 0.72},
        {"ent_coef": 0.025},
        {"ent_coef": -0.02},
        {"learning_rate": 1.01e-3},
        {"max_grad_norm": 1.0},
        {"b1": 0.91},
        {"b2": 0.998},
        {"adam_eps": 1e-8},
        {"normalize_obs": False},
        {"normalize_reward": False},
        {"normalize_advantage": "rollout"},
        {"normalize_advantage": "off"},
    ],
    ids=str,
)
def test_a_changed_number_does_not_agree(changed):
    case = CASES[8]  # all options on
    assert distance(case, replay(case, hyper_of(case)._replace(**changed))) > 10 * PARAMS_ATOL


@pytest.mark.parametrize(
    ("option", "changed"),
    [
        ("dual", {"dual_clip": 1.3}),
        ("dual", {"dual_clip": np.inf}),
        ("dual", {"huber_delta": 1.3}),
        ("value", {"value_clip": 0.4}),
        ("kl", {"kl_coef": 0.9}),
        ("kl", {"huber_delta": 1.3}),
        ("dpo", {"alpha": 0.4}),
        ("dpo", {"beta": 0.12}),
        ("dpo", {"value_clip": 0.4}),
        ("spo", {"clip_eps": 0.2}),
        ("rollback", {"clip_eps": 0.2}),
        ("rollback", {"slope": 0.3}),
        ("stop", {"target_kl": np.inf}),
        ("rate", {"rate_target": 0.012}),
        ("rate", {"rate_max": 1e-2}),
        ("coef", {"coef_target": 0.05}),
        ("kl all", {"rate_target": None}),
        ("kl all", {"coef_target": None}),
        ("epoch", {"recompute": "never"}),
        ("epoch", {"recompute": "minibatch"}),
        ("minibatch", {"recompute": "epoch"}),
        ("vtrace epoch", {"rho_clip": 1.0}),
        ("vtrace epoch", {"c_clip": 1.0}),
        ("vtrace minibatch", {"rho_clip": 1.0}),
        ("drip", {"reward_spread_decay": 0.5}),
        ("quantile", {"kappa": 0.5}),
        ("popart", {"critic": "regression"}),
        ("popart", {"rate": 0.35}),
        ("popart clips", {"value_clip": 0.4}),
        ("popart clips", {"huber_delta": 1.3}),
        ("two_hot", {"bins": (-2.0, -1.0, 0.1, 1.0, 2.0, 3.0)}),
        ("two_hot epoch", {"recompute": "never"}),
        ("features", {"feature_coef": 0.42}),
    ],
    ids=str,
)
def test_a_changed_option_does_not_agree(option, changed):
    case = next(case for case in CASES if case.option == option)
    assert distance(case, replay(case, hyper_of(case)._replace(**changed))) > 10 * PARAMS_ATOL


def test_a_draw_without_importance_weights_does_not_agree():
    case = next(case for case in CASES if case.option == "weights")
    played = play(case)
    ours = reference.update(
        played.start, reference.init(played.start, (2, 2)), played.rollouts[0], hyper_of(case), played.drawn[0].index
    )
    theirs = flat_params(played.learners[0].params)
    assert max(np.abs(theirs[name] - p).max() for name, p in ours.params.items()) > 10 * PARAMS_ATOL


def test_every_kl_control_acts_at_some_steps_and_not_at_others():
    def updates(option):
        case = next(case for case in CASES if case.option == option)
        return case, replay(case, hyper_of(case))

    case, stopped = updates("stop")
    skipped = [[step["updates_skipped"] for step in update.losses] for update in stopped]
    assert any(0 < sum(steps) < len(steps) for steps in skipped)
    # the stopped update has the gradient steps before the stop and none after
    applied = [int(update.opt_state.adam.step) for update in stopped]
    assert applied == list(np.cumsum([len(steps) - sum(steps) for steps in skipped]))
    counts = [
        int(next(x for x in jax.tree.leaves(learner.opt_state) if x.ndim == 0)) for learner in play(case).learners
    ]
    assert counts == applied
    assert max(update.opt_state.rate for update in updates("rate")[1]) == 1.2  # up to rate_max
    assert min(update.opt_state.rate for update in updates("kl all")[1]) < 1.0
    assert {update.opt_state.coef for update in updates("coef")[1]} & {2.0, 4.0}
    assert {update.opt_state.coef for update in updates("kl all")[1]} & {0.5, 0.25}


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r._replace(terminated=r.truncated, truncated=r.terminated),
        # the trace crosses a truncation
        lambda r: r._replace(truncated=np.zeros_like(r.truncated), reward=np.nan_to_num(r.reward)),
        lambda r: r._replace(terminated=r.terminated | r.truncated),  # truncation without bootstrapping
        lambda r: r._replace(last_value=0 * r.last_value),
        lambda r: r._replace(reward_trace=r.reward),
        lambda r: r._replace(log_prob=r.log_prob + 0.01),
        lambda r: r._replace(action=np.clip(r.action, -1, 1)),
        lambda r: r._replace(**{k: np.nan_to_num(getattr(r, k)) for k in ("obs", "log_prob", "reward", "reward_trace")},
                             valid=np.ones_like(r.valid)),  # invalid rows used
    ],
    ids=["swapped", "no truncation", "done", "no last value", "no trace", "log_prob", "clipped action", "all valid"],
)  # fmt: skip
def test_a_changed_rollout_does_not_agree(change):
    case = CASES[8]
    assert distance(case, replay(case, hyper_of(case), change)) > 10 * PARAMS_ATOL


def case_of(option):
    return next(case for case in CASES if case.option == option)


GRADIENTS = {
    "separate": (CASES[0], {}),
    "normal": (CASES[1], {}),
    "masked shared": (CASES[2], {}),
    "normal shared": (CASES[3], {}),
    "dual": (CASES[0], {"dual_clip": 1.1, "huber_delta": 0.6}),
    "kl": (CASES[0], {"objective": "kl", "kl_coef": 0.8, "value_clip": 0.5}),
    "dpo": (CASES[0], {"objective": "dpo", "alpha": 0.3, "beta": 0.1, "value_clip": 0.5, "huber_delta": 0.6}),
    "spo": (CASES[0], {"objective": "spo", "clip_eps": 0.15}),
    "rollback": (CASES[0], {"objective": "rollback", "slope": 0.6}),
    "popart": (CASES[0], {"critic": "popart", "mean": 0.3, "std": 1.7, "value_clip": 0.5, "huber_delta": 0.6}),
    "two_hot": (case_of("two_hot"), OPTIONS["two_hot"].hyper),
    "quantile": (case_of("quantile"), OPTIONS["quantile"].hyper),
    "features": (CASES[0], {"feature_coef": 0.4}),
    "features shared": (CASES[3], {"feature_coef": 0.4}),
}


@pytest.mark.parametrize(("case", "changed"), GRADIENTS.values(), ids=GRADIENTS)
def test_reference_gradient_equals_finite_differences(case, changed):
    """Central differences, step 1e-6: error about 1e-10 where nothing clips within the step."""
    params, rollout, hyper = play(case).start, play(case).rollouts[0], HYPER._replace(**changed)
    rows = tuple(np.argwhere(rollout.valid).T)
    rng = np.random.default_rng(0)
    mask = None if rollout.action_mask is None else rollout.action_mask[rows]
    a, target, old = rng.normal(size=(3, len(rows[0])))
    batch = reference.Rows(rollout.obs[rows], rollout.action[rows], rollout.log_prob[rows], mask, a, target, old)
    info, gradient = reference.loss_and_gradient(params, batch, hyper)
    assert 0.1 < info.get("clip_fraction", 0.5) < 0.9
    assert gradient.keys() == params.keys()
    for name, p in params.items():
        for at in np.ndindex(p.shape):
            loss = []
            for step in (1e-6, -1e-6):
                near = p.copy()
                near[at] += step
                loss.append(reference.loss_and_gradient(params | {name: near}, batch, hyper)[0]["loss"])
            assert abs((loss[0] - loss[1]) / 2e-6 - gradient[name][at]) < 1e-8, (name, at)


def test_standardize_maps_constant_advantages_to_0_and_keeps_single_ones():
    valid = jnp.array([True, True, False, True])
    np.testing.assert_array_equal(batches.standardize(jnp.array([3.0, 3.0, 9.0, 3.0]), valid)[valid], 0.0)
    # the mean of these constants is rounded, so their computed std is rounding only
    for constant, count in ((0.1, 7), (3.3, 31), (-0.1, 333), (1e3 / 3, 8191)):
        rows = jnp.ones(count, bool)
        np.testing.assert_array_equal(batches.standardize(jnp.full(count, constant), rows), 0.0)
        # advantages that differ by rounding only
        nearly = constant * (1.0 + 1e-7 * jnp.cos(jnp.arange(count)))
        np.testing.assert_array_equal(batches.standardize(nearly, rows), 0.0)
        # advantages with small, real differences
        unlike = batches.standardize(constant * (1.0 + 1e-3 * (jnp.arange(count) % 2)), rows)
        np.testing.assert_allclose(unlike.std(), 1.0, rtol=1e-2)
    one = jnp.array([True, False, False, False])
    assert batches.standardize(jnp.array([3.0, jnp.nan, 9.0, 3.0]), one)[0] == 3.0
    none = batches.standardize(jnp.array([1.0, 2.0, 3.0, 4.0]), jnp.zeros(4, bool))
    np.testing.assert_array_equal(none, [1.0, 2.0, 3.0, 4.0])
    # valid rows 1 and 5: mean 3, population std 2, so -1 and 1 (with ddof = 1: -0.71 and 0.71)
    two = batches.standardize(jnp.array([1.0, 7.0, 7.0, 5.0]), jnp.array([True, False, False, True]))
    np.testing.assert_allclose([two[0], two[3]], [-1.0, 1.0], rtol=1e-6)
