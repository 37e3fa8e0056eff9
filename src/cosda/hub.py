"""The Hugging Face hub: where the copy of a repository lies on this machine.

The network is asked only for what is not there yet, and never under ``HF_HUB_OFFLINE``. huggingface_hub, which does all
the work, is imported when it is needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from cosda.errors import CosdaError

PREFIX = "hf:"  # before the name of a repository, where a path might stand as well
Kind = Literal["dataset", "model"]
_SECONDS = 10.0  # in which the hub must answer at all
_SHOWN = 200  # letters of a reason


def name_of(text: str) -> str | None:
    """ORG/NAME of a text such as ``hf:ORG/NAME``; None for any other, and for a path that is called so."""
    return text.removeprefix(PREFIX) if text.startswith(PREFIX) and not Path(text).exists() else None


def library(extra: str = "hub") -> Any:
    """The module ``huggingface_hub``."""
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise CosdaError(f"huggingface_hub is not installed ({error}): pip install 'cosda[{extra}]'.") from None


def stored(name: str, kind: Kind, patterns: Sequence[str]) -> Path | None:
    """The copy that is on this machine already, of the files that fit the patterns; None if there is no whole one."""
    hub = library()
    try:
        return Path(hub.snapshot_download(name, repo_type=kind, allow_patterns=list(patterns), local_files_only=True))
    except (OSError, ValueError):  # not there, or not whole; a name that is none is told by `download`
        return None


def download(
    name: str,
    kind: Kind,
    patterns: Sequence[str],
    *,
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    force_download: bool = False,
    token: str | bool | None = None,
    local_files_only: bool = False,
) -> Path:
    """The files of a repository that fit the patterns, as the hub has them now; those that are there stay.

    Where the hub does not answer, they are the ones that are on this machine.

    Raises:
        CosdaError: there is no such repository, or it is neither within reach nor on this machine.
    """
    hub = library()
    unreached: Exception | None = None
    if not local_files_only:  # without this question first, a hub that never answers would be waited for without end
        try:
            hub.HfApi(token=token).repo_info(name, repo_type=kind, revision=revision, timeout=_SECONDS)
        except (hub.errors.RepositoryNotFoundError, hub.errors.RevisionNotFoundError) as error:
            raise CosdaError(f"the hub has no {kind} {name} that you may see: {_line(error)}") from None
        except hub.errors.HFValidationError as error:
            raise CosdaError(f"{PREFIX}{name}: {_line(error)}") from None
        except Exception as error:  # of any layer of the network; the copy may still be there
            unreached = error
    try:
        found = hub.snapshot_download(
            name,
            repo_type=kind,
            revision=revision,
            cache_dir=cache_dir,
            force_download=force_download,
            token=token,
            local_files_only=local_files_only or unreached is not None,
            allow_patterns=list(patterns),
        )
    except hub.errors.HFValidationError as error:
        raise CosdaError(f"{PREFIX}{name}: {_line(error)}") from None
    except Exception as error:
        raise CosdaError(
            f"the {kind} {name} is not on this machine and cannot be fetched: {_line(unreached or error)} "
            "Try again with a network, or give the path of a copy."
        ) from None
    return Path(found)


def upload(folder: Path, name: str, *, private: bool | None, token: str | None, **options: Any) -> str:
    """Upload a folder as a model, in one commit; its repository is made if there is none.

    Returns:
        The address of the commit.

    Raises:
        CosdaError: the hub cannot be reached, or refuses.
    """
    hub = library()
    try:
        api = hub.HfApi(token=token)
        name = api.create_repo(name, private=private, exist_ok=True).repo_id
        return str(api.upload_folder(repo_id=name, repo_type="model", folder_path=folder, **options))
    except Exception as error:  # of any layer of the network
        raise CosdaError(f"the model was not uploaded to {name}: {_line(error)}") from None


def storage(snapshot: Path) -> Path:
    """The folder of a repository in the cache, in which the files of its copies lie; copies are links to them."""
    return snapshot.parents[1] if snapshot.parent.name == "snapshots" else snapshot


def _line(error: Exception) -> str:
    """The first sentence or line of a reason, with a full stop."""
    text = (str(error) or type(error).__name__).strip().splitlines()[0][:_SHOWN].rstrip(".: ")
    return f"{text}."
