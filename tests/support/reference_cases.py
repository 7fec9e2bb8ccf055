"""Cases of the reference learner: agents of ppax beside hyperparameters of the reference, random rollouts for both.

For tests/system/test_reference.py, and for benchmarks/accelerator.py on machines without pytest.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax.sharding import PartitionSpec

import reference
from ppax import PPO
from ppax.core.types import Batch, LearnerState, MinibatchIndices, Rollout, Transition, part, static
from ppax.devices import sharding
from ppax.devices.layout import Program
from ppax.devices.platforms import rules
from ppax.devices.sharding import SAME, SPLIT
from ppax.extensions import FeatureNorm, KLControl, RewardSpreading
from ppax.networks import mlp
from ppax.ppo import normalization
from ppax.ppo.advantages import GAE, VTrace
from ppax.ppo.critics import PopArt, Quantile, Regression, TwoHot
from ppax.ppo.extension import Chain
from ppax.ppo.losses import DPO, SPO, ClippedSurrogate, KLPenalty, Rollback
from ppax.ppo.minibatches import Shuffle
from ppax.ppo.recompute import Epoch, Minibatch

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
    "stop": Option({"extensions": (KLControl(0.034),)}, {"target_kl": 0.034}),
    "rate": Option(
        {"extensions": (KLControl(rate_target=0.03, rate_max=1.2e-3),)}, {"rate_target": 0.03, "rate_max": 1.2e-3}
    ),
    "coef": Option(
        {"loss": KLPenalty(0.8), "extensions": (KLControl(coef_target=0.012),)},
        {"objective": "kl", "kl_coef": 0.8, "coef_target": 0.012},
    ),
    "kl all": Option(
        {"loss": KLPenalty(0.8), "extensions": (KLControl(0.05, 0.02, rate_min=5e-4, coef_target=0.1),)},
        {
            "objective": "kl",
            "kl_coef": 0.8,
            "target_kl": 0.05,
            "rate_target": 0.02,
            "rate_min": 5e-4,
            "coef_target": 0.1,
        },
    ),
    "epoch": Option({"recompute": Epoch()}, {"recompute": "epoch"}),
    "minibatch": Option({"recompute": Minibatch()}, {"recompute": "minibatch"}),
    "vtrace epoch": Option(
        {"recompute": Epoch(), "advantage": VTrace(0.9, 0.95, 0.9)},
        {"recompute": "epoch", "rho_clip": 0.95, "c_clip": 0.9},
    ),
    "vtrace minibatch": Option(
        {"recompute": Minibatch(), "advantage": VTrace(0.9, 0.95, 0.9)},
        {"recompute": "minibatch", "rho_clip": 0.95, "c_clip": 0.9},
    ),
    "drip": Option({"extensions": (RewardSpreading(0.6),)}, {"reward_spread_decay": 0.6}),
    "weights": Option({"minibatch": Weighted}, {}),
    "popart": Option({"critic": PopArt(0.3)}, {"critic": "popart", "rate": 0.3}),
    "popart clips": Option({"critic": PopArt(0.3, **CRITIC)}, {"critic": "popart", "rate": 0.3} | CRITIC),
    "popart minibatch": Option(
        {"critic": PopArt(0.3), "recompute": Minibatch()},
        {"critic": "popart", "rate": 0.3, "recompute": "minibatch"},
    ),
    "two_hot": Option(
        {"critic": TwoHot(-2.0, 3.0, 6, "linear")}, {"critic": "two_hot", "bins": (-2.0, -1.0, 0.0, 1.0, 2.0, 3.0)}
    ),
    "two_hot epoch": Option(
        {"critic": TwoHot(-20.0, 20.0, 5), "recompute": Epoch()},
        # symlog(20) = log 21; half of it is log sqrt 21
        {"critic": "two_hot", "bins": (-20.0, 1 - 21**0.5, 0.0, 21**0.5 - 1, 20.0), "recompute": "epoch"},
    ),
    "features": Option({"extensions": (FeatureNorm(0.4),)}, {"feature_coef": 0.4}),
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
        critic=agent.critic.init().state,
        extensions=Chain(agent.extensions).init(agent, OBS_SPACE, jax.random.key(1)),
    )


def compiled(agent: PPO):
    """Compile the same program with fewer optimisations, in half the time."""
    update, devices = agent.update, agent.program.devices or 1
    if devices > 1:
        by_time = PartitionSpec(None, sharding.AXIS)
        rollout = Rollout(by_time, SPLIT, by_time, extensions=SPLIT)
        update = sharding.split(update, devices, (SAME, rollout, SAME), SAME)
    return jax.jit(update, compiler_options=rules().run_once_options)


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
        rollout = rollout._replace(extensions=agent.init_streams(case.streams))
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
