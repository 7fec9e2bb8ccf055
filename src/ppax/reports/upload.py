"""`ppax.push_to_hub`: a policy as a repository of the Hugging Face Hub, with the bundle, a model card and a curve."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from ppax.policy import Policy
from ppax.policy.hub import BUNDLE, PREFIX, address_of, endpoint, require_hub
from ppax.reports.card import curve_of, model_card, scores_of
from ppax.run import records
from ppax.run.directory import read_evaluation

CARD, CURVE = "README.md", "curve.png"


def push_to_hub(
    policy: Policy,
    repo: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    formats: Sequence[str] | None = None,
    message: str = "Policy trained with ppax",
) -> str:
    """Upload a policy to the repository `repo`, OWNER/NAME, of the Hugging Face Hub; return its address.

    The repository is created if missing, `private` or as the owner's settings say, and gets the bundle that
    `Policy.export` writes (in `formats`) and a model card: what the policy takes and gives, scores, learning curve and
    configuration, as far as its run directory has them. `ppax.load("hf://OWNER/NAME")` loads it. Needs the extra `hub`,
    and `token`, or that of `hf auth login`.
    """
    hub, source = require_hub(), policy.source
    address = address_of(repo if repo.startswith(PREFIX) else PREFIX + repo)
    record = None
    if source is not None and source.run_dir is not None:
        record = records.read(source.run_dir)._replace(evaluation=read_evaluation(source.run_dir, source.iteration))
    curve = None if record is None else curve_of(record)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scores = {} if record is None else scores_of(record)
        policy.export(folder / BUNDLE, formats, scores or None)
        if curve is not None:
            (folder / CURVE).write_bytes(curve)
        card = model_card(policy, address.repo, CURVE if curve else None, scores)
        (folder / CARD).write_text(card, encoding="utf-8")
        api = hub.HfApi(endpoint=endpoint(), token=token)
        api.create_repo(address.repo, private=private, exist_ok=True)
        api.upload_folder(repo_id=address.repo, revision=address.revision, folder_path=folder, commit_message=message)
    return f"{api.endpoint}/{address.repo}"
