"""Is the wheel whole, and does it work where nothing but its dependencies is installed?

    make dist

Every file of the package must be in it. Then it is installed into an empty environment without any extra, and runs the
demonstration there. The files of dist/ stay; the environment and the runs vanish.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def package_files(root: Path = ROOT) -> set[str]:
    """The files of the package as a wheel has them, such as ``cosda/py.typed``."""
    source = root / "src"
    files = (path for path in (source / "cosda").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(source).as_posix() for path in files}


def missing_files(wheel: Path, root: Path = ROOT) -> list[str]:
    """The files of the package that a wheel lacks."""
    with zipfile.ZipFile(wheel) as archive:
        return sorted(package_files(root) - set(archive.namelist()))


def try_demo(wheel: Path) -> None:
    """Install a wheel into an empty environment, and run the demonstration there."""
    with tempfile.TemporaryDirectory(prefix="cosda-wheel-") as folder:
        place = Path(folder)
        venv.create(place / "env", with_pip=True)
        binaries = place / "env" / ("Scripts" if os.name == "nt" else "bin")
        constraints = ["--constraint", str(ROOT / "constraints.txt")]
        install = [str(binaries / "python"), "-m", "pip", "install", "--quiet", *constraints, str(wheel.resolve())]
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environment["COSDA_CACHE"] = str(place / "cache")
        for command in (install, [str(binaries / "cosda"), "demo", "--out", "demo", "--quiet"]):
            subprocess.run(command, cwd=place, env=environment, check=True)
        if not (place / "demo" / "report.html").is_file():
            raise SystemExit("the demonstration wrote no report")


def main() -> None:
    """Check the one wheel in a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder of the wheel")
    folder = parser.parse_args().folder
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        sys.exit(f"{folder} holds {len(wheels)} wheels; one is expected")
    if missing := missing_files(wheels[0]):
        sys.exit(f"{wheels[0]} lacks {', '.join(missing)}")
    try_demo(wheels[0])
    print(f"{wheels[0]} is whole, and its demonstration runs without extras")


if __name__ == "__main__":
    main()
