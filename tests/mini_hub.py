"""A hub on this machine: repositories that are folders, and what huggingface_hub asks of them."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class MiniHub(ThreadingHTTPServer):
    """``repositories`` are folders by name, such as ``datasets/org/pets``; ``asked`` are the paths that were asked."""

    daemon_threads = True

    def __init__(self, repositories: dict[str, Path]) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.repositories, self.asked = repositories, list[str]()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Answer(BaseHTTPRequestHandler):
    server: MiniHub

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        self.server.asked.append(path)
        for name, folder in self.server.repositories.items():
            kind = name if name.startswith("datasets/") else f"models/{name}"
            if path in (f"api/{kind}", f"api/{kind}/revision/main"):
                return self._send(json.dumps({"id": name.removeprefix("datasets/"), "sha": COMMIT}).encode())
            if path == f"api/{kind}/tree/{COMMIT}":
                files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
                return self._send(json.dumps([_entry(folder, file) for file in files]).encode())
            if path.startswith(start := f"{name}/resolve/{COMMIT}/"):
                return self._send((folder / path.removeprefix(start)).read_bytes())
        return self._send(b"{}", 404, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})

    def _send(self, content: bytes, code: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        facts = {
            "Content-Length": str(len(content)),
            "ETag": f'"{hashlib.sha1(content).hexdigest()}"',
            "X-Repo-Commit": COMMIT,
            **(headers or {}),
        }
        for key, value in facts.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)


def _entry(folder: Path, file: Path) -> dict[str, object]:
    content = file.read_bytes()
    name = file.relative_to(folder).as_posix()
    return {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}


@contextmanager
def served(repositories: dict[str, Path]) -> Iterator[MiniHub]:
    """A hub that answers as long as the block lasts."""
    with MiniHub(repositories) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def use(monkeypatch: pytest.MonkeyPatch, address: str, cache: Path) -> None:
    """Let huggingface_hub ask at this address, and keep its copies in this folder."""
    from huggingface_hub import constants

    for name, value in {
        "ENDPOINT": address,
        "HUGGINGFACE_CO_URL_TEMPLATE": address + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_CACHE": str(cache),
        "HF_HUB_OFFLINE": False,
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_DISABLE_PROGRESS_BARS": True,
    }.items():
        monkeypatch.setattr(constants, name, value)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
