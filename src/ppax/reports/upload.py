"""`ppax.push_to_hub`: a policy as a repository of the Hugging Face Hub, with the bundle, a model card and a curve."""

from __future__ import annotations

import io
import math
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ppax import config
from ppax.core.types import ConfigError
from ppax.policy import Policy
from ppax.policy.hub import BUNDLE, PREFIX, address_of, endpoint, require_hub
from ppax.reports.curves import RANGE
from ppax.reports.plotting import chosen_settings, figure_of
from ppax.reports.settings import settings_of
from ppax.run import records
from ppax.run.directory import read_evaluation
from ppax.run.records import Record

CARD, CURVE = "README.md", "curve.png"
DOTS_PER_INCH = 150
# Rows of the table of scores: entries of evaluation.json
SCORES = {
    "mean_return": "mean return",
    "median_return": "median return",
    "std_return": "standard deviation of returns",
    "min_return": "lowest return",
    "max_return": "highest return",
    "mean_length": "mean length in steps",
    "episodes": "episodes",
}


def push_to_hub(
    policy: Policy,
    repo: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    formats: Sequence[str] | None = None,
    message: str = "Policy trained with ppax",
    return_value: bool = False,
) -> str:
    """Upload a policy to the repository `repo`, OWNER/NAME, of the Hugging Face Hub; return its address.

    The repository is created if it is missing; `private` None leaves its visibility to the owner's settings. It gets
    the bundle that `Policy.export` writes (with `formats` and `return_value`) and a model card: what the policy takes
    and returns and, if its run directory has them, scores, learning curve and configuration. `message` is that of the
    commit. `ppax.load("hf://OWNER/NAME")` loads the policy. `token` None is the one that `hf auth login` has stored.
    Needs the extra `hub`. Raises ConfigError if `repo` does not begin with hf:// and is the path of a file or folder.
    """
    hub, source = require_hub(), policy.source
    if not repo.startswith(PREFIX) and (Path(repo).exists() or ("/" in repo and Path(repo).parent.is_dir())):
        raise ConfigError(
            f"repo = {repo!r} is a place on this disk: policy.export('policy.zip') writes a file, to be copied; "
            f"for the repository of the Hub write {PREFIX}OWNER/NAME"
        )
    address = address_of(repo if repo.startswith(PREFIX) else PREFIX + repo)
    record = None
    if source is not None and source.run_dir is not None:
        record = records.read(source.run_dir)._replace(evaluation=read_evaluation(source.run_dir, source.iteration))
    curve = None if record is None else curve_picture(record)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scores = {} if record is None else card_scores(record)
        policy.export(folder / BUNDLE, formats, scores or None, return_value=return_value)
        if curve is not None:
            (folder / CURVE).write_bytes(curve)
        card = model_card(policy, address.repo, CURVE if curve else None, scores)
        (folder / CARD).write_text(card, encoding="utf-8")
        api = hub.HfApi(endpoint=endpoint(), token=token)
        api.create_repo(address.repo, private=private, exist_ok=True)
        api.upload_folder(repo_id=address.repo, revision=address.revision, folder_path=folder, commit_message=message)
    return f"{api.endpoint}/{address.repo}"


def card_scores(record: Record) -> dict[str, float]:
    """Return the results of the run's evaluation by their names in evaluation.json, such as {"mean_return": 500.0}.

    They are those that a model card shows; {} without an evaluation.
    """
    found = {name: record.result(name) for name in SCORES}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def curve_picture(record: Record) -> bytes | None:
    """Return the learning curve of a run as a PNG file's bytes; None if no log row has a return."""
    metric = next((name for name in records.CURVES if record.has(name)), None)
    if metric is None:
        return None
    out = io.BytesIO()
    settings = chosen_settings(settings_of([record]), None)
    figure_of([record], [metric], RANGE, settings).savefig(out, format="png", dpi=DOTS_PER_INCH)
    return out.getvalue()


def model_card(policy: Policy, repo: str, curve: str | None, scores: dict[str, float]) -> str:
    """Return the text of the model card in the repository `repo`; `curve` is the file name of a picture next to it.

    Names and options from the run are quoted as Markdown code, so that nothing in them is taken for Markdown or HTML.
    """
    env = policy.spec.env or "an environment of its own"
    parts = [
        f"---\n{_metadata(policy, repo, scores)}\n---",
        f"# PPO on {code(env)}",
        "A policy trained with ppax (Proximal Policy Optimization in JAX)." + _trained(policy),
        "## Use",
        block(_usage(repo), "python"),
        block(str(policy.spec)),
        "The file `policy.zip` also holds the policy in formats that need neither ppax nor JAX.",
    ]
    if scores:
        rows = [f"| {SCORES[name]} | {value:.6g} |" for name, value in scores.items()]
        intro = "This policy, on environments and random numbers apart from those of training:"
        parts += ["## Scores", intro, "\n".join(["| score | value |", "|---|---|", *rows])]
    if curve:
        parts += ["## Learning curve", f"![Return over environment steps]({curve})"]
    if policy.spec.config:
        parts += ["## Configuration", block(config.to_toml(policy.spec.config), "toml")]
    return "\n\n".join(parts) + "\n"


def code(text: str) -> str:
    """Return text as a span of code in Markdown, on one line, so that nothing in it is taken for Markdown."""
    text = " ".join(text.split()) or " "
    fence = "`" * (_longest_ticks(text) + 1)
    return f"{fence} {text} {fence}"


def block(text: str, language: str = "") -> str:
    """Return text as a block of code in Markdown, with a fence longer than any inside the text."""
    fence = "`" * max(3, _longest_ticks(text) + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _longest_ticks(text: str) -> int:
    return max((len(ticks) for ticks in re.findall("`+", text)), default=0)


def _usage(repo: str) -> str:
    return f'import ppax\n\npolicy = ppax.load("hf://{repo}")\naction = policy.act(observation)'


def _trained(policy: Policy) -> str:
    steps = 0 if policy.source is None else policy.source.env_steps
    return f" It was trained for {steps:,} steps of the environment." if steps else ""


def _metadata(policy: Policy, repo: str, scores: dict[str, float]) -> Any:
    """Return the YAML text for the head of a model card, which the Hub reads: library, tags, and the mean return.

    `repo` is the repository of the card. The mean return is left out if `scores` lacks it, or the environment has no
    name.
    """
    from huggingface_hub import EvalResult, ModelCardData

    env, results = policy.spec.env, None
    if env and "mean_return" in scores:
        spread = f" +/- {scores['std_return']:.2f}" if "std_return" in scores else ""
        task = "reinforcement-learning"
        results = [
            EvalResult(
                task_type=task,
                task_name=task,
                dataset_type=env,
                dataset_name=env,
                metric_type="mean_reward",
                metric_value=f"{scores['mean_return']:.2f}{spread}",
            )
        ]
    data = ModelCardData(
        library_name="ppax",
        pipeline_tag="reinforcement-learning",
        tags=["reinforcement-learning", "ppo", "jax", *([env] if env else [])],
        model_name=repo.rpartition("/")[2],
        eval_results=results,
    )
    return data.to_yaml()
