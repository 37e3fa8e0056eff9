"""The Hugging Face hub: where the copy of a repository lies on this machine.

The network is asked only for what is not there yet, and never under ``HF_HUB_OFFLINE``. huggingface_hub, which does all
the work, is imported when it is needed.
"""

from __future__ import annotations

import contextlib
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
    unreached = None if local_files_only else _ask(name, kind, revision, token)
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
        raise _not_here(name, kind, unreached or _line(error)) from None
    return Path(found)


def require(name: str, kind: Kind, file: str) -> None:
    """Before a library looks for a file of a repository by itself, because it goes on asking where nobody answers.

    Raises:
        CosdaError: there is no such repository, or the file is neither on this machine nor within reach.
    """
    copy = stored(name, kind, [file])
    if (copy is None or not (copy / file).exists()) and (unreached := _ask(name, kind)):
        raise _not_here(name, kind, unreached)


def _ask(name: str, kind: Kind, revision: str | None = None, token: str | bool | None = None) -> str | None:
    """Ask the hub for a repository; why it does not answer, or None if it does.

    huggingface_hub itself waits without end for some answers.
    """
    hub = library()
    try:
        hub.HfApi(token=token).repo_info(name, repo_type=kind, revision=revision, timeout=_SECONDS)
    except (hub.errors.RepositoryNotFoundError, hub.errors.RevisionNotFoundError) as error:
        raise CosdaError(f"the hub has no {kind} {name} that you may see: {_line(error)}") from None
    except hub.errors.HFValidationError as error:
        raise CosdaError(f"{PREFIX}{name}: {_line(error)}") from None
    except (hub.errors.HfHubHTTPError, hub.errors.OfflineModeIsEnabled) as error:
        return _line(error)
    except Exception as error:  # of any layer of the network
        return _silence(error)
    return None


def _not_here(name: str, kind: Kind, reason: str) -> CosdaError:
    """The error where a repository is neither on this machine nor within reach."""
    return CosdaError(
        f"the {kind} {name} is not on this machine and cannot be fetched: {reason} "
        "Try again with a network, or give the path of a copy."
    )


def _silence(error: Exception) -> str:
    """What kept the hub from answering, as a sentence."""
    return f"no answer from {library().constants.ENDPOINT} ({_line(error)[:-1]})."


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
        _wait_for(api, name)
        name = api.create_repo(name, private=private, exist_ok=True).repo_id
        return str(api.upload_folder(repo_id=name, repo_type="model", folder_path=folder, **options))
    except (hub.errors.HfHubHTTPError, hub.errors.HFValidationError, hub.errors.OfflineModeIsEnabled) as error:
        reason = _line(error)
    except Exception as error:  # of any layer of the network
        reason = _silence(error)
    raise CosdaError(f"the model was not uploaded to {name}: {reason}")


def _wait_for(api: Any, name: str) -> None:
    """Ask for a repository that need not be there yet: any answer will do, and none is an error within ten seconds."""
    with contextlib.suppress(library().errors.HfHubHTTPError):
        api.repo_info(name, repo_type="model", timeout=_SECONDS)


def storage(snapshot: Path) -> Path:
    """The folder of a repository in the cache, in which the files of its copies lie; copies are links to them."""
    return snapshot.parents[1] if snapshot.parent.name == "snapshots" else snapshot


def _line(error: Exception) -> str:
    """The first sentence or line of a reason, with a full stop."""
    text = (str(error) or type(error).__name__).strip().splitlines()[0][:_SHOWN].rstrip(".: ")
    return f"{text}."
