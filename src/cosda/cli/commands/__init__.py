"""One command, one file, and one line here, in the order of the help. Parsing and printing; no logic."""

from __future__ import annotations

from collections.abc import Callable

from cosda.cli.commands.adapt import adapt
from cosda.cli.commands.bench import bench
from cosda.cli.commands.cache import cache
from cosda.cli.commands.compare import compare
from cosda.cli.commands.demo import demo
from cosda.cli.commands.diff import diff
from cosda.cli.commands.doctor import doctor
from cosda.cli.commands.evaluate import evaluate
from cosda.cli.commands.export import export
from cosda.cli.commands.history import history
from cosda.cli.commands.import_ import import_
from cosda.cli.commands.methods import methods
from cosda.cli.commands.model import model
from cosda.cli.commands.monitor import monitor
from cosda.cli.commands.predict import predict
from cosda.cli.commands.profile import profile
from cosda.cli.commands.report import report
from cosda.cli.commands.run import run
from cosda.cli.commands.source import source

COMMANDS: tuple[Callable[..., None], ...] = (
    demo,
    doctor,
    source,
    import_,
    adapt,
    predict,
    evaluate,
    model,
    profile,
    monitor,
    history,
    diff,
    export,
    run,
    bench,
    report,
    compare,
    methods,
    cache,
)
