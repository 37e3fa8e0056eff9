"""The command line. Nothing heavy is imported before a command needs it."""

from cosda.cli import adapting, benching, comparing, looking
from cosda.cli.app import main

__all__ = ["adapting", "benching", "comparing", "looking", "main"]
