"""Page of a report: escaped, self-contained, small, and with the numbers of the runs."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from ppax import config
from ppax.reports import health
from ppax.reports.page import EpisodeFilm, evaluation, page, paragraph
from ppax.reports.settings import settings_of
from ppax.run.records import Record, of_history
from ppax.training.evaluation import Evaluation

ATTACK = "<script>alert('x')</script><img src=x onerror=alert(1)>\"&\u202e\x1b[2J\ud800"
ELEMENTS = """html head meta title style body main header section footer figure figcaption details summary
p h1 h2 h3 b span div dl dt dd table thead tbody tr th td small code pre img svg path rect text"""


class Elements(HTMLParser):
    """Elements and attributes of a page."""

    def __init__(self, text):
        super().__init__()
        self.names, self.attributes, self.open = set(), set(), []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in ("img", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def run(name="run", rows=5, **tables):
    values = [
        {"iteration": i, "env_steps": 100 * i, "seconds": i / 4, "episode_return": 10.0 * i, "approx_kl": 0.01 * i}
        for i in range(1, rows + 1)
    ]
    return of_history(name, values, config.resolve({"env": "CartPole-v1"} | tables))


def test_no_text_of_a_run_becomes_markup():
    row = {"iteration": 1, "env_steps": 5, "episode_return": 1.0, ATTACK: 1.0, f"{ATTACK}_loss": 2.0}
    tables = {"env": ATTACK, "seed": ATTACK, ATTACK: {ATTACK: ATTACK}}
    record = of_history(ATTACK, [row, row | {"iteration": 2}], tables)
    start = dict.fromkeys(("time", "device", "cores", "git_commit"), ATTACK) | {"packages": {"jax": ATTACK}}
    hostile = record._replace(
        run_file=ATTACK, starts=[start], stopped={"why": ATTACK}, evaluation={"mean_return": 1.0, ATTACK: 2.0}
    )
    other = hostile._replace(tables=tables | {"num_envs": ATTACK})
    text = page([hostile, other], EpisodeFilm(b"GIF", ATTACK), ATTACK)
    found = Elements(text)
    assert found.names <= set(ELEMENTS.split())
    assert not {name for name in found.attributes if name.startswith("on")}
    assert found.open == []
    assert "&lt;script&gt;" in text
    assert not {"\u202e", "\x1b", "\ud800"} & set(text)


def test_the_page_loads_nothing():
    text = page([run(), run("other", num_envs=8)], EpisodeFilm(b"GIF89a", "caption"), "today")
    assert not re.search(r"https?:|//|url\(|@import|<script|<link|<iframe", text)
    assert set(re.findall(r'(?:src|href)="(.{5})', text)) == {"data:"}
    assert "default-src &#x27;none&#x27;" in text


def test_a_long_run_makes_a_small_page():
    noise = np.random.default_rng(0)
    counters = {"iteration": np.arange(1.0, 100_001), "env_steps": np.arange(1.0, 100_001) * 2048}
    names = ["episode_return", "eval_return", "loss", "value_loss", "steps_per_second", *(f"m{i}" for i in range(30))]
    names += [sign.metric for sign in health.SIGNS]
    runs = [
        run(seed=seed)._replace(columns=counters | {name: noise.normal(size=100_000) for name in names})
        for seed in range(3)
    ]
    text = page([*runs, runs[0]._replace(tables=config.resolve({"num_envs": 8}))], None, "today")
    assert text.count('role="img"') == 2 + 2 + 6 + 31  # learning twice; losses and speed; health; others
    assert len(text.encode()) < 5e6


def test_one_run_in_words():
    evaluated = run(rows=4)._replace(evaluation={"mean_return": 487.25, "std_return": 12.0, "episodes": 128})
    assert paragraph(settings_of([evaluated])) == (
        "PPO on CartPole-v1, seed 0. It trained for 400 environment steps in 1.0 s (400 steps per second). "
        "The policy reaches a mean return of 487.2 over 128 evaluation episodes (standard deviation 12). "
        "The first episodes of training had 10. "
        "It ended: total_steps are done."
    )


def test_several_runs_in_words():
    slow = [run(seed=seed)._replace(evaluation={"mean_return": 10.0 + seed, "episodes": 8}) for seed in (0, 2)]
    text = paragraph(settings_of([*slow, run(num_envs=8)._replace(stopped={})]))
    assert text == (
        "Three runs of PPO on CartPole-v1 in two settings: num_envs = 64 (2 seeds: 0, 2) and num_envs = 8 (seed 0). "
        "Each trained for about 500 environment steps, in 1.2 s on average (400 steps per second). "
        "Of those with final evaluation, the best setting is num_envs = 64, with an interquartile mean over the seeds "
        "[95 % interval] of 11 [10, 12] over 8 evaluation episodes. The first episodes of training had 10. "
        "Still running, or killed: 1 of 3 runs."
    )


def test_notes_and_differences_are_on_the_page():
    fast = {"agent": {"learning_rate": 0.5}}
    runs = [run("a", seed=0), run("b", seed=1), run("again", seed=1), run("c", 6, seed=0, **fast)]
    text = page([*runs, run("d", 7, seed=1, **fast)], None, "today", notes=["a was given more than once."])
    assert "a was given more than once." in text
    assert "again has options and seed of b: the seed counts once, with the latter." in text
    assert "A setting has only 2 seeds: other seeds may reverse the order" in text
    cells = re.sub(r"<[^>]+>+", "|", text)
    assert re.search(r"\+15 \[10, 20\]\|+learning_rate = 0.5\|+learning_rate = [0-9.]+\|+1 \[1, 1\]\|", cells)
    assert "Four runs of PPO" in text  # the repeated one does not count


def test_kinds_of_scores_have_tables_of_their_own():
    text = page([run("a"), run("b", num_envs=8)._replace(evaluation={"mean_return": 7.0})], None, "today")
    assert re.findall(r"<h3>(.*?)</h3>", text)[:2] == ["final evaluation", "training episodes"]
    assert text.count("IQM of the final return") == 2


def test_a_run_without_rows_has_a_page():
    text = page([run(rows=0)._replace(stopped={})], None, "today")
    assert "There are no log rows yet." in text
    assert Elements(text).open == []


def test_evaluations_during_training_stand_before_training_episodes():
    returns = {0: 5.0, 1: 20.0, 2: 10.0}
    rows = [{"iteration": i, "env_steps": i, "episode_return": 1.0, "eval_return": x} for i, x in returns.items()]
    text = page([of_history("run", rows, {"env": "x"})], None, "today")
    assert "Return of evaluations during training; faint: training episodes" in text
    assert "The policy reaches a mean return of 10 at the last measurement. The untrained policy had 5." in text
    cells = re.sub(r"<[^>]+>+", "|", text)
    assert re.search(r"untrained\|+last in training\|+best in training\|+run\|+\?\|+5\|+10\|+20\|", cells)


def test_columns_of_the_final_evaluation():
    numbers = np.float32([1.0, 2.0])
    true = np.array([True, True])
    final = Evaluation(numbers, numbers, true, true, numbers, metrics={"arrived": numbers}).scores
    found = evaluation(settings_of([run()._replace(evaluation=final)]))
    columns = [re.sub("<.*?>", "", cell) for cell in re.findall(r"<th[ >].*?</th>", found.partition("</tr>")[0])]
    assert columns == [
        *("run", "seed", "episodes", "mean return", "median", "std of episodes", "mean length"),
        *("terminated", "final_reward", "arrived"),
    ]


@pytest.mark.parametrize(
    ("values", "share", "said"), [([0.01, 0.02, None], 1.0, "in range"), ([0.01, 0.5], 0.5, "50 %")]
)
def test_share_of_rows_in_the_healthy_range(values, share, said):
    rows = [{"iteration": i, "env_steps": i, "approx_kl": value} for i, value in enumerate(values)]
    sign = next(sign for sign in health.SIGNS if sign.metric == "approx_kl")
    found = health.share_in_range(sign, [of_history("run", rows, {})])
    assert found == share
    assert said in health.verdict(found)
    assert health.share_in_range(sign, [Record("", None, {}, {}, "", {}, [], {})]) is None


@pytest.mark.parametrize(("dtype", "share"), [("float32", 0.0), ("bfloat16", 1.0)])
def test_the_healthy_range_of_the_first_ratio_is_that_of_the_run_s_products(dtype, share):
    rows = [{"iteration": i, "env_steps": i, "ratio_first_max_dev": 0.05} for i in (1, 2)]
    record = of_history("run", rows, {"agent": {"compute_dtype": dtype}})
    sign = next(sign for sign in health.SIGNS if sign.same_policy)
    assert health.share_in_range(sign, [record]) == share
    assert health.band_of(sign, [record]).healthy == (0.0, 0.2 if share else 1e-3)


def test_a_ratio_that_is_not_1_is_no_defect_with_overlap():
    rows = [{"iteration": i, "env_steps": i, "ratio_first_max_dev": 0.3} for i in (1, 2)]
    sign = next(sign for sign in health.SIGNS if sign.metric == "ratio_first_max_dev")
    plain, overlapped = (of_history("run", rows, {"overlap": overlap}) for overlap in (0, 1))
    assert health.share_in_range(sign, [plain, overlapped]) == 0.0
    assert health.share_in_range(sign, [overlapped]) is None
    assert health.band_of(sign, [overlapped]).healthy is None
    assert health.band_of(sign, [plain]).healthy is not None


def test_differences_and_changes_are_listed():
    text = page([run(num_envs=8, num_steps=16), run(num_envs=9, num_steps=16)], None, "today")
    cells = re.sub(r"<[^>]+>", "|", text)
    assert re.search(r"\|setting\|+num_envs\|+1\|+8\|+2\|+9\|", cells)
    assert re.search(r"\|num_steps\|+16\|+128\|+rollout length", cells)
    assert text.count("run.toml of run") == 2


def test_a_changed_gamma_may_be_the_default_of_a_short_time_limit():
    """A record does not have the environment's time limit, so that the page names the rule."""
    assert "by default 1 - 1/T where a time limit" in page([run(agent={"gamma": 0.96})], None, "today")
    assert "by default 1 - 1/T" not in page([run()], None, "today")


def test_each_environment_has_axes_of_its_own():
    """Returns of 500 and -200 on one axis would say nothing: one chart, one table and one sentence each."""
    runs = [run("a", seed=0), run("b", seed=1), run("c", env="Pendulum-v1"), run("d", env="Pendulum-v1", num_envs=8)]
    text = page(runs, None, "today")
    names = re.findall(r'aria-label="learning curve on ([^:]+):', text)
    assert names == ["CartPole-v1", "CartPole-v1", "Pendulum-v1", "Pendulum-v1"]  # wide and narrow
    assert "On CartPole-v1: The policy reaches an interquartile mean over the seeds" in text
    assert "On Pendulum-v1: The best setting is" in text
    assert 'aria-label="KL divergence, Pendulum-v1 over environment steps"' in text


def test_settings_are_listed_best_first_with_the_return_first():
    runs = [run(f"run{n}", num_envs=n)._replace(evaluation={"mean_return": float(n % 7)}) for n in range(1, 13)]
    text = page(runs, None, "today")
    table = re.search(r'<table class="settings">.*?</table>', text, re.S)[0]
    assert re.findall(r'<th scope="row">(\d+)</th>', table) == [
        "6",
        "5",
        "5",
        "4",
        "4",
        "3",
        "3",
        "2",
        "2",
        "1",
        "1",
        "0",
    ]
    strokes = re.findall(
        r'class="swatch" aria-hidden="true"><path [^>]*?stroke="(#\w+)"[^>]*?(?:stroke-dasharray="([^"]+)")?>', table
    )
    assert len(set(strokes)) == 12  # the ninth has another style
    assert not strokes[7][1]
    assert strokes[8][1]
