"""The command line. Nothing heavy is imported before a command needs it."""

from cosda.cli.app import main
from cosda.cli.commands import adapt, bench, compare, demo, doctor, evaluate, methods, predict, report, run, source

# The order of the help.
__all__ = [
    "adapt",
    "bench",
    "compare",
    "demo",
    "doctor",
    "evaluate",
    "main",
    "methods",
    "predict",
    "report",
    "run",
    "source",
]
