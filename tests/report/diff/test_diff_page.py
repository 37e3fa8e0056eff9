"""The page of changes: names stay names, nothing from outside, light and dark, from a phone to a desk."""

from __future__ import annotations

import csv
import io
import re
import shutil
from pathlib import Path

import pytest

from cosda.errors import CosdaError
from cosda.records.images import ComparedImage
from cosda.report.diff.changes import Diff
from cosda.report.diff.files import PAIRS, as_csv, as_page, write_diff

HOSTILE = '<script>alert("x")</script>'
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# The smallest JPEG there is: one grey pixel.
PIXEL = bytes.fromhex(
    "ffd8ffdb004300" + "01" * 64 + "ffc0000b080001000101011100ffc40014000100000000000000000000000000000009"
    "ffc40014100100000000000000000000000000000000ffda0008010100003f0054dfffd9"
)


def changes(count: int = 30) -> Diff:
    changed = tuple(
        ComparedImage(f"{HOSTILE}/{n:02}.jpg", f"class {n}", 0.9, HOSTILE if n % 2 else "b", 0.8) for n in range(count)
    )
    pictures = {one.image: PIXEL for one in changed[:3]}
    return Diff("/models/a", "/models/b", 100, changed, {"broken.jpg": "damaged"}, pictures)


def test_names_from_data_are_escaped_and_nothing_comes_from_outside() -> None:
    page = as_page(changes(), 10)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!data:)""", page)
    assert "default-src 'none'" in page
    assert page == as_page(changes(), 10)


def test_the_page_says_what_it_leaves_out() -> None:
    page = as_page(changes(), 10)
    assert page.count("<li title=") == 10
    assert "class 9 90%" in page
    assert "class 10 90%" not in page
    assert "10 of 30 are shown" in page
    assert f"there are {30 - PAIRS} more" in page
    assert "<code>broken.jpg</code>: damaged." in page
    assert page.count("data:image/jpeg;base64,") == 3
    assert "are shown" not in as_page(changes(), 30)
    nothing = as_page(Diff("a", "b", 0, ()), 10)
    assert "0 of 0 images change class" in nothing
    assert "<table" not in nothing


def test_csv_is_read_back() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(changes(2)))))
    assert [row["image"] for row in rows] == [f"{HOSTILE}/00.jpg", f"{HOSTILE}/01.jpg", "broken.jpg"]
    assert [row["after"] for row in rows] == ["b", HOSTILE, ""]
    assert [row["skipped"] for row in rows] == ["", "", "damaged"]


def test_what_cannot_be_written_is_explained(tmp_path: Path) -> None:
    with pytest.raises(CosdaError, match=r"FILE\.csv or FILE\.html"):
        write_diff(changes(), tmp_path / "x.pdf")
    (tmp_path / "file").write_text("")
    with pytest.raises(CosdaError, match=r"cannot write .*x\.html|cannot write .*file: .* is a file"):
        write_diff(changes(), tmp_path / "file" / "x.html")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome is installed")
def test_in_a_browser(tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    write_diff(changes(), tmp_path / "changes.html")
    backgrounds, complaints = set(), []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for scheme in ("light", "dark"):
            for width in (400, 1400):
                page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
                page.on("console", lambda message: complaints.append(message.text))
                page.goto((tmp_path / "changes.html").as_uri())
                assert page.evaluate("document.documentElement.scrollWidth") == width
                page.locator("img").nth(2).scroll_into_view_if_needed()
                page.wait_for_function("[...document.images].every((image) => image.complete && image.naturalWidth)")
                backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
                page.close()
        browser.close()
    assert len(backgrounds) == 2
    assert complaints == []
