"""Optimisers: against float64 loops of the papers and optax; parameters of actor and critic."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ppax
from ppax import ConfigError
from ppax.devices.layout import Program
from ppax.networks import mlp
from ppax.ppo.minibatches import Shuffle
from ppax.ppo.optimizers import ActorCritic, Adam, Muon
from support.worlds import QUICK, SGD, AdamW

RATE = 0.1
GRADIENTS = np.random.default_rng(0).normal(0.0, 1.0, (6, 5))
START = np.array([1.0, -2.0, 0.5, 0.0, 3.0])
EVERY = [
    Adam(),
    AdamW(),
    SGD(momentum=0.9),
    Muon(),
    ActorCritic(Muon(), AdamW(), actor_max_grad_norm=1.0),
]


def tree(seed=0, shared=False):
    """Parameters with the names of the MLP."""
    rng = np.random.default_rng(seed)
    params = {
        "actor": {"0": {"kernel": rng.normal(size=(4, 8)), "bias": rng.normal(size=8)}},
        "critic": {"0": {"kernel": rng.normal(size=(8, 3)), "bias": rng.normal(size=3)}},
        "policy": {"kernel": rng.normal(size=(8, 2)), "bias": rng.normal(size=2)},
        "value": {"kernel": rng.normal(size=(3, 1)), "bias": rng.normal(size=1)},
        "log_std": rng.normal(size=2),
    }
    if shared:
        del params["critic"]
    return jax.tree.map(jnp.float32, params)


def descend(part, params, gradients, rate=RATE):
    """Return the parameters after each gradient; the transformation is rebuilt each time, as `update` does."""

    @jax.jit
    def step(part, rate, params, state, gradient):
        steps, state = part(rate).update(gradient, state, params)
        return optax.apply_updates(params, steps), state

    state, path = part(rate).init(params), []
    for gradient in gradients:
        params, state = step(part, rate, params, state, gradient)
        path.append(params)
    return path


def adam_loop(weight_decay, b1=0.8, b2=0.95, eps=1e-3):
    m = v = np.zeros(5)
    x, path = START, []
    for t, g in enumerate(GRADIENTS, 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        step = (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
        x = x - RATE * (step + weight_decay * x)
        path.append(x)
    return path


def sgd_loop(momentum, nesterov):
    m, x, path = np.zeros(5), START, []
    for g in GRADIENTS:
        m = g + momentum * m
        x = x - RATE * (g + momentum * m if nesterov else m)
        path.append(x)
    return path


@pytest.mark.parametrize(
    ("part", "path"),
    [
        (Adam(0.8, 0.95, 1e-3), adam_loop(0.0)),
        (AdamW(b1=0.8, b2=0.95, eps=1e-3, weight_decay=0.3), adam_loop(0.3)),
        (SGD(), sgd_loop(0.0, False)),
        (SGD(momentum=0.9), sgd_loop(0.9, False)),
        (SGD(momentum=0.9, nesterov=True), sgd_loop(0.9, True)),
    ],
    ids=lambda x: "" if isinstance(x, list) else str(x),
)
def test_agrees_with_a_float64_loop(part, path):
    assert part.elementwise
    got = descend(part, jnp.float32(START), jnp.float32(GRADIENTS))
    np.testing.assert_allclose(got, path, rtol=2e-5, atol=2e-5)


def test_muon_equals_optax():
    part = Muon(0.9, 0.1, 1e-7, 0.5, 0.8, 0.95, nesterov=False)
    theirs = optax.contrib.muon(
        RATE, beta=0.9, eps=1e-7, weight_decay=0.1, adam_b1=0.8, adam_b2=0.95, adam_learning_rate=0.05, nesterov=False
    )
    params, state = tree(), theirs.init(tree())
    ours = descend(part, params, [tree(i) for i in (1, 2, 3)])
    for i, own in zip((1, 2, 3), ours, strict=True):
        steps, state = theirs.update(tree(i), state, params)
        params = optax.apply_updates(params, steps)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), own, params)


@pytest.mark.parametrize("consistent_rms", [None, 0.2])
def test_muon_updates_are_nearly_orthogonal_and_vectors_use_adam(consistent_rms):
    gradient = tree(1)
    part = Muon(consistent_rms=consistent_rms, adam_scale=0.5, b1=0.0)
    (after,) = descend(part, tree(), [gradient], 1.0)
    step = jax.tree.map(lambda a, b: np.asarray(b - a, np.float64), tree(), after)
    for leaf, g in (
        (step["actor"]["0"]["kernel"], gradient["actor"]["0"]["kernel"]),
        (step["value"]["kernel"], gradient["value"]["kernel"]),
    ):
        # the gradient's singular vectors with singular values near 1: Newton-Schulz ends in [.7, 1.2]
        u, _, vt = np.linalg.svd(np.asarray(g, np.float64), full_matrices=False)
        inputs, outputs = leaf.shape
        length = max(1, outputs / inputs) ** 0.5 if consistent_rms is None else 0.2 * max(inputs, outputs) ** 0.5
        singular = -(u.T @ leaf @ vt.T) / length
        assert (np.diag(singular) > 0.65).all()
        assert (np.diag(singular) < 1.25).all()
        np.testing.assert_allclose(singular - np.diag(np.diag(singular)), 0.0, atol=1e-4)
    # the first step of Adam is the learning rate, here 1 * .5, against the sign
    for leaf, g in ((step["log_std"], gradient["log_std"]), (step["policy"]["bias"], gradient["policy"]["bias"])):
        np.testing.assert_allclose(leaf, -0.5 * np.sign(g), rtol=1e-4)


def groups(params):
    actor = {key: params[key] for key in ("actor", "policy", "log_std")}
    return actor, {key: params[key] for key in ("critic", "value")}


def test_actor_and_critic_have_separate_optimizers():
    part = ActorCritic(SGD(momentum=0.9), Adam(), actor_scale=0.5, critic_scale=2.0)
    gradients = [tree(i) for i in (1, 2, 3)]
    got = groups(descend(part, tree(), gradients)[-1])
    # each group as in an optimiser of its own
    for k, (alone, rate) in enumerate(((SGD(momentum=0.9), 0.5 * RATE), (Adam(), 2.0 * RATE))):
        expected = descend(alone, groups(tree())[k], [groups(g)[k] for g in gradients], rate)[-1]
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6), got[k], expected)


def test_a_learning_rate_of_0_freezes_one_group():
    after = descend(ActorCritic(actor_scale=0.0), tree(), [tree(1)])[-1]
    moved = [
        jax.tree.leaves(jax.tree.map(lambda a, b: bool((a != b).all()), x, y))
        for x, y in zip(groups(tree()), groups(after), strict=True)
    ]
    assert not any(moved[0])
    assert all(moved[1])


def test_each_group_is_clipped_by_its_own_norm():
    part = ActorCritic(SGD(), SGD(), actor_max_grad_norm=0.5, critic_max_grad_norm=1e6)
    gradient = tree(1)
    after = descend(part, tree(), [gradient], 1.0)[-1]
    steps = [
        jax.tree.map(lambda a, b: np.asarray(a - b, np.float64), x, y)
        for x, y in zip(groups(tree()), groups(after), strict=True)
    ]
    norm = np.sqrt(sum((x**2).sum() for x in jax.tree.leaves(steps[0])))
    np.testing.assert_allclose(norm, 0.5, rtol=1e-5)
    share = 0.5 / np.sqrt(sum((np.asarray(x, np.float64) ** 2).sum() for x in jax.tree.leaves(groups(gradient)[0])))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, share * b, rtol=1e-4, atol=1e-5), steps[0], groups(gradient)[0]
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), steps[1], groups(gradient)[1])


def test_a_group_is_clipped_before_its_optimizer():
    """The bound is on the gradient: an SGD update is at most the learning rate times the bound."""
    after = descend(ActorCritic(SGD(), SGD(), actor_max_grad_norm=0.5), tree(), [tree(1)], 0.1)[-1]
    moved = jax.tree.map(lambda a, b: np.asarray(a - b, np.float64), groups(tree())[0], groups(after)[0])
    norm = np.sqrt(sum((x**2).sum() for x in jax.tree.leaves(moved)))
    np.testing.assert_allclose(norm, 0.1 * 0.5, rtol=1e-4)


def test_parameters_without_a_unique_owner_are_refused():
    with pytest.raises(ConfigError, match=r"no 'critic' .* 'policy', .*network.shared = false"):
        ActorCritic()(RATE).init(tree(shared=True))
    with pytest.raises(ConfigError, match=r"the parameters 'memory' belong neither .*optimizer.actor_keys"):
        ActorCritic()(RATE).init({**tree(), "memory": jnp.zeros(2)})
    with pytest.raises(ConfigError, match=r"'value' is in actor_keys and in critic_keys"):
        ActorCritic(actor_keys=("actor", "policy", "log_std", "value"))(RATE).init(tree())
    with pytest.raises(ConfigError, match=r"no 'critic', 'value'"):
        ActorCritic()(RATE).init(jnp.zeros(3))
    named = ActorCritic(actor_keys=("actor", "policy", "log_std", "memory"))
    named(RATE).init({**tree(), "memory": jnp.zeros(2)})


def test_separate_networks_are_partitioned_and_shared_ones_refused():
    env = ppax.make("CartPole-v1", 2)
    agent = ppax.PPO(mlp(env, hidden=(4,)), optimizer=ActorCritic(Muon(), Adam(), actor_scale=0.0))
    before = agent.init(env.observation_space, jax.random.key(0)).params
    state = ppax.start(agent, env, 8, jax.random.key(0))
    after = jax.jit(ppax.train, static_argnums=3)(agent, env, state, 1).state.learner.params
    start = state.learner.params
    assert jax.tree.structure(start) == jax.tree.structure(before)
    same = {key: jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), start[key], after[key])) for key in start}
    assert same == {"actor": True, "policy": True, "critic": False, "value": False}
    shared = ppax.PPO(mlp(env, shared=True), optimizer=ActorCritic())
    with pytest.raises(ConfigError, match=r"network.shared = false"):
        jax.eval_shape(lambda key: shared.init(env.observation_space, key), jax.random.key(0))


def test_actor_or_critic_does_not_change_after_its_last_epoch():
    """Compare with separate optimisers: the critic sees all epochs, the actor none after its last one."""
    part = ActorCritic(SGD(momentum=0.9), Adam(), actor_epochs=2)
    gradients, epochs = [tree(i) for i in range(1, 7)], [0, 0, 1, 1, 2, 2]
    params, state, states = tree(), part(RATE).init(tree()), []
    step = jax.jit(lambda epoch, params, state, g: part(RATE).update(g, state, params, epoch=epoch))
    for epoch, gradient in zip(epochs, gradients, strict=True):
        steps, state = step(epoch, params, state, gradient)
        params = optax.apply_updates(params, steps)
        states.append(state.inner_states)
    kept = gradients[:4], gradients
    for k, alone in enumerate((SGD(momentum=0.9), Adam())):
        expected = descend(alone, groups(tree())[k], [groups(g)[k] for g in kept[k]])[-1]
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), groups(params)[k], expected)
    moved = {
        name: not jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), states[3][name], states[5][name]))
        for name in ("actor", "critic")
    }
    assert moved == {"actor": False, "critic": True}


def test_actor_epochs_and_critic_epochs_in_an_update():
    """Without common clipping, actor and critic equal those of updates with their own number of epochs."""
    env = ppax.make("Pendulum-v1", 4)

    def make(num_epochs, **epochs):
        return ppax.PPO(
            mlp(env, hidden=(4,)),
            optimizer=ActorCritic(actor_max_grad_norm=0.1, critic_max_grad_norm=0.1, **epochs),
            max_grad_norm=None,
            num_epochs=num_epochs,
            minibatch=Shuffle(1),  # a single minibatch, so that the order of rows does not matter
            program=Program(chunk_rows=8),
            learning_rate=1e-2,
        )

    state = jax.jit(ppax.start, static_argnums=2)(make(1), env, 8, jax.random.key(0))
    collect, update = jax.jit(ppax.collect, static_argnums=4), jax.jit(ppax.PPO.update, compiler_options=QUICK)
    rollout = collect(make(1), env, state.learner, state.actor, 8, jax.random.key(1)).rollout

    def after(*sizes, **epochs):
        learner = update(make(*sizes, **epochs), state.learner, rollout, jax.random.key(2)).learner
        inner = learner.opt_state.inner_states
        return [(x, inner[name]) for x, name in zip(groups(learner.params), ("actor", "critic"), strict=True)]

    short, long = after(1), after(3)
    for got, expected in (
        (after(3, actor_epochs=1), (short[0], long[1])),
        (after(3, actor_epochs=3, critic_epochs=1), (long[0], short[1])),
    ):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), tuple(got), expected)
    difference = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), short, long)
    assert min(max(jax.tree.leaves(group[0])) for group in difference) > 1e-3  # the number of epochs matters


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"actor_epochs": 8},
            "actor_epochs = 8 and critic_epochs = none: .* num_epochs = 4, .*nearest: num_epochs = 8",
        ),
        ({"actor_epochs": 2, "critic_epochs": 3}, "actor_epochs = 2 and critic_epochs = 3: .*nearest: num_epochs = 3"),
        ({"critic_max_grad_norm": 1.0}, r'optimizer.critic_max_grad_norm: .*max_grad_norm = "none" in \[agent\]'),
    ],
)
def test_options_that_contradict_the_agent_are_refused(options, text):
    env = ppax.make("CartPole-v1", 2)
    agent = ppax.PPO(mlp(env, hidden=(4,)), num_epochs=4, optimizer=ActorCritic(**options))
    with pytest.raises(ConfigError, match=text):
        jax.eval_shape(lambda: ppax.start(agent, env, 8, jax.random.key(0)))


@pytest.mark.parametrize("part", EVERY, ids=lambda x: type(x).__name__)
def test_every_number_is_traced_and_changes_the_result(part):
    """One program serves all values; each value changes the result; a vmapped sweep equals single calls."""
    leaves, structure = jax.tree.flatten(part)
    traces = []

    @jax.jit
    def after(leaves):
        traces.append(1)
        transformation, params = jax.tree.unflatten(structure, leaves)(RATE), tree()
        state = transformation.init(params)
        for seed in (1, 2, 3):
            steps, state = transformation.update(tree(seed), state, params)
            params = optax.apply_updates(params, steps)
        return jax.flatten_util.ravel_pytree(params)[0]

    leaves = [jnp.float32(x) for x in leaves]
    base, swept = after(leaves), []
    for i in range(len(leaves)):
        changed = [x * 0.9 if j == i else x for j, x in enumerate(leaves)]
        changed[i] = jnp.where(leaves[i] == 0.0, 0.1, changed[i])
        changed[i] = jnp.where(leaves[i] < 1e-3, 1e-2, changed[i])  # a tenth of eps is below rounding
        swept.append(changed)
        assert (after(changed) != base).any(), i
    assert len(traces) == 1
    together = jax.vmap(after)([jnp.stack(x) for x in zip(*swept, strict=True)])
    one_by_one = np.stack([after(x) for x in swept])
    np.testing.assert_allclose(together, one_by_one, rtol=1e-4, atol=1e-5)


def test_muon_leaves_log_standard_deviations_of_gsde_to_adam():
    """They have two axes, but are no matrix: an orthogonalised step would have the same size for any gradient."""
    params = {"policy": {"kernel": jnp.ones((4, 2))}, "log_std": jnp.zeros((4, 2))}
    gradient = jax.tree.map(lambda x: jnp.arange(8.0).reshape(4, 2) - 3.0, params)
    chosen, adam = Muon()(RATE), optax.adam(RATE, b1=Muon().b1, b2=Muon().b2, nesterov=True)
    updates, _ = chosen.update(gradient, chosen.init(params), params)
    expected, _ = adam.update(gradient, adam.init(params), params)
    np.testing.assert_allclose(updates["log_std"], expected["log_std"], rtol=1e-6)
    assert np.abs(updates["policy"]["kernel"] - expected["policy"]["kernel"]).max() > 0.1 * RATE
