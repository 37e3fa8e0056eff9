"""The notebooks: every cell runs, what their texts say of the numbers holds, and what is stored is fit to be read."""

from __future__ import annotations

import base64
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError
from tools import documentation, notebooks

ROOT = Path(__file__).parents[1]
PATHS = notebooks.paths()
LARGEST, LARGEST_PICTURE = 200_000, 40_000  # bytes
NOT_FOR_READERS = re.compile(r"(?<![\w.:/])/(tmp|home|root|work|Users|var|opt)/|[A-Z]:\\|0x[0-9a-f]{6}|\d it/s|━|\x1b")


def code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def texts(notebook: Any) -> list[str]:
    return [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]


def forms(cell: Any) -> list[list[str]]:
    """What a cell shows: streams by their name, and data by their form."""
    return [[one["name"]] if one.output_type == "stream" else sorted(one["data"]) for one in cell.outputs]


def written(notebook: Any) -> str:
    """All text that a notebook shows, without its pictures."""
    shown = [
        one.get("text", "") + "".join(text for form, text in one.get("data", {}).items() if form != "image/png")
        for cell in code(notebook)
        for one in cell.outputs
    ]
    return "\n".join(shown)


def made(*cells: str) -> Any:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])


def test_there_are_four() -> None:
    assert len(PATHS) == 4


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_every_cell_runs_and_what_the_text_says_holds(path: Path, tmp_path: Path) -> None:
    """The last cell of code asserts what the text says. Numbers differ between processors; what is shown does not."""
    stored = notebooks.read(path)
    fresh = notebooks.execute(stored, tmp_path)
    assert [forms(cell) for cell in code(fresh)] == [forms(cell) for cell in code(stored)]
    assert not NOT_FOR_READERS.search(written(fresh))
    assert {path.suffix for path in (tmp_path / "work").iterdir()} <= {"", ".html", ".md"}  # models, runs, reports


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_stored_outputs_can_be_read_on_a_code_host(path: Path) -> None:
    notebook = notebooks.read(path)
    assert path.stat().st_size <= LARGEST
    assert sum(bool(cell.outputs) for cell in code(notebook)) >= 6
    for cell in code(notebook):
        for one in cell.outputs:
            assert one.output_type != "error"
            assert one.get("name") != "stderr"
            picture = one.get("data", {}).get("image/png", "")
            assert len(base64.b64decode(picture)) <= LARGEST_PICTURE
    assert not (found := NOT_FOR_READERS.search(written(notebook))), found
    again = nbformat.writes(notebooks.tidy(notebook), version=4) + "\n"
    assert path.read_text(encoding="utf-8") == again, "python -m tools.notebooks writes it without what varies"


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_is_an_article_that_ends_with_a_check(path: Path) -> None:
    notebook = notebooks.read(path)
    assert 10 <= len(notebook.cells) <= 25
    assert not any(a.cell_type == b.cell_type == "code" for a, b in pairwise(notebook.cells))  # a text before each
    first, *_, last = texts(notebook)
    assert first.startswith("# ")
    assert last.startswith("## Where to go on")
    assert len(re.findall(r"^assert ", code(notebook)[-1].source, flags=re.MULTILINE)) >= 5
    for target in re.findall(r"\]\(([^)\s]+)\)", "\n".join(texts(notebook))):
        assert "://" in target or (path.parent / target).exists(), target


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_the_page_and_the_site_name_each(path: Path) -> None:
    title = texts(notebooks.read(path))[0].splitlines()[0].removeprefix("# ")
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert f"[{title}](../notebooks/{path.name})" in page
    assert f"- notebooks/{path.name}.md\n" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    shown = documentation.shown(f"notebooks/{path.name}")
    for cell in notebooks.read(path).cells:
        assert cell.source in shown
    assert shown.count("data:image/png;base64,") == sum(
        "image/png" in one.get("data", {}) for cell in code(notebooks.read(path)) for one in cell.outputs
    )


def test_they_run_in_this_python_and_what_varies_is_left_out(tmp_path: Path) -> None:
    cells = (
        "import sys\nprint(sys.executable)\nprint('x ', flush=True)",
        "from IPython.display import HTML\nHTML('<b>y</b>')",
    )
    first, second = code(notebooks.execute(made(*cells), tmp_path / "one"))
    assert first.outputs == [{"output_type": "stream", "name": "stdout", "text": f"{sys.executable}\nx\n"}]
    assert second.outputs == [{"output_type": "display_data", "data": {"text/html": "<b>y</b>"}, "metadata": {}}]
    assert first.execution_count is None
    assert not first.metadata


def test_a_cell_that_fails_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CellExecutionError, match="this does not hold"):
        notebooks.execute(made("assert 1 == 2, 'this does not hold'"), tmp_path)
