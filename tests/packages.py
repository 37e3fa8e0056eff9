"""Packages that say that they are installed: a module and a dist-info in a folder, made on the spot and without pip."""

from __future__ import annotations

from pathlib import Path


def install(folder: Path, name: str, points: str, version: str = "0.1.0", **modules: str) -> Path:
    """A package with these entry points and these modules; the folder belongs on ``sys.path``."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    for module, code in modules.items():
        (folder / f"{module}.py").write_text(code, encoding="utf-8")
    return folder
