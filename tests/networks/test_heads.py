"""Heads: env actions lie in random spaces; standard deviations; refusal of invalid spaces and options."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import ppax
from ppax import config
from ppax.core.types import ConfigError
from ppax.distributions import BallNormal, Beta, Normal, SquashedNormal
from ppax.networks import mlp
from ppax.networks.heads import clip_inward, head_for, log_softplus
from support.worlds import SPACES

EXTREMES = np.array([0.0, 1.0, -1.0, 20.0, -20.0, 1e30, -1e30, 1e-30], np.float32)


class World:
    """Spaces of an environment, without steps."""

    def __init__(self, action_space):
        self.observation_space, self.action_space = spaces.Box(-1.0, 1.0, (3,), np.float32), action_space


@st.composite
def boxes(draw):
    """Draw a Box of two elements, of any float dtype, with any bounds."""
    dtype = draw(st.sampled_from([np.float16, np.float32, np.float64]))
    width = {np.float16: 16, np.float32: 32, np.float64: 64}[dtype]
    top = float(np.finfo(dtype).max) if dtype != np.float64 else 1e300
    bound = st.floats(-top, top, width=width, allow_nan=False) | st.sampled_from([-np.inf, np.inf, 0.1, -0.1, 1.0])
    low, high = np.array([sorted([draw(bound), draw(bound)]) for _ in range(2)], dtype).T
    low, high = np.where(low == np.inf, -np.inf, low), np.where(high == -np.inf, np.inf, high)
    return spaces.Box(low.astype(dtype), high.astype(dtype), dtype=dtype)


def of_space(dtype, x):
    return np.asarray(x) if np.issubdtype(dtype, np.floating) else np.asarray(x).astype(dtype)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@example(spaces.Box(np.array([-1.0, 0.0]), np.array([-2e-309, 0.0]), dtype=np.float64), "normal", 1)
@example(spaces.Box(np.array([1e-40, 0.0]), np.array([1.0, 1.0]), dtype=np.float64), "normal", 0)
@example(spaces.Box(np.float16([0.0, -16.0]), np.float16([0.0, 65504.0]), dtype=np.float16), "squashed", 0)
@example(spaces.Box(np.float32([0.0, -3.4028235e38]), np.float32([0.0, -3.4028235e38])), "normal", 0)
@example(spaces.Box(np.float32([0.0, 3.4028235e38]), np.float32([0.0, 3.4028235e38])), "normal", 0)
@given(boxes(), st.sampled_from(["normal", "squashed", "beta"]), st.integers(0, 2**32 - 1))
def test_env_actions_lie_in_the_box_at_extreme_outputs(box, family, seed):
    try:
        head = head_for(box, family)
    except ppax.ConfigError:
        low, high = box.low.astype(np.float64), box.high.astype(np.float64)  # float16 would overflow
        narrow = high - low < 1e-6 * np.abs(low)
        nearly_zero = np.maximum(np.abs(low), np.abs(high)) < 1e-37
        beyond = (low > 0.999 * np.finfo(np.float32).max) | (high < -0.999 * np.finfo(np.float32).max)
        assert family != "normal" or (narrow | nearly_zero | beyond).any()
        return
    raw = np.random.default_rng(seed).choice(EXTREMES, 2)
    if family == "beta":
        raw = np.clip(raw, 2.0**-24, 1 - 2.0**-24).astype(np.float32)
    log_std = np.zeros(head.log_std_size, np.float32)
    sent = np.asarray(head(np.zeros(head.size, np.float32), log_std, None).env_action(jnp.asarray(raw)))
    assert box.contains(sent), (sent, box.low, box.high)


LEAVES = st.sampled_from(
    [*(SPACES[name] for name in ("ragged", "grid", "bits", "box", "wide")), spaces.Discrete(3, start=-2)]
)
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3).map(spaces.Dict)
        | st.lists(inner, min_size=1, max_size=3).map(lambda parts: spaces.Tuple(tuple(parts)))
    ),
    max_leaves=5,
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(TREES, st.integers(0, 2**31 - 1))
def test_env_actions_lie_in_any_nested_space(space, seed):
    head, rng = head_for(space), np.random.default_rng(seed)
    outputs, log_std = (jnp.asarray(rng.normal(0, 3, n), jnp.float32) for n in (head.size, head.log_std_size))
    d = head(outputs, log_std, None)
    for action in (d.sample(jax.random.key(seed)), d.mode()):
        sent = as_sampled(space, d.env_action(action))
        assert space.contains(sent), sent
        assert np.isfinite(d.log_prob(action))


def as_sampled(space, sent):
    """Convert JAX arrays to actions that `space.contains` accepts."""
    if isinstance(space, spaces.Dict):
        return {name: as_sampled(space[name], x) for name, x in sent.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(map(as_sampled, space.spaces, sent))
    return np.asarray(sent)[()]


FAMILIES = {"normal": Normal, "squashed": SquashedNormal, "beta": Beta, "ball": BallNormal}


@pytest.mark.parametrize("family", FAMILIES)
def test_options_choose_the_distribution_from_python_and_run_files(family):
    network = mlp(World(SPACES["wide"]), distribution=family)
    decide = lambda key: network.decide((p := network.init(key)), network.encode(p, jnp.ones(3)), None)  # noqa: E731
    assert type(jax.eval_shape(decide, jax.random.key(0)).distribution) is FAMILIES[family]
    table = {"env": "Pendulum-v1", "agent": {"network": {"distribution": family}}}
    agent = config.build(table).agent
    assert config.describe(agent)["network"]["distribution"] == family
    assert agent.network.head.size == (2 if family == "beta" else 1)


def test_state_dependent_standard_deviation():
    head = head_for(SPACES["box"], state_std=True, log_std_init=-0.7)
    assert (head.size, head.log_std_size) == (4, 0)
    d = head(jnp.array([0.1, 0.2, 0.0, 3.0]), None, None)
    np.testing.assert_allclose(d.mean, [0.1, 0.2])
    # softplus(x + s) with softplus(s) = e^-0.7 = 0.4966, so s = log(e^0.4966 - 1) = -0.4412
    np.testing.assert_allclose(np.exp(d.log_std), [np.exp(-0.7), np.log1p(np.exp(3.0 - 0.44121))], rtol=1e-4)
    network = mlp(World(SPACES["box"]), state_std=True, log_std_init=-0.7)
    params = network.init(jax.random.key(0))
    assert "log_std" not in params
    assert params["policy"]["kernel"].shape == (64, 4)


def test_log_softplus_values_and_gradients():
    x = np.array([-200.0, -80.0, -15.1, -14.9, -1.0, 0.0, 5.0, 80.0], np.float32)
    exact = np.log(np.logaddexp(0.0, x.astype(np.longdouble)))
    exact[:2] = x[:2]  # log(e^x) where e^x is too small even there
    np.testing.assert_allclose(log_softplus(jnp.asarray(x)), exact.astype(float), rtol=1e-6, atol=1e-6)
    gradient = jax.vmap(jax.grad(log_softplus))(jnp.asarray(x))
    np.testing.assert_allclose(gradient[:4], 1.0, atol=1e-5)
    assert ((gradient > 0) & (gradient < 1.01)).all()


@pytest.mark.parametrize("state_std", [False, True])
def test_bounds_of_the_standard_deviation(state_std):
    head = head_for(SPACES["box"], state_std=state_std, std_min=0.1, std_max=2.0)
    for says, std in ((-30.0, 0.1), (30.0, 2.0)):
        outputs = jnp.array([0.0, 0.0, says, says]) if state_std else jnp.zeros(2)
        d = head(outputs, None if state_std else jnp.full(2, says), None)
        np.testing.assert_allclose(np.exp(d.log_std), std, rtol=1e-6)
    one_sided = head_for(SPACES["box"], std_min=0.1)(jnp.zeros(2), jnp.array([-9.0, 9.0]), None)
    np.testing.assert_allclose(one_sided.log_std, [np.log(0.1), 9.0], rtol=1e-6)


def test_clip_inward_passes_only_gradients_that_lead_back_inside():
    x = jnp.array([-3.0, -3.0, 0.5, 0.5, 3.0, 3.0])
    slope = jnp.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])  # descending moves against it
    gradient = jax.grad(lambda x: (slope * clip_inward(x, -1.0, 1.0)).sum())(x)
    np.testing.assert_array_equal(gradient, [0.0, -1.0, 1.0, -1.0, 1.0, 0.0])
    np.testing.assert_array_equal(clip_inward(x, -1.0, 1.0), [-1.0, -1.0, 0.5, 0.5, 1.0, 1.0])
    np.testing.assert_array_equal(jax.grad(lambda x: (slope * clip_inward(x, None, 1.0)).sum())(x)[:2], [1.0, -1.0])
    np.testing.assert_array_equal(jax.grad(lambda x: (slope * clip_inward(x, -1.0, None)).sum())(x)[4:], [1.0, -1.0])


def test_ball_radius():
    def ball(space, **options):
        head = head_for(space, "ball", **options)
        far = jnp.full(head.size, 50.0)
        return np.asarray(head(far, jnp.zeros(head.size), None).env_action(far))

    cube = spaces.Box(np.array([1.0, -2.0], np.float32), np.array([5.0, 2.0], np.float32))
    np.testing.assert_allclose(ball(cube), np.array([3.0, 0.0]) + 2.0 / np.sqrt(2.0), rtol=1e-6)
    np.testing.assert_allclose(ball(cube, ball_radius=0.5), np.array([3.0, 0.0]) + 0.5 / np.sqrt(2.0), rtol=1e-6)
    free = spaces.Box(-np.inf, np.inf, (2,))
    np.testing.assert_allclose(ball(free, ball_radius=7.0), 7.0 / np.sqrt(2.0), rtol=1e-6)


UNEVEN = spaces.Box(np.array([-1.0, -2.0], np.float32), np.array([1.0, 2.0], np.float32))
REFUSED = [
    (spaces.Box(0, 255, (3,), np.uint8), {}, r"Box\(0, 255.*whole numbers.*MultiDiscrete"),
    (spaces.Dict({"a": spaces.Tuple((spaces.Text(3),))}), {}, r"action space\['a'\]\[0\] Text.*supported are Discrete"),
    (spaces.Tuple(()), {}, "supported are"),
    (spaces.Box(0.1, 0.1, (1,), np.float64), {}, "no float32"),
    (spaces.Box(-1, 1, (0,), np.float32), {}, "no elements"),
    (SPACES["half"], {"distribution": "squashed"}, r'"squashed".*0.0 and inf at element 0.*nearest.*"normal"'),
    (SPACES["half"], {"distribution": "beta"}, "must be finite"),
    (SPACES["half"], {"distribution": "ball"}, "no middle"),
    (UNEVEN, {"distribution": "ball"}, "ball_radius, at most 1"),
    (UNEVEN, {"distribution": "ball", "ball_radius": 1.5}, "ball_radius = 1.5: at most 1"),
    (spaces.Box(-np.inf, np.inf, (2,)), {"distribution": "ball"}, "give ball_radius$"),
    (UNEVEN, {"ball_radius": 1.0}, "only distribution"),
    (UNEVEN, {"distribution": "betta"}, "nearest: beta"),
    (UNEVEN, {"distribution": "beta", "state_std": True}, "no standard deviation"),
    (UNEVEN, {"distribution": "beta", "std_max": 1.0}, "no standard deviation"),
    (UNEVEN, {"std_min": 1.0, "std_max": 0.5}, "std_min = 1.0: must be below std_max = 0.5"),
    (UNEVEN, {"std_min": -1.0}, "std_min = -1.0: must be above 0"),
    (SPACES["ragged"], {"distribution": "beta"}, "distribution = 'beta'.*has none"),
    (spaces.Discrete(2), {"state_std": True}, "state_std = True.*has none"),
]


@pytest.mark.parametrize(("space", "options", "message"), REFUSED)
def test_invalid_spaces_and_options_are_refused(space, options, message):
    with pytest.raises(ppax.ConfigError, match=message):
        head_for(space, **options)


def test_options_apply_to_the_boxes_of_a_nested_space():
    components = head_for(SPACES["nested"], "squashed")(jnp.zeros(12), jnp.zeros(1), None).components
    assert type(components["pair"].components[1]) is SquashedNormal


@pytest.mark.parametrize(("space", "options"), [("two", {}), ("ragged", {}), ("box", {"distribution": "beta"})])
def test_log_std_init_without_standard_deviation_is_refused(space, options):
    """Refuse `log_std_init` for discrete and Beta actions, where it has no effect."""
    with pytest.raises(ConfigError, match=r"log_std_init = -0\.5"):
        head_for(SPACES[space], **options, log_std_init=-0.5)


@pytest.mark.parametrize(("value", "said"), [(1000.0, "at most 40"), (-50.0, "at least -40"), (np.nan, "finite")])
def test_a_log_std_init_beyond_float32_is_refused(value, said):
    with pytest.raises(ConfigError, match=rf"log_std_init = .*{said}"):
        head_for(SPACES["box"], log_std_init=value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("OwnHead", "must be a function action space -> head, not the class OwnHead"),
        ("of_a_box", "has no head for Discrete.2.: AttributeError: 'Discrete' object has no attribute 'low'"),
        ("number", "must be a function action space -> head, not a int"),
    ],
)
def test_what_makes_no_head_is_refused(name, text, tmp_path, monkeypatch):
    code = "class OwnHead: ...\ndef of_a_box(space): return space.low\nnumber = 3\n"
    (tmp_path / "wrong_heads.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    ppax.trust("wrong_heads")
    with pytest.raises(ConfigError, match=text):
        head_for(spaces.Discrete(2), f"wrong_heads:{name}")


def test_a_function_in_place_of_its_import_path_is_refused_with_the_path(tmp_path, monkeypatch):
    (tmp_path / "right_heads.py").write_text("def of_a_box(space): return space.low\n")
    monkeypatch.syspath_prepend(tmp_path)
    function = importlib.import_module("right_heads").of_a_box
    with pytest.raises(ConfigError, match=r"distribution: a function; write its import path, 'right_heads:of_a_box'"):
        head_for(spaces.Box(-1.0, 1.0, (2,)), function)
