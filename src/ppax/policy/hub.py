"""Policies on the Hugging Face Hub: their addresses, and the download of a bundle by the package huggingface_hub."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from ppax.core.types import ConfigError

PREFIX = "hf://"
ADDRESS = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
BUNDLE = "policy.zip"


class Address(NamedTuple):
    """Address of a policy on the Hub: a model's repository, and the branch, tag or commit in it (None: main branch)."""

    repo: str
    revision: str | None


def address_of(source: str) -> Address:
    """Return the address that hf://OWNER/NAME or hf://OWNER/NAME@REVISION names; ConfigError for anything else."""
    match = ADDRESS.fullmatch(source)
    if match is None:
        raise ConfigError(f"{source}: must be hf://OWNER/NAME, or hf://OWNER/NAME@REVISION of a branch, tag or commit")
    return Address(match[1], match[2])


def fetch(source: str) -> Path:
    """Download the bundle at the address `source` into the cache of huggingface_hub, and return its path.

    Raises ConfigError, with the reason, where it is not there, may not be read, or the Hub cannot be reached.
    """
    address, hub = address_of(source), require_hub()
    from huggingface_hub import errors

    try:
        path = hub.hf_hub_download(address.repo, BUNDLE, revision=address.revision, endpoint=endpoint())
    except errors.HFValidationError as error:
        raise ConfigError(f"{source}: {error}") from error
    except (errors.HfHubHTTPError, errors.EntryNotFoundError) as error:  # not found, or not reached
        raise ConfigError(f"{source}: {_reason(address, error, errors)}") from error
    return Path(os.path.realpath(path))  # the cache has links, which are not followed where a bundle is read


def _reason(address: Address, error: Exception, errors: Any) -> str:
    """Return why a bundle could not be downloaded, and what to do; `errors` is the module of the Hub's exceptions."""
    if isinstance(error, errors.LocalEntryNotFoundError):  # no answer, and no copy in the cache
        return (
            f"{endpoint() or 'huggingface.co'} cannot be reached, and no copy of this policy is in the cache; without "
            "a network load a file, ppax.load('policy.zip')"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"there is no repository {address.repo}, or it is private: `hf auth login`"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{address.repo} has no branch, tag or commit {address.revision}"
    if isinstance(error, errors.EntryNotFoundError):
        return f"{address.repo} has no file {BUNDLE}: ppax.push_to_hub and `ppax export --out hf://...` write it"
    return f"the Hub's answer is an error: {error}"


def endpoint() -> str | None:
    """Return the address of the Hub's server, HF_ENDPOINT of the environment; None: huggingface.co."""
    return os.environ.get("HF_ENDPOINT") or None


def require_hub() -> Any:
    """Return the package huggingface_hub; ImportError, which names the extra, without it."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise ImportError('the Hugging Face Hub needs an extra: pip install "ppax[hub]"') from error
    return huggingface_hub
