"""Policies on the Hugging Face Hub: a repository with the bundle, a model card and a curve. By huggingface_hub."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ppax.policy.card import curve_of, model_card, scores_of
from ppax.reports import records
from ppax.run.directory import read_evaluation
from ppax.types import ConfigError

if TYPE_CHECKING:
    from ppax.policy.policy import Policy

PREFIX = "hf://"
ADDRESS = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
BUNDLE, CARD, CURVE = "policy.zip", "README.md", "curve.png"


class Address(NamedTuple):
    """Repository of a model, and the branch, tag or commit in it; None: the main branch."""

    repo: str
    revision: str | None


def address_of(source: str) -> Address:
    """Parse hf://OWNER/NAME or hf://OWNER/NAME@REVISION; ConfigError for anything else."""
    match = ADDRESS.fullmatch(source)
    if match is None:
        raise ConfigError(f"{source}: must be hf://OWNER/NAME, or hf://OWNER/NAME@REVISION of a branch, tag or commit")
    return Address(match[1], match[2])


class Upload(NamedTuple):
    """Settings of an upload."""

    private: bool | None  # of a repository that is created; None: as the owner's settings say
    token: str | None  # None: that of `hf auth login`
    formats: Sequence[str] | None  # of the bundle
    message: str  # of the commit


def push(policy: Policy, repo: str, upload: Upload) -> str:
    """Upload bundle, model card and curve of `policy`; see `Policy.push_to_hub`."""
    hub, source = _require_hub(), policy.source
    address = address_of(repo if repo.startswith(PREFIX) else PREFIX + repo)
    record = None
    if source is not None and source.run_dir is not None:
        record = records.read(source.run_dir)._replace(evaluation=read_evaluation(source.run_dir, source.iteration))
    curve = None if record is None else curve_of(record)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scores = {} if record is None else scores_of(record)
        policy.export(folder / BUNDLE, upload.formats, scores or None)
        if curve is not None:
            (folder / CURVE).write_bytes(curve)
        card = model_card(policy, address.repo, CURVE if curve else None, scores)
        (folder / CARD).write_text(card, encoding="utf-8")
        api = hub.HfApi(endpoint=_endpoint(), token=upload.token)
        api.create_repo(address.repo, private=upload.private, exist_ok=True)
        api.upload_folder(
            repo_id=address.repo, revision=address.revision, folder_path=folder, commit_message=upload.message
        )
    return f"{api.endpoint}/{address.repo}"


def fetch(source: str) -> Path:
    """Download the bundle of a repository into the cache of huggingface_hub; return its path."""
    address, hub = address_of(source), _require_hub()
    path = hub.hf_hub_download(address.repo, BUNDLE, revision=address.revision, endpoint=_endpoint())
    return Path(os.path.realpath(path))  # the cache has links, which are not followed where a bundle is read


def _endpoint() -> str | None:
    """Return the address of the server, HF_ENDPOINT at this moment; None: huggingface.co."""
    return os.environ.get("HF_ENDPOINT") or None


def _require_hub() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise ImportError('the Hugging Face Hub needs an extra: pip install "ppax[hub]"') from error
    return huggingface_hub
