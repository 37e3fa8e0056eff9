"""What holds for the package as a whole: which way imports point, its public names, its files."""

from __future__ import annotations

import ast
import dataclasses
import graphlib
import inspect
import subprocess
import sys
import typing
from pathlib import Path

import pytest
from PIL.Image import Image

import cosda

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "cosda"
FILES = sorted(SOURCE.rglob("*.py"))

# From the bottom up: a layer may import those of the lines above it, and itself. Layers of one line are strangers.
FLOORS = (
    ("errors", "shown", "units"),
    ("registry",),
    ("files",),
    ("settings",),
    ("distributed", "hub", "markdown", "metrics", "preprocessing", "randomness", "types", "watch"),
    ("losses", "validators"),
    ("records",),
    ("data", "models", "report"),
    ("carry", "parts"),
    ("methods",),
    ("config",),
    ("run",),
    ("deploy", "judge"),
    ("api",),
    ("bench",),
    ("cli",),
    ("__main__", "__init__"),
)
LAYERS = {
    name: {other for floor in FLOORS[:level] for other in floor} for level, names in enumerate(FLOORS) for name in names
}
LAYERS["__init__"] |= {"cli"}


def layer(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path):
    """All modules that a file imports, wherever in it, with the line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def layers_imported(path):
    for name, line in imported(path):
        words = name.split(".")
        if words[0] == "cosda" and words[1:] != ["__version__"]:  # the version belongs to no layer
            yield (words[1] if len(words) > 1 and words[1] in LAYERS else "__init__"), line


def test_every_part_of_the_package_has_its_layer():
    assert {layer(path) for path in FILES} == set(LAYERS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    own = layer(path)
    wrong = [f"line {line}: {other}" for other, line in layers_imported(path) if other not in LAYERS[own] | {own}]
    assert not wrong, f"{path.relative_to(SOURCE)} ({own}) must not import {wrong}"


def folder(name):
    """The folder of a module, by the dotted name of something in it."""
    path = SOURCE.joinpath(*name.split(".")[1:])
    while not path.is_dir():
        path = path.parent
    return path


def test_folders_do_not_import_each_other_in_a_circle():
    arrows = {}
    for path in FILES:
        others = {folder(name) for name, _ in imported(path) if name.split(".")[0] == "cosda"}
        arrows.setdefault(path.parent, set()).update(others - {path.parent, SOURCE})
    del arrows[SOURCE]  # its modules are layers of their own, which the test above looks at
    graphlib.TopologicalSorter(arrows).prepare()  # raises CycleError, which names the circle


def test_the_report_knows_nothing_of_networks():
    assert LAYERS["report"] == {*(name for floor in FLOORS[:5] for name in floor), "losses", "validators", "records"}


TORCHLESS = [
    "errors",
    "files",
    "settings",
    "metrics",
    "records",
    "preprocessing",
    "report",
    "cli",
    "shown",
    "units",
    "watch",
]


@pytest.mark.parametrize("name", TORCHLESS)
def test_some_layers_never_import_torch_themselves(name):
    for path in FILES:
        if layer(path) == name:
            assert not [line for module, line in imported(path) if module.split(".")[0] == "torch"], path


def loaded_after(statement):
    code = f"{statement}\nimport sys\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import cosda",
        "import cosda.__main__",
        "import cosda.bench",
        "import cosda.report, cosda.records.folder, cosda.metrics\nfrom cosda.report.formats import FORMATS",
        "import cosda\ncosda.CosdaError\ncosda.Run",
    ],
)
def test_what_is_quick_does_not_load_torch(statement):
    assert not {"torch", "torchvision", "kornia"} & loaded_after(statement)


# --- Public names -----------------------------------------------------------------------------------------------------

PUBLIC = [
    "METHODS",
    "Architecture",
    "Batch",
    "Benchmark",
    "Calibration",
    "Check",
    "Checked",
    "ComparedImage",
    "CosdaError",
    "Counted",
    "Diff",
    "Domain",
    "DomainProfile",
    "Drift",
    "Estimate",
    "Evaluation",
    "Exported",
    "Files",
    "Group",
    "Images",
    "Indexable",
    "Items",
    "Machine",
    "Method",
    "Model",
    "Network",
    "Options",
    "Output",
    "Prediction",
    "Predictor",
    "Preprocessing",
    "Progress",
    "Result",
    "Route",
    "RoutedImages",
    "Run",
    "Said",
    "Step",
    "TargetImages",
    "Verdict",
    "Watcher",
    "adapt",
    "diff",
    "evaluate",
    "export",
    "find_runs",
    "history",
    "import_model",
    "load",
    "load_benchmark",
    "load_domain",
    "monitor",
    "predict",
    "profile",
    "run_chain",
    "setting",
    "train_source",
    "wrap",
    "write_diff",
    "write_report",
]


def test_the_public_names_are_these():
    """A name that goes or comes is news for users: write it into CHANGELOG.md, then here."""
    assert cosda.__all__ == PUBLIC
    assert sorted(PUBLIC, key=lambda name: (not name.isupper(), name)) == PUBLIC  # the order that ruff asks for
    assert set(PUBLIC) <= set(dir(cosda))


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_resolves_to_something_with_a_sentence(name):
    value = getattr(cosda, name)
    assert name == "METHODS" or value.__doc__


def test_type_checkers_and_programs_find_the_same_names():
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    declared = {}
    for node in block.body:
        for alias in node.names:
            declared[alias.asname or alias.name] = (node.module, alias.name)
    places = {name: (place.partition(":")[0], place.partition(":")[2] or name) for name, place in cosda._PLACES.items()}
    assert declared == places
    assert set(declared) == set(PUBLIC)


def types_in(hint):
    """All classes that a type hint names, however deep."""
    if isinstance(hint, type):
        yield hint
    for part in (typing.get_origin(hint), *typing.get_args(hint)):
        for one in part if isinstance(part, list | tuple) else (part,):
            if one is not None:
                yield from types_in(one)


def signatures():
    """What a program meets: public functions, and methods, properties and fields of public classes."""
    for name in PUBLIC:
        value = getattr(cosda, name)
        if inspect.isfunction(value):
            yield name, value
        if inspect.isclass(value):
            for key, member in vars(value).items():
                member = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                if inspect.isfunction(member) and (key == "__init__" or not key.startswith("_")):
                    yield f"{name}.{key}", member
            if dataclasses.is_dataclass(value):
                yield name, value


def test_the_public_names_are_closed():
    """Whatever a public function takes or gives, a program can name."""
    public = [getattr(cosda, name) for name in PUBLIC]
    missing = {
        f"{one.__module__}.{one.__name__}, in {name}"
        for name, function in signatures()
        for hint in typing.get_type_hints(function, localns={"Image": Image}).values()  # of PIL
        for one in types_in(hint)
        if one.__module__.split(".")[0] == "cosda" and one not in public
    }
    assert not missing


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'adpat'"):
        cosda.adpat  # noqa: B018


# --- Files ------------------------------------------------------------------------------------------------------------


def test_no_file_is_a_drawer():
    names = {path.stem for path in [*FILES, *(ROOT / "tests").rglob("*.py")]}
    assert not names & {"utils", "util", "misc", "helpers", "helper", "common"}


def test_test_files_have_names_of_their_own():
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", list(cosda.METHODS))
def test_every_method_has_its_file_its_page_and_its_row(name):
    # A composition such as cosda+nrc has no file of its own; its two parts have.
    for part in name.replace("++", "_plus").split("+"):
        assert (SOURCE / "methods" / f"{part}.py").is_file()
    assert (ROOT / "docs" / "methods" / f"{name}.md").is_file()
    rows = (ROOT / "REPRODUCED.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip(" `") for cell in row.split("|")] for row in rows if row.startswith("|")]
    assert any(name in row for row in cells)


BENCHMARK_NAMES = {"office31", "officehome", "visda", "domainnet", "digits"}
DOMAIN_NAMES = {"infograph", "quickdraw", "sketch", "clipart", "amazon", "dslr", "webcam", "synthetic", "realworld"}


@pytest.mark.parametrize("path", sorted((SOURCE / "methods").glob("*.py")), ids=lambda path: path.name)
def test_no_method_knows_a_benchmark_or_a_domain(path):
    """The study's own code drops a loss on two domains by their names; here facts about a domain are settings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = {
        node.value.lower().replace("-", "").replace("_", "")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value
    }
    assert not texts & (BENCHMARK_NAMES | DOMAIN_NAMES)
