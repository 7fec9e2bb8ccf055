"""Documentation: parts of extending.md by hand, generated pages are up to date, links, files and functions exist."""

import ast
import dataclasses
import importlib
import re
import subprocess
import sys
import types
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ppax
from ppax import config
from ppax.core import imports, untrusted
from ppax.core.types import ConfigError
from ppax.envs.suites import registry
from ppax.extensions import Following
from ppax.sweeps import plan

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def part_of(heading, place=0):
    """Return the names of a block below a heading of docs/extending.md, the first by default, without its training."""
    text = (ROOT / "docs" / "extending.md").read_text().split(f"\n## {heading}\n")[1].partition("\n## ")[0]
    names = {}
    exec(re.split(r"\n\n\n(?:env|run) = ", re.findall(r"```python\n(.*?)```", text, re.DOTALL)[place])[0], names)
    return names


def steps(reward, value, terminated, truncated):
    arrays = {"reward": reward, "value": value, "terminated": terminated, "truncated": truncated}
    rest = dict.fromkeys(("obs", "action", "log_prob", "first", "valid"), jnp.zeros(len(reward)))
    return ppax.core.types.Transition(carry=(), **rest, **{name: jnp.array(x) for name, x in arrays.items()})


def test_estimator_of_extending_by_hand():
    mixed = part_of("Advantage estimator")["Mixed"]
    rows = steps([1.0, 2.0, 4.0], [1.0, 1.0, 1.0], [False, True, False], [False, False, False])
    out = mixed(0.25)(rows, jnp.array([1.0, 99.0, 8.0]), 0.5)
    # one step: 1 + 0.5 * 1, 2, 4 + 0.5 * 8; to the end: 1 + 0.5 * 2, 2, 8
    np.testing.assert_allclose(out.value, [0.75 * 1.5 + 0.25 * 2.0, 2.0, 8.0])
    np.testing.assert_allclose(out.advantage, out.value - 1.0)


def test_memory_of_extending_resets_and_continues():
    memory = part_of("Memory")["Trace"]()
    params, x = memory.init(jax.random.key(0), 3), jax.random.normal(jax.random.key(1), (6, 3))
    first = jnp.array([False, False, True, False, False, False])
    whole = memory.scan(params, memory.initial_carry(3), x, first)
    begin = memory.scan(params, memory.initial_carry(3), x[:4], first[:4])
    end = memory.scan(params, begin.carry, x[4:], first[4:])
    np.testing.assert_allclose(whole.features, jnp.concatenate([begin.features, end.features]), rtol=1e-6)
    fresh = memory.scan(params, memory.initial_carry(3), x[2:], first[2:])
    np.testing.assert_allclose(whole.features[2:], fresh.features, rtol=1e-6)
    assert whole.features.shape == (6, memory.output_size(3))


def test_memory_by_lax_scan_of_extending_by_hand():
    memory = part_of("Memory", 1)["Differences"]()
    x, first = jnp.array([[1.0], [4.0], [6.0], [7.0]]), jnp.array([False, False, True, False])
    carry = {"last": jnp.array([3.0]), "steps": jnp.array(1.0)}
    after, seen = memory.scan({}, carry, x, first)
    steps = np.log([2.0, 3.0, 1.0, 2.0])  # 1 + steps before: the third begins an episode
    np.testing.assert_allclose(seen, np.stack([[1.0, 4.0, 6.0, 7.0], [-2.0, 3.0, 6.0, 1.0], steps], axis=1), rtol=1e-6)
    np.testing.assert_allclose([after["last"][0], after["steps"]], [7.0, 2.0])
    assert seen.shape[1] == memory.output_size(1)


def test_network_of_extending_by_hand_and_for_items_in_any_order(monkeypatch):
    network = part_of("Network")["SetNetwork"](8)
    monkeypatch.setitem(config.PARTS, "network", config.PARTS["network"] | {"set": type(network)})
    assert config.build({"agent": {"network": {"part": "set", "width": 8}}}).agent.network == network
    params, rng = network.init(jax.random.key(0)), np.random.default_rng(0)
    items = np.concatenate([rng.normal(size=(5, 2)), [[1], [1], [0], [1], [0]]], axis=1).astype(np.float32)
    out = network.decide(params, network.encode(params, items), None)
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    seen = np.tanh(items[[0, 1, 3]] @ p["item"]["kernel"] + p["item"]["bias"])
    weights = np.exp(seen @ p["query"])
    features = weights @ seen / weights.sum()
    np.testing.assert_allclose(out.value, features @ p["value"]["kernel"] + p["value"]["bias"], rtol=1e-5, atol=1e-6)
    items[4, :2] = 100.0  # an empty row
    again = network.decide(params, network.encode(params, items[[3, 4, 1, 0, 2]]), None)
    np.testing.assert_allclose(again.distribution.logits, out.distribution.logits, rtol=1e-5, atol=1e-7)
    other = network.decide(params, network.encode(params, items * np.float32([1, 2, 1])), None)
    assert np.abs(other.value - out.value).max() > 1e-3


def rows_of(**fields):
    """Rows of a loss with the given fields alone."""
    return SimpleNamespace(**fields)


def test_loss_term_of_extending_by_hand():
    loss = part_of("An extension")["ZLoss"](0.5)
    distribution = ppax.distributions.Categorical(jnp.array([[0.0, 0.0], [jnp.log(3.0), 0.0]]))
    terms = loss.terms(rows_of(policy=rows_of(distribution=distribution)))
    # log(1 + 1) and log(3 + 1)
    np.testing.assert_allclose(terms.metrics["log_z"], np.log([2.0, 4.0]), rtol=1e-6)
    np.testing.assert_allclose(terms.losses["z_loss"], 0.5 * np.log([2.0, 4.0]) ** 2, rtol=1e-6)


def test_smoothness_of_extending_by_hand():
    """The policy's mean action is -2 x; the second row has no known next observation."""
    smooth = part_of("An extension", 1)["Smoothness"](0.5)

    def policy(obs):
        return rows_of(distribution=rows_of(mode=lambda: -2.0 * obs))

    here, after = jnp.array([[1.0, 0.0], [2.0, 0.0], [0.0, 0.0]]), jnp.array([[2.5, 2.0], [9.0, 9.0], [0.0, 0.0]])
    extras = Following(after, jnp.array([True, False, True]))
    terms = smooth.terms(rows_of(policy=policy(here), forward=policy, extras=extras))
    # |(-2 * 1.5, -2 * 2)| = 5
    np.testing.assert_allclose(terms.metrics["action_distance"], [5.0, 0.0, 0.0], atol=1e-5)
    np.testing.assert_allclose(terms.losses["smoothness_loss"], [2.5, 0.0, 0.0], atol=1e-5)
    with pytest.raises(ppax.ConfigError, match="one Box"):
        smooth.terms(rows_of(policy=rows_of(distribution=rows_of(mode=lambda: jnp.zeros(3, int))), extras=extras))


def test_smoothness_of_extending_is_that_of_the_example():
    text, example = (ROOT / "docs" / "extending.md").read_text(), (ROOT / "examples" / "smooth_actions.py").read_text()
    methods = example.split("    def before(")[1].split("\n\n\ndef main")[0]
    assert f"    def before({methods}\n" in text


def test_balanced_of_extending_by_hand():
    balanced = part_of("An extension", 3)["Balanced"](0.5)
    rows = dataclasses.replace(steps(*[jnp.zeros((2, 1))] * 4), obs=jnp.array([[[9.0, 9.0, -0.2, 9.0]]] * 2))
    out = balanced.before(None, (), (), ppax.core.types.Rollout(rows, None, None, None), jnp.ones((2, 1)))
    np.testing.assert_allclose(out.reward, [[1.0 - 0.5 * 0.2]] * 2)


def test_surprise_of_extending_by_hand():
    """The predictor is 3 tanh(x): rewards by the error before the gradient step, which lowers it."""
    names = part_of("An extension", 4)
    surprise = names["Surprise"](0.5, learning_rate=0.1, width=1)
    params = {"in": jnp.ones((1, 1)), "out": jnp.full((1, 1), 3.0)}
    state = names["Model"](params, optax.adam(0.1).init(params))
    obs = jnp.array([[[0.0]], [[1.0]], [[2.0]], [[jnp.nan]]])  # the last row is not valid
    rows = steps(*[jnp.zeros((4, 1))] * 4)
    rows = dataclasses.replace(rows, obs=obs, valid=jnp.array([[True], [True], [True], [False]]))
    rollout = ppax.core.types.Rollout(rows, None, None, jnp.array([[7.0]]))
    out = surprise.before(None, state, (), rollout, jnp.full((4, 1), 10.0))
    # after the third step comes one that is not finite: not known
    wanted = [10.0 + 0.5 * (0.0 - 1.0) ** 2, 10.0 + 0.5 * (3.0 * np.tanh(1.0) - 2.0) ** 2, 10.0, 10.0]
    np.testing.assert_allclose(out.reward[:, 0], wanted, rtol=1e-6)
    np.testing.assert_allclose(out.metrics["surprise_loss"], (1.0 + (3.0 * np.tanh(1.0) - 2.0) ** 2) / 2, rtol=1e-6)
    after = surprise.before(None, out.state, (), rollout, jnp.zeros((4, 1)))
    assert after.metrics["surprise_loss"] < out.metrics["surprise_loss"]


def test_progress_of_extending_continues_in_the_next_rollout():
    progress = part_of("An extension", 5)["Progress"](2.0)
    rows = steps(*[jnp.zeros((4, 1))] * 4)
    rows = dataclasses.replace(
        rows,
        obs=jnp.array([[[1.0]], [[3.0]], [[2.0]], [[0.0]]]),  # the fourth begins an episode
        first=jnp.array([[False], [False], [False], [True]]),
        valid=jnp.array([[True], [True], [False], [True]]),  # the third is an autoreset row
    )
    rollout = ppax.core.types.Rollout(rows, None, None, jnp.array([[0.5]]))
    out = progress.before(None, (), jnp.array([2.0]), rollout, jnp.ones((4, 1)))
    # the largest value was 2: 3 is a rise by 1; in the next episode 0.5 after 0
    np.testing.assert_allclose(out.reward[:, 0], [1.0 + 2.0 * 1.0, 1.0, 1.0, 1.0 + 2.0 * 0.5])
    np.testing.assert_allclose(out.streams, [0.5])


def test_largest_reward_of_extending_is_in_the_state_and_reads_valid_rows_alone():
    largest = part_of("An extension", 6)["LargestReward"]()
    rows = dataclasses.replace(
        steps(*[jnp.zeros((3, 1))] * 4),
        reward=jnp.array([[1.0], [3.0], [9.0]]),
        valid=jnp.array([[True], [True], [False]]),
    )
    rollout = ppax.core.types.Rollout(rows, None, None, None)
    assert largest.before(None, {"largest": jnp.float32(-jnp.inf)}, (), rollout, rows.reward).state == {"largest": 3.0}
    assert largest.before(None, {"largest": jnp.float32(5.0)}, (), rollout, rows.reward).state == {"largest": 5.0}


def test_suite_of_extending_can_be_made_by_name(monkeypatch):
    module = types.ModuleType("ppax.envs.suites.walks")
    names = part_of("Environment suite")
    vars(module).update(names)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(registry.SUITES, "walks", registry.Suite("ppax"))
    assert importlib.import_module(module.__name__) is module
    assert ppax.make("walks/Walk-20", num_envs=4).num_envs == 4
    assert registry.ids("walks") == ["Walk-5", "Walk-20"]
    assert names["ppax"].check_env(module.load("Walk-5"))
    for target in (
        "walks/Walk-5",
        "CartPole-v1",
    ):  # and no environment of ppax is taken for one of this suite's library
        quick = {"total_steps": 512, "num_envs": 8, "num_steps": 32, "log": {"console": False}}
        assert len(ppax.build(target, **quick).fit().history) == 2
    with pytest.raises(ConfigError, match="no environment 'Walk-6'; did you mean 'walks/Walk-5'"):
        ppax.make("walks/Walk-6")


def test_distribution_of_extending_is_normalised():
    names = part_of("Distribution with its head")
    bounds = names["Bounds"]((-2.0,), (2.0,), (1,))
    one, other = (names["Laplace"](jnp.array([m]), jnp.array([s]), bounds) for m, s in ((0.3, -0.2), (-0.5, 0.4)))
    x = jnp.linspace(-40.0, 40.0, 400_001)[:, None]
    p, q = (jax.vmap(one.log_prob)(x), jax.vmap(other.log_prob)(x))
    width = 80.0 / 400_000
    np.testing.assert_allclose(jnp.exp(p).sum() * width, 1.0, atol=1e-3)
    np.testing.assert_allclose(one.entropy(), -(jnp.exp(p) * p).sum() * width, atol=1e-3)
    np.testing.assert_allclose(one.kl(other), (jnp.exp(p) * (p - q)).sum() * width, atol=1e-3)
    assert one.env_action(jnp.array([7.0])).tolist() == [2.0]


def test_newest_half_of_extending_has_the_later_sequences_of_each_stream():
    made = part_of("Minibatches", 1)["NewestHalf"](blocks=4, num_minibatches=2)
    numbers = jnp.arange(12).reshape(4, 3)  # [T, B]: step t of stream b is 3 t + b
    rows = ppax.arrays.sequences.to_sequences(numbers, 1)
    batch = ppax.core.types.Batch(steps(*[jnp.zeros(12)] * 4), None)
    drawn = made(batch, jax.random.key(0)).index
    assert drawn.shape == (2, made.size(12, 1)) == (2, 3)
    assert sorted(rows[drawn.reshape(-1), 0].tolist()) == [6, 7, 8, 9, 10, 11]  # t = 2 and 3
    with pytest.raises(ppax.ConfigError, match="13 sequences"):
        made.size(13, 1)


def test_extension_of_extending_trains_parameters_of_its_own():
    names = part_of("An extension", 2)
    env = ppax.make("CartPole-v1", 4)
    agent = ppax.PPO(ppax.networks.mlp(env, (8,)), extensions=(names["PredictReward"](1.0),), num_epochs=1)
    state = ppax.start(agent, env, 16, jax.random.key(0))
    before = state.learner.extensions["predict_reward"].params
    assert before["kernel"].shape == (8,)
    assert "extensions" not in state.learner.params
    after = jax.jit(ppax.train, static_argnums=3)(agent, env, state, 1)
    moved = after.state.learner.extensions["predict_reward"].params["bias"] - before["bias"]
    assert float(jnp.abs(moved).max()) > 0.0  # it learns


def test_script_with_a_part_of_its_own_trains_it(tmp_path, monkeypatch, capsys):
    text = (ROOT / "docs" / "extending.md").read_text()
    (code,) = (code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "__main__" in code)
    monkeypatch.setitem(config.PARTS, "advantage", dict(config.PARTS["advantage"]))
    sizes = ["--total-steps", "512", "--num-envs", "8", "--num-steps", "32", "--eval.episodes", "2"]
    part = ["--agent.advantage", "nstep_mix", "--agent.advantage.weight", "0.25", "--no-cache"]
    monkeypatch.setattr(
        sys, "argv", ["train.py", "train", "CartPole-v1", *sizes, *part, "--run-dir", str(tmp_path / "run")]
    )
    names = {"__name__": "__main__"}
    with pytest.raises(SystemExit) as ended:
        exec(compile(code, "train.py", "exec"), names)
    assert ended.value.code == 0, capsys.readouterr().err
    found = config.read(tmp_path / "run" / "run.toml")
    assert found["agent"]["advantage"] == {"part": "nstep_mix", "weight": 0.25}
    assert config.OBJECTS not in found
    rows = steps([1.0, 2.0, 4.0], [1.0, 1.0, 1.0], [False, True, False], [False, False, False])
    out = names["NStepMix"](0.25)(rows, jnp.array([1.0, 99.0, 8.0]), 0.5)
    # one step: 1 + 0.5 * 1, 2, 4 + 0.5 * 8; two steps: 1 + 0.5 * 2, 2, 8
    np.testing.assert_allclose(out.value, [0.75 * 1.5 + 0.25 * 2.0, 2.0, 8.0])


@pytest.mark.parametrize(
    ("slot", "name", "heading", "cls", "option"),
    [
        ("advantage", "mixed", "Advantage estimator", "Mixed", {"weight": 0.25}),
        ("loss", "soft_clip", "Loss", "SoftClip", {"tau": 2.0}),
        ("minibatch", "with_replacement", "Minibatches", "WithReplacement", {"num_minibatches": 2}),
    ],
)
def test_catalogue_line_makes_a_run_file_build_the_part(slot, name, heading, cls, option, monkeypatch):
    made = part_of(heading)[cls]
    monkeypatch.setitem(config.PARTS, slot, config.PARTS[slot] | {name: made})
    assert getattr(config.build({"agent": {slot: {"part": name} | option}}).agent, slot) == made(**option)


# First words of blocks that are no run files: rows of scores, a package's file, a file of a Ray cluster
NO_RUN_FILES = ("[[row]]", "[project", "[ray]")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_run_file_of_a_page_is_read(page):
    """Options and values exist; a file that names code of the user's own is refused for that alone."""
    for text in re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL):
        if text.startswith(NO_RUN_FILES):
            continue
        run_config, table = plan.split_sweep(untrusted.from_toml(text))
        try:
            config.resolve(run_config)
        except imports.Untrusted:
            continue
        except ConfigError as error:
            pytest.fail(f"{page.name}: {error}, in:\n{text}")
        if table:
            plan.read(table)


EXTENSIONS = ["ZLoss", "Smoothness", "PredictReward", "Balanced", "Surprise", "Progress"]


@pytest.mark.parametrize(("place", "cls"), enumerate(EXTENSIONS))
def test_catalogue_line_makes_a_run_file_build_the_extension(place, cls, monkeypatch):
    made = part_of("An extension", place)[cls]
    monkeypatch.setitem(config.PARTS, "extension", config.PARTS["extension"] | {"mine": made})
    tables = {"mine": {"coef": 0.25}, "second": {"part": "mine"}}
    agent = config.build({"agent": {"extensions": tables}}).agent
    assert agent.extensions == (made(coef=0.25, name="mine"), made(name="second"))


def test_catalogue_line_of_the_memory(monkeypatch):
    made = part_of("Memory")["Trace"]
    monkeypatch.setitem(config.PARTS, "memory", config.PARTS["memory"] | {"trace": made})
    assert config.build({"agent": {"network": {"memory": {"part": "trace"}}}}).agent.network.memory == made()


def test_the_page_on_ppo_quotes_the_sum_of_the_loss():
    (line,) = re.findall(r"```py\n(loss = .*)\n```", (ROOT / "docs" / "ppo.md").read_text())
    assert line in (ROOT / "src" / "ppax" / "ppo" / "losses.py").read_text()


def test_generated_pages_are_up_to_date():
    command = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_exist(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    missing = [
        link
        for link in links
        if not re.match(r"https?:|mailto:|#", link) and not (page.parent / link.partition("#")[0]).exists()
    ]
    assert not missing


NEW_FILES = {"src/ppax/envs/suites/walks.py"}  # that a reader shall write


def test_files_named_in_the_pages_exist():
    places = (ROOT, ROOT / "src" / "ppax")
    named = {(page.name, file) for page in PAGES for file in re.findall(r"[\w./-]*\w/\w+\.py\b", page.read_text())}
    assert len(named) > 20
    missing = {(page, file) for page, file in named if not any((place / file).exists() for place in places)}
    assert {file for _, file in missing} <= NEW_FILES, missing


def definitions():
    """Names defined in each module and class of the package, methods, fields and attributes of `self` included."""
    found = {}
    for path in (ROOT / "src" / "ppax").rglob("*.py"):
        tree = ast.parse(path.read_text())
        owners = [(path.parent.name if path.stem == "__init__" else path.stem, tree)]
        owners += [(node.name, node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        for owner, node in owners:
            names = found.setdefault(owner, set())
            for child in ast.walk(node):
                if isinstance(child, ast.FunctionDef | ast.ClassDef):
                    names.add(child.name)
                elif isinstance(child, ast.Name | ast.Attribute) and isinstance(child.ctx, ast.Store):
                    names.add(child.id if isinstance(child, ast.Name) else child.attr)
    return found


def test_functions_and_fields_named_in_the_architecture_exist():
    known = definitions() | {"ppax": set(ppax.__all__)}
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = [(owner, name) for owner, name in re.findall(r"`(\w+)\.(\w+)[`(]", text) if owner in known]
    named = [(owner, name) for owner, name in named if name not in ("py", "json", "jsonl")]
    assert len(named) > 20
    assert [f"{owner}.{name}" for owner, name in named if name not in known[owner]] == []


def test_the_tree_in_the_architecture_is_complete():
    tree = (ROOT / "docs" / "architecture.md").read_text().split("```")[1]
    there = {path.name + "/" * path.is_dir() for path in (ROOT / "src" / "ppax").iterdir()}
    there -= {"__init__.py", "__main__.py", "__pycache__/", "py.typed"}
    assert {name for name in there if not re.search(rf"(?<![\w/]){re.escape(name)}", tree)} == set()
    named = re.findall(r"^  (\w+(?:/|\.py)) ", tree, re.MULTILINE)
    assert set(named) <= there


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]
    assert set(re.findall(r"(\w+\.md)", navigation)) == {page.name for page in (ROOT / "docs").glob("*.md")}


def test_citation_has_the_version():
    assert f"\nversion: {ppax.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def messages():
    """Each string of the package that is no docstring, with its file; strings written side by side are one."""
    for path in sorted((ROOT / "src" / "ppax").rglob("*.py")):
        tree = ast.parse(path.read_text())
        statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements:
                yield path.name, node.value


def test_messages_name_pages_by_their_titles():
    """A wheel has no folder docs/: who reads a message finds the page by its title."""
    titles = re.findall(r"^ +- (.+): \w+\.md$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    titles = [title.strip('"') for title in titles]
    found = [(file, text) for file, text in messages() if 'page "' in text]
    assert len(found) > 8
    assert [pair for pair in found if not any(f'page "{title}"' in pair[1] for title in titles)] == []
    assert [(file, text) for file, text in messages() if re.search(r"docs/\w+\.md", text)] == []
