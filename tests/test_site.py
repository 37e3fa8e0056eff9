"""The documentation site: it builds strictly, holds what the program has, and works as files without a network."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
import typer.main
from playwright.sync_api import expect, sync_playwright
from tools import documentation, reference
from tools.docstrings import comment_of

import cosda
from cosda.__main__ import app
from cosda.config.presets import load_preset
from cosda.config.schema import SECTIONS
from cosda.data.registry import BENCHMARKS
from cosda.files import flatten
from cosda.methods import METHODS
from cosda.settings import settings_of
from waiting import HANG

ROOT = Path(__file__).parents[1]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `make docs` builds. Warnings, such as a broken link or anchor, are errors."""
    folder = tmp_path_factory.mktemp("site") / "site"
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stderr
    return folder


def build(project: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Not quietly: mkdocs would not count warnings then."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=project, capture_output=True, text=True, env=environment)


class Read(HTMLParser):
    """What a page shows, its anchors, its rows of cells, and the files that it loads."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.text, self.ids, self.rows, self.loads = "", set[str](), list[list[str]](), list[str]()
        self.in_cell = False
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.ids.add(found.get("id") or "")
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.in_cell = True
        address = found.get("href") if tag == "link" else found.get("src")
        if address:
            self.loads.append(address)

    def handle_endtag(self, tag: str) -> None:
        self.in_cell = self.in_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.in_cell:
            self.rows[-1][-1] += data


def test_the_reference_holds_every_public_name_with_its_docstring(site: Path) -> None:
    pages = [Read(page) for page in (site / "reference" / "python").glob("*.html")]
    anchors = set().union(*(page.ids for page in pages))
    assert {f"cosda.{name}" for name in cosda.__all__} <= anchors
    assert {"cosda.Verdict.reasons", "cosda.Model.save"} <= anchors
    text = " ".join(page.text for page in pages)
    assert "Adapt a trained model to one new domain of unlabelled images" in text
    assert "in words, the most important first" in text  # the comment beside Verdict.reasons
    names = [row[0] for row in Read(site / "reference" / "python.html").rows]
    assert sorted(name for name in names if name != "name") == sorted(cosda.__all__)


def test_a_public_name_that_is_missing_or_silent_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    reference.check_names()
    monkeypatch.setattr(cosda, "__all__", [*cosda.__all__, "another"])
    with pytest.raises(ValueError, match=r"\['another'\]"):
        reference.check_names()
    monkeypatch.undo()
    monkeypatch.setattr(cosda, "load", lambda: None)
    with pytest.raises(ValueError, match=r"without a docstring: \['load'\]"):
        reference.check_names()


def test_every_command_and_option_is_there(site: Path) -> None:
    page = Read(site / "reference" / "commands.html")
    shown = {row[0] for row in page.rows if row}
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        assert f"cosda-{name}" in page.ids
        context = command.make_context(name, [], resilient_parsing=True)
        records = [one.get_help_record(context) for one in command.params if not getattr(one, "hidden", False)]
        assert {record[0] for record in records} <= shown
    default = next(row for row in page.rows if row[0] == "--seed <int range>")
    assert default == ["--seed <int range>", "Seed of all random numbers.", "default: 0, x>=0"]


def test_every_setting_is_there_with_its_default_and_range(site: Path) -> None:
    rows = Read(site / "reference" / "settings.html").rows
    shown = {(row[0], row[2], row[3], row[4]) for row in rows if len(row) == 5}
    for prefix, cls in [
        *((f"{name}.", cls) for name, cls in SECTIONS.items()),
        *(("", cls) for cls in METHODS.values()),
    ]:
        for key, one in settings_of(cls).items():
            assert (f"{prefix}{key}", reference.as_written(one.default), one.allowed, one.symbol) in shown
    assert ("adapt.lr", "0.002", "a number, at least 0", "") in shown


@pytest.mark.parametrize("name", list(BENCHMARKS))
def test_every_number_of_a_preset_is_there_with_its_origin(site: Path, name: str) -> None:
    rows = Read(site / "reference" / "presets" / f"{name}.html").rows
    assert len([row for row in rows if row[0] != "for"]) == len(flatten(load_preset(name)))


def test_a_number_of_a_preset_has_the_comment_that_is_meant_for_it() -> None:
    text = '[adapt]     # of the table\nlr = 0.1\n# above\nlr_end = 0.01\nname = "#1"  # beside\n'
    assert [(one.key, one.value, one.comment) for one in reference.numbers_of(text)] == [
        ("lr", 0.1, "of the table"),
        ("lr_end", 0.01, "above"),
        ("name", "#1", "beside"),
    ]
    with pytest.raises(ValueError, match="cannot be read alone"):
        reference.numbers_of("[adapt]\npair = [\n1, 2]\n")
    assert reference.whose(reference.Number(("authors", "method", "nrc", "adapt"), "lr", 1, "")) == (
        *("Variant authors", "`nrc`", "adapt.lr"),
    )
    assert reference.whose(reference.Number(("stage", "Art", "method", "nrc"), "keep", 1, "")) == (
        *("In all variants", "`nrc`, target Art", "keep"),
    )


def test_pages_of_the_root_and_linked_files_are_part_of_the_site(site: Path) -> None:
    for name in ("REPRODUCED", "CONTRIBUTING", "CHANGELOG"):
        assert Read(site / f"{name}.html").text.count("\n")
    assert "onnxruntime" in Read(site / "examples" / "serve_onnx.py.html").text
    examples = Read(site / "examples" / "index.html")
    assert "own_method.py" in examples.text
    assert 'href="examples/index.html"' in (site / "adapt.html").read_text(encoding="utf-8")  # in the navigation
    package = Read(site / "examples" / "my-method.html")
    assert {"pyprojecttoml", "my_methodpy"} <= package.ids
    assert "entry-points" in package.text
    article = Read(site / "notebooks" / "1-first-adaptation.ipynb.html")
    assert "where-to-go-on" in article.ids
    assert "class changed" in [row[0] for row in article.rows if row]  # of the verdict
    assert any(address.startswith("data:image/png;base64,") for address in article.loads)
    front = (site / "index.html").read_text(encoding="utf-8")
    assert 'href="CHANGELOG.html"' in front


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        for address in Read(page).loads:
            if not address.startswith("data:"):
                path = (page.parent / unquote(address.split("#")[0].split("?")[0])).resolve()
                assert "//" not in address, (page, address)
                assert page.name == "404.html" or path.exists(), (page, address)


@pytest.mark.parametrize("fault", ["[x](nowhere.md)", "[x](#nowhere)", "![x](nowhere.svg)", None])
def test_a_broken_link_is_an_error(tmp_path: Path, fault: str | None) -> None:
    """With the settings of the site, and without what takes long."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Title\n\n[above](#title) {fault or ''}\n")
    own = {"hooks": [], "plugins": [], "watch": [], "nav": ["index.md"], "theme": {"name": "mkdocs"}}
    text = f"INHERIT: {ROOT / 'mkdocs.yml'}\n" + "".join(f"{key}: {json.dumps(value)}\n" for key, value in own.items())
    (tmp_path / "mkdocs.yml").write_text(text)
    done = build(tmp_path, tmp_path / "site")
    assert (done.returncode == 0) == (fault is None), done.stderr
    assert fault is None or "nowhere" in done.stderr


def test_links_are_those_of_the_site() -> None:
    for file, page, target, expected in (
        ("docs/carry.md", "carry.md", "../REPRODUCED.md", "REPRODUCED.md"),
        ("docs/methods/aad.md", "methods/aad.md", "../carry.md", "../carry.md"),
        ("docs/deploy.md", "deploy.md", "../examples/serve_onnx.py", "examples/serve_onnx.py.md"),
        ("CONTRIBUTING.md", "CONTRIBUTING.md", "examples/my-method", "examples/my-method.md"),
        ("REPRODUCED.md", "REPRODUCED.md", "docs/figures/bank.svg", "figures/bank.svg"),
        ("docs/models.md", "models.md", "../README.md", "index.md"),
        ("docs/data.md", "data.md", "reference/settings.md", "reference/settings.md"),
        ("docs/data.md", "data.md", "nothing.md", "nothing.md"),  # mkdocs complains of it
    ):
        assert documentation.relinked(file, page, target) == expected


def test_lists_are_read_as_on_a_code_host() -> None:
    made = documentation.as_on_a_code_host("Three:\n- a\n- b\n  wrapped\n  - c\n\n| x |\n- y\n")
    assert made == "Three:\n\n- a\n- b\n  wrapped\n    - c\n\n| x |\n- y\n"
    assert documentation.as_on_a_code_host("* a\n  b\n* c\n") == "* a\n  b\n* c\n"


def test_a_notebook_becomes_a_page() -> None:
    table = {"data": {"text/html": ["<table>", "</table>"], "text/plain": ["x"]}}
    notebook = {
        "cells": [
            {"cell_type": "markdown", "source": ["# Title\n", "Text"]},
            {"cell_type": "code", "source": ["print(1)"], "outputs": [{"text": ["1\n"]}, table]},
            {"cell_type": "code", "source": [], "outputs": [{"data": {"image/png": "AA\n=="}}, {"text": " \n"}]},
            {"cell_type": "code", "source": [], "outputs": [{"data": {"text/markdown": ["| x |\n", "| --- |"]}}]},
        ]
    }
    assert list(documentation.cells(json.loads(json.dumps(notebook)))) == [
        "# Title\nText",
        "````python\nprint(1)\n````",
        "````{.text .output}\n1\n````",
        '<div class="output"><table></table></div>',
        '<img class="output" alt="" src="data:image/png;base64,AA==">',
        '<div class="output" markdown>\n\n| x |\n| --- |\n\n</div>',
    ]


def test_the_comment_of_a_field_is_found() -> None:
    lines = [
        "x: int = 1  # beside",
        "# above,",
        "# in two lines",
        "y: str = '#'",
        "z = (",
        "    1,  # within",
        ")",
        "w = 2",
    ]
    found = [comment_of(lines, first, last) for first, last in ((1, 1), (4, 4), (5, 7), (8, 8))]
    assert found == ["beside", "above, in two lines", "within", ""]


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome is installed")
def test_search_works_from_the_folder_without_a_network(site: Path) -> None:
    expect.set_options(timeout=1000 * HANG)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1400, "height": 900}, color_scheme="dark")
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: request.url.startswith("file:") or complaints.append(request.url))
        page.goto((site / "architecture.html").as_uri())
        expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
        page.locator("input.md-search__input").click()
        page.keyboard.type("domain bank")
        results = page.locator(".md-search-result__link")
        expect(results.first).to_be_visible()
        assert "/bank.html" in (results.first.get_attribute("href") or "")
        results.first.click()
        expect(page.locator("h1").first).to_be_visible()
        assert page.url.startswith("file:")
        for width in (400, 1400):
            page.set_viewport_size({"width": width, "height": 900})
            for name in (
                "index",
                "reference/settings",
                "reference/commands",
                "REPRODUCED",
                "notebooks/3-compare-methods.ipynb",
            ):
                page.goto((site / f"{name}.html").as_uri())
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (name, width)
        assert not complaints
        browser.close()


def test_the_pages_are_in_the_order_of_the_navigation(site: Path) -> None:
    titles = re.findall(r'class="md-tabs__link">\s*(.*?)\s*<', (site / "index.html").read_text(encoding="utf-8"))
    assert titles == ["Start", "Guides", "Concepts", "Methods", "Reference", "Results", "Project"]
