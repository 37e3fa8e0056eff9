"""Do the tests notice? Change one small thing in the source at a time, and see whether a test fails.

    make mutants ARGS="--count 20 --only src/cosda/losses.py --only src/cosda/parts"

A mutant is the source with one small mistake: a comparison, sign, number or condition changed, a keyword argument or
a statement left out, a result forgotten. Of all mutants of the chosen files a seeded sample is tried, in a copy of the
tree. A mutant is tried by the tests that concern its file: those of its name (tests/a/test_b.py for src/cosda/a/b.py),
then all that import it, then all that import what imports it. Survivors are shown as diffs: write a test that fails on
each, unless nobody could ever see the difference. The exit code is the number of survivors.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

CHOSEN = (
    "methods",
    "parts",
    "carry",
    "validators",
    "losses.py",
    "metrics.py",
    "run",
)  # of the package, unless files are named
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "demo", "runs", "out")
# Keyword arguments that check, describe or speed up: without them a right program does the same.
HARMLESS = {"strict", "symbol", "low", "high", "non_blocking", "set_to_none", "memory_format", "fused"}

SWAPPED: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Div, ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
RENAMED = {"min": "max", "max": "min", "amin": "amax", "amax": "amin", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """A file with one stretch of its bytes replaced."""

    file: Path  # relative to the tree
    line: int
    start: int
    end: int
    text: str

    def source(self, before: bytes) -> bytes:
        """The file's content with the mistake in it."""
        return before[: self.start] + self.text.encode() + before[self.end :]

    def diff(self, before: bytes) -> str:
        """What is other, to be read by people."""
        right, wrong = (text.decode().splitlines(keepends=True) for text in (before, self.source(before)))
        return "".join(difflib.unified_diff(right, wrong, str(self.file), "mutant", n=1))


def mutants(file: Path, before: bytes) -> list[Mutant]:
    """All mutants of a file, in the order of its text."""
    starts = [0]
    for line in before.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node, text in mistakes(ast.parse(before)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        found.append(Mutant(file, node.lineno, start, end, text))
    return sorted(found, key=lambda mutant: (mutant.start, mutant.end, mutant.text))


def mistakes(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """A part of a program, and what is written in its place."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in SWAPPED:
            yield node, _written(node, ops=[SWAPPED[type(op)]()])
        case ast.BinOp(op=op) | ast.BoolOp(op=op) | ast.AugAssign(op=op) if type(op) in SWAPPED:
            yield node, _written(node, op=SWAPPED[type(op)]())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, f"({ast.unparse(operand)})"
        case ast.Constant(value=bool(value)):
            yield node, str(not value)
        case ast.Constant(value=int(value)):
            yield node, str(value + 1)
        case ast.Constant(value=float(value)):
            yield node, repr(1.0 if value == 0 else value * (1000 if abs(value) < 1e-3 else 2))
        case ast.Name(id=name) if name in RENAMED and isinstance(node.ctx, ast.Load):
            yield node, RENAMED[name]
        case ast.Call(keywords=keywords):
            for one in keywords:
                if one.arg and one.arg not in HARMLESS:
                    yield node, _written(node, keywords=[other for other in keywords if other is not one])
            if isinstance(node.func, ast.Attribute) and node.func.attr in RENAMED:
                yield node.func, _written(node.func, attr=RENAMED[node.func.attr])
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield test, f"(not ({ast.unparse(test)}))"
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield node, "return None"
        case ast.Expr(value=ast.Call()):
            yield node, "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield node, "pass"
    if isinstance(node, ast.AugAssign):
        yield node, "pass"
    for child in _parts(node):
        yield from mistakes(child)


def _written(node: ast.expr | ast.stmt, **changed: object) -> str:
    other = copy.copy(node)
    for field, value in changed.items():
        setattr(other, field, value)
    text = ast.unparse(other)
    return f"({text})" if isinstance(node, ast.Compare | ast.BinOp | ast.BoolOp) else text


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a program in which a mistake would be one: no types, no messages, no decorators."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr):
        return
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns", "decorator_list"):
            for child in value if isinstance(value, list) else [value]:
                harmless = isinstance(child, ast.keyword) and child.arg in HARMLESS
                if isinstance(child, ast.AST) and not harmless:
                    yield child


def concerned_tests(file: Path, root: Path) -> list[list[Path]]:
    """The tests that concern a source file, nearest first: by its name, by their imports, by imports of imports."""
    parts = file.relative_to("src").with_suffix("").parts
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    sources, tests = (sorted(root.joinpath(part).rglob("*.py")) for part in ("src", "tests"))
    users = {
        ".".join(one.relative_to(root / "src").with_suffix("").parts) for one in sources if module in imported(one)
    }
    users = {name.removesuffix(".__init__") for name in users}
    mirror = root.joinpath("tests", *parts[1:-1], f"test_{parts[-1]}.py")
    rings: list[list[Path]] = [[], [], []]
    for test in tests:
        if test.name.startswith("test_"):
            names = imported(test)
            reached = [test == mirror, module in names, bool(users & names)]
            if any(reached):
                rings[reached.index(True)].append(test.relative_to(root))
    return [ring for ring in rings if ring]


@cache
def imported(file: Path) -> frozenset[str]:
    """The dotted names of all that a file imports."""
    names = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


@dataclass
class Tree:
    """A copy of all files in which tests are run."""

    root: Path
    patience: float

    def __post_init__(self) -> None:
        self.seconds: dict[Path, float] = {}  # that a test file takes as long as nothing is wrong

    def usable(self, tests: Sequence[Path]) -> list[Path]:
        """Those that pass while nothing is wrong, and do so soon enough. To be asked before anything is changed."""
        for test in tests:
            if test not in self.seconds:
                begin = time.monotonic()
                good = self.passes([test], self.patience)
                self.seconds[test] = time.monotonic() - begin if good else math.inf
                if not good:
                    print(f"left out: {test} fails as it is, or takes longer than {self.patience:g} s", flush=True)
        return [test for test in tests if self.seconds[test] < math.inf]

    def notices(self, mutant: Mutant, rings: Sequence[Sequence[Path]]) -> bool:
        """Whether a test fails, or hangs, on a mutant."""
        before = (self.root / mutant.file).read_bytes()
        for ring in rings:
            tests = self.usable(ring)
            limit = 30 + 10 * sum(self.seconds[test] for test in tests)
            (self.root / mutant.file).write_bytes(mutant.source(before))
            try:
                if tests and not self.passes(tests, limit):
                    return True
            finally:
                (self.root / mutant.file).write_bytes(before)
        return False

    def passes(self, tests: Sequence[Path], limit: float) -> bool:
        """Whether tests pass within so many seconds."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider"]
        # No bytecode: two mutants of one second and one length would pass for each other.
        settings = {"PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OMP_NUM_THREADS": "1"}
        settings["PYTHONPATH"] = str(self.root / "src")  # before any installed package
        process = subprocess.Popen(
            [*command, *map(str, tests)], cwd=self.root, env=os.environ | settings, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            return process.wait(limit) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            if process.poll() is None:  # with all that it started
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def chosen_files(root: Path, only: Sequence[str]) -> list[Path]:
    """The source files to change, relative to the tree: those named, or below the folders named."""
    (package,) = (path.parent for path in root.glob("src/*/__init__.py"))
    named = [root / name for name in only] or [package / name for name in CHOSEN if (package / name).exists()]
    if missing := [str(path) for path in named if not path.exists()]:
        sys.exit(f"there is no {', '.join(missing)}")
    files = {file for path in named for file in ([path] if path.is_file() else path.rglob("*.py"))}
    return sorted(file.relative_to(root) for file in files)


def main(arguments: Sequence[str] | None = None) -> int:
    """Try a sample of mutants, and return how many survived."""
    parser = argparse.ArgumentParser("mutants", description="Do the tests notice small mistakes in the source?")
    parser.add_argument(
        "--only", action="append", default=[], metavar="FILE", help="a source file or folder; repeat it"
    )
    parser.add_argument("--count", type=int, default=60, help="mutants to try at most (60)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, another sample (0)")
    parser.add_argument("--patience", type=float, default=60, help="seconds that a file of tests may take (60)")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the tree (the current folder)")
    given = parser.parse_args(arguments)
    files = chosen_files(given.root, given.only)
    every = [mutant for file in files for mutant in mutants(file, (given.root / file).read_bytes())]
    sample = random.Random(given.seed).sample(every, min(given.count, len(every)))
    print(f"{len(sample)} of {len(every)} mutants of {len(files)} files", flush=True)
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Tree(Path(shutil.copytree(given.root, Path(folder) / "tree", ignore=LEFT_OUT)), given.patience)
        for mutant in sorted(sample, key=lambda one: (one.file, one.start)):
            noticed = tree.notices(mutant, concerned_tests(mutant.file, tree.root))
            survivors += not noticed
            print(f"{'noticed ' if noticed else 'SURVIVED'} {mutant.file}:{mutant.line}", flush=True)
            if not noticed:
                print(mutant.diff((tree.root / mutant.file).read_bytes()), flush=True)
    print(f"{survivors} of {len(sample)} survived")
    return survivors


if __name__ == "__main__":
    sys.exit(min(main(), 100))
