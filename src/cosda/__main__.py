"""The program `cosda`, also as ``python -m cosda``."""

from __future__ import annotations

from cosda.cli.app import build_app, run_program
from cosda.cli.commands import COMMANDS

app = build_app(COMMANDS)


def main() -> None:
    """Run the program."""
    run_program(app)


if __name__ == "__main__":
    main()
