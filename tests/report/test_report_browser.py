"""The page in a real browser: it draws, sorts, darkens and fits a phone; no errors, no network."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from stored_runs import IMAGE, SCRIPT

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome is installed")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Visit:
    """An open page and all it complained about or asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def file(page: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def visit(browser: Browser, file: Path, width: int, **options: object) -> Visit:
    context = browser.new_context(viewport={"width": width, "height": 844}, **options)  # type: ignore[arg-type]
    seen = Visit(context.new_page())
    seen.page.on("console", lambda message: seen.complaints.append(f"{message.type}: {message.text}"))
    seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    seen.page.on("dialog", lambda dialog: (seen.complaints.append("an alert"), dialog.dismiss()))
    seen.page.on("request", lambda request: seen.requests.append(request.url))
    seen.page.goto(file.as_uri())
    drawn(seen.page)
    return seen


def drawn(page: Page) -> None:
    page.wait_for_selector("html[data-drawn]", state="attached", timeout=60_000)


@pytest.fixture(scope="module")
def desk(browser: Browser, file: Path) -> Iterator[Visit]:
    seen = visit(browser, file, 1200, color_scheme="light")
    yield seen
    seen.page.context.close()


def test_text_and_figures_are_there(desk: Visit) -> None:
    page = desk.page
    text = page.inner_text("main")
    assert SCRIPT in text
    assert IMAGE in text
    assert "Accuracy matrices" in text
    assert page.title() == 'cosda report: a&b"c, digits'
    places = page.locator(".plot").count()
    assert places > 20
    assert page.locator(".plot:has(svg.main-svg)").count() == places
    assert page.locator(".plot .heatmaplayer image, .plot .heatmaplayer path").count() > 0
    assert page.locator(".plot .scatterlayer .point").count() > 100


def test_names_in_figures_are_shown_as_they_are(desk: Visit) -> None:
    texts = desk.page.locator("#section-1 .plot text").all_text_contents()
    assert "%{x}|*b*" in texts
    assert f"{SCRIPT} (source)" in texts


def test_no_errors_and_no_network(desk: Visit, file: Path) -> None:
    assert desk.complaints == []
    assert {url for url in desk.requests if not url.startswith(("data:", "blob:"))} == {file.as_uri()}


def test_sorting(desk: Visit) -> None:
    table = desk.page.locator("#section-2 table[data-group=summary]")

    def click(title: str) -> list[str]:
        table.get_by_role("button", name=title, exact=True).click()
        return [name.strip() for name in table.locator("tbody th").all_text_contents()]

    best_first = ["cosda", "cosda (no-dual-speed)", "bn", "source"]
    assert click("Adaptation") == best_first
    assert table.locator("th[aria-sort]").get_attribute("aria-sort") == "descending"
    assert click("Adaptation") == best_first[::-1]
    assert click("Source drop") == ["source", "cosda", "bn", "cosda (no-dual-speed)"]
    assert click("Method") == ["bn", "cosda", "cosda (no-dual-speed)", "source"]
    assert table.locator("th[aria-sort]").count() == 1


def test_dark_and_light(desk: Visit) -> None:
    page = desk.page

    def colours() -> tuple[str, str]:
        drawn(page)
        return (
            page.evaluate("getComputedStyle(document.body).backgroundColor"),
            page.locator(".plot .xtick text").first.evaluate("node => getComputedStyle(node).fill"),
        )

    light = colours()
    page.get_by_role("button", name="Switch to dark colours").click()
    dark = colours()
    assert light[0] != dark[0]
    assert light[1] != dark[1]
    page.get_by_role("button", name="Switch to light colours").click()
    assert colours() == light


def test_a_phone_that_prefers_dark(browser: Browser, file: Path) -> None:
    seen = visit(browser, file, 390, is_mobile=True, has_touch=True, color_scheme="dark")
    assert seen.page.inner_text("#theme") == "Light"
    assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)"
    assert seen.page.evaluate("document.documentElement.scrollWidth") == 390
    wide = "nodes => nodes.filter(n => n.getBoundingClientRect().width > 390).length"
    assert seen.page.locator(".plot").evaluate_all(wide) == 0
    assert seen.complaints == []
    seen.page.context.close()


def test_tables_need_no_javascript(browser: Browser, file: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    assert "84.17" in page.inner_text("#section-2")
    assert "Without JavaScript" in page.inner_text("main")
    context.close()
