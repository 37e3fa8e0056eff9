"""What the documents say is so: links lead somewhere, examples of CONTRIBUTING.md and first pages run as printed."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import cosda
from cosda.bench import ENGINES
from cosda.bench.jobs import Job
from cosda.bench.run import run_jobs
from cosda.bench.scheduler import Resources
from cosda.carry import CARRY_RULES
from cosda.config.request import Data, Request
from cosda.config.resolve import resolve
from cosda.data.domain import Benchmark
from cosda.data.registry import BENCHMARKS
from cosda.methods import METHODS
from cosda.metrics import MEASURES
from cosda.models.encoders import ENCODERS
from cosda.records.run import read_run
from cosda.records.verdict import WORDS
from cosda.records.writers import WRITERS
from cosda.report import render_report, write_report
from cosda.report.figures import FIGURES
from cosda.report.formats import FORMATS
from cosda.report.tables import TABLES
from cosda.run.machine import Machine
from cosda.run.measure import Measurer
from cosda.run.prepare import prepare
from cosda.run.shared_folder import open_folder
from cosda.run.source import source_model
from cosda.run.stage import Stage
from cosda.validators import VALIDATORS
from cosda.watch import Watcher
from test_edges import FLOORS
from tiny import CLASSES, tiny_benchmark

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "studies").glob("*.md"),
        ROOT / "examples" / "README.md",
    ]
)
REGISTRIES = {
    "method": METHODS,
    "benchmark": BENCHMARKS,
    "encoder": ENCODERS,
    "validator": VALIDATORS,
    "carry rule": CARRY_RULES,
    "engine": ENGINES,
    "log writer": WRITERS,
    "measure": MEASURES,
    "table of the report": TABLES,
    "figure": FIGURES,
    "format": FORMATS,
}


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def python_blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        other = (page.parent / path).resolve() if path else page
        assert other.exists(), target
        assert not anchor or anchor in anchors(other), target


def gaps(text: str) -> list[str]:
    """Where something was to be filled in: a word of capitals alone in a line, a table without rows, empty marks."""
    found = re.findall(r"^[A-Z]{4,}$", text, flags=re.MULTILINE)
    found += re.findall(r"^\|.*\n\|[ :|-]+\n(?!\|)", text, flags=re.MULTILINE)
    return found + re.findall(r"<!-- (\w+): begin -->\s*<!-- \1: end -->", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_nothing_is_left_to_be_filled_in(page: Path) -> None:
    assert not gaps(page.read_text(encoding="utf-8") + "\n")


def test_what_is_left_to_be_filled_in_is_found() -> None:
    rows = "| a |\n|--:|\n"
    assert not gaps(f"{rows}| 1 |\n\nAND so on\n<!-- x: begin -->\ntext\n<!-- x: end -->\n")
    assert len(gaps(f"{rows}\n```text\nSUMMARY\n```\n<!-- x: begin -->\n\n<!-- x: end -->\n")) == 3


# --- CONTRIBUTING.md --------------------------------------------------------------------------------------------------


@pytest.fixture
def recipes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """All recipes, done; for each kind the name of its entry. What they add to registries is taken out again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    chapters = re.findall(r"^### An? (.*?)\n(.*?)(?=^##|\Z)", text_of("CONTRIBUTING.md"), re.MULTILINE | re.DOTALL)
    assert [title for title, _ in chapters] == list(REGISTRIES)
    found = {}
    for title, chapter in chapters:
        registry = REGISTRIES[title]
        [code] = python_blocks(chapter)
        [name] = re.findall(r'^[A-Z_]+\["(\w+)"\] = ', code, flags=re.MULTILINE)
        monkeypatch.setitem(registry, name, None)  # so that it is gone afterwards
        (tmp_path / f"recipe_{name}.py").write_text(code, encoding="utf-8")
        monkeypatch.delitem(sys.modules, f"recipe_{name}", raising=False)
        import_module(f"recipe_{name}")
        assert registry[name].title
        found[title] = name
    return found


def write_images(folder: Path, benchmark: Benchmark, **names: str) -> None:
    """The labelled images of a benchmark's domains, as files."""
    for name, domain in names.items():
        images, labels = benchmark[domain].items, benchmark[domain].labels
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):  # type: ignore[call-overload, arg-type]
            path = folder / name / CLASSES[label] / f"{number:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.asarray(image)).save(path)


def test_the_recipes_work_together(recipes: dict[str, str], tmp_path: Path) -> None:
    """One run that uses them all, and its report."""
    (tmp_path / "pets.toml").write_text("[adapt]\nepochs = 2\nbatch_size = 8\n[source]\nepochs = 1\nbatch_size = 8\n")
    write_images(tmp_path / "data", tiny_benchmark(), day="one", night="two")
    request = Request.of(
        recipes["method"],
        ("bright", "dark"),
        encoder=recipes["encoder"],
        select=recipes["validator"],
        carry=f"{recipes['carry rule']}=0.5",
        settings={"network.bottleneck": 8, "weight": 0.5},
    )
    machine = Machine("cpu", log=(recipes["log writer"],))
    resources = Resources(engine=recipes["engine"])
    outcome = run_jobs([Job(str(tmp_path / "data"), request)], tmp_path / "runs", resources, machine)
    assert not outcome.failed
    [run] = outcome.runs
    assert run.config["benchmark"] == recipes["benchmark"]
    assert run.config["origins"]["adapt.epochs"] == "preset pets"
    assert run.config["settings"]["network"]["encoder"] == recipes["encoder"]
    assert [list(record["terms"]) for record in run.of("loss")] == [["information"]] * 2
    assert all(recipes["validator"] in record["scores"] for record in run.of("validation"))
    assert next(run.of("carried"))["share"] == 0.25
    assert "stage 1: " in (run.path / "lines.txt").read_text()
    assert run.summary()[recipes["measure"]] == min(run.summary()["accuracy"][-1])
    page = render_report([run], "html")
    for text in ("Worst domain", "How many runs", "Average of the first seed", "information"):
        assert text in page
    assert "How many runs" in render_report([run], recipes["format"])


def test_the_table_of_recipes_names_the_places() -> None:
    rows = re.findall(r"^\| \[(.*?)\]\(#.*?\) \| (.*?) \| `(.*?): (\w+)` \|", text_of("CONTRIBUTING.md"), re.MULTILINE)
    assert len(rows) == len(REGISTRIES)
    groups = [f"cosda.{variable.lower()}" for *_, variable in rows]
    assert [registry.group for registry in REGISTRIES.values()] == groups
    for _, place, file, variable in rows:
        assert variable in (ROOT / "src" / "cosda" / file).read_text(encoding="utf-8")
        if place.startswith("`") and "NAME" not in place:
            assert (ROOT / "src" / "cosda" / place.strip("`")).is_dir()


# --- docs/architecture.md ---------------------------------------------------------------------------------------------


def indented(text: str, before: str) -> str:
    """The first indented block after a line."""
    lines = text.split(before, 1)[1].splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("    "))
    last = next((n for n, line in enumerate(lines) if n > first and line and not line.startswith("    ")), len(lines))
    return "\n".join(line[4:] for line in lines[first:last])


def test_the_floors_are_those_of_the_test_of_imports() -> None:
    lines = indented(text_of("docs/architecture.md"), "## Floors").split("\n\n")[0].splitlines()
    assert tuple(tuple(line.split(", ")) for line in lines if line) == FLOORS


def test_the_walk_of_a_run_is_what_a_run_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tiny = tiny_benchmark(features=True)
    renamed = [replace(one, name=name) for one, name in zip(tiny, ("print", "outline", "hand"), strict=True)]
    benchmark = Benchmark("digits", {one.name: one for one in renamed}, tiny.classes, tiny.protocol)
    done = cosda.run_chain(benchmark, "aad", seed=1, out=tmp_path / "a", machine=Machine("cpu"))
    namespace = {
        "load_benchmark": lambda name: benchmark,
        "runs": tmp_path / "b",
        "machine": Machine("cpu"),
        "watcher": Watcher(),
        **{
            tool.__name__: tool
            for tool in (Request, Data, Measurer, Stage, resolve, open_folder, prepare, source_model, replace)
        },
        "write_report": write_report,
        "read_run": read_run,
    }
    code = indented(text_of("docs/architecture.md"), "The same as code.")
    exec(compile(code, "architecture", "exec", dont_inherit=True), namespace)
    again = read_run(tmp_path / "b" / done.path.name)
    assert again.matrix() == done.matrix()
    assert (tmp_path / "report.html").is_file()


# --- README.md and docs/adapt.md --------------------------------------------------------------------------------------


def test_the_python_of_the_first_pages_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path / "photos", tiny_benchmark(), office="one", labelled="two")
    write_images(tmp_path / "photos", tiny_benchmark(), **{"new-site": "three"})
    (tmp_path / "photos" / "today").mkdir()
    for name, domain in (("1.jpg", "one"), ("2.jpg", "two")):
        Image.fromarray(np.asarray(tiny_benchmark()[domain].items[0])).save(tmp_path / "photos" / "today" / name)  # type: ignore[index]
    source = cosda.train_source("photos", "office", encoder="small", size=16, epochs=1, machine=Machine("cpu"))
    source.model.save("source-model")

    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 9, 9), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    namespace: dict[str, object] = {"my_classifier": network}
    first, *blocks = python_blocks(text_of("README.md") + text_of("docs/adapt.md"))
    assert len(blocks) == 4
    exec(compile(first, "README", "exec", dont_inherit=True), namespace)
    assert capsys.readouterr().out.split()[0] in WORDS
    cosda.load("adapted-model", build=lambda: network)
    shutil.rmtree("adapted-model")
    for block in blocks:
        exec(compile(block, "adapt", "exec", dont_inherit=True), namespace)
    adapted = namespace["adapted"]
    assert isinstance(adapted, nn.Sequential)
    assert adapted.state_dict().keys() == network.state_dict().keys()
    accuracies, *predictions = capsys.readouterr().out.splitlines()
    assert len(accuracies.split()) == 2
    assert [line.count("('") for line in predictions] == [3, 3]  # the three classes of each image
