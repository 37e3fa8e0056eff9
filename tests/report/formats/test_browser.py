"""The page in a real browser: it draws, sorts, filters, opens runs, darkens and fits a phone; no errors, no network."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright
from stored_runs import AMPERSAND, IMAGE, REJECTED, SCRIPT, write_adaptation

from cosda.records.run import Run, find_runs
from cosda.report import write_report
from waiting import HANG

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome is installed")
CHAIN_SECTION = "#section-2"
expect.set_options(timeout=1000 * HANG)  # figures take long on a busy machine
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


def visit(browser: Browser, file: Path, width: int, place: str = "", **options: object) -> Visit:
    context = browser.new_context(viewport={"width": width, "height": 844}, **options)  # type: ignore[arg-type]
    seen = Visit(context.new_page())
    seen.page.on("console", lambda message: seen.complaints.append(f"{message.type}: {message.text}"))
    seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    seen.page.on("dialog", lambda dialog: (seen.complaints.append("an alert"), dialog.dismiss()))
    seen.page.on("request", lambda request: seen.requests.append(request.url))
    seen.page.goto(file.as_uri() + place)
    seen.page.wait_for_selector("html[data-ready]", state="attached", timeout=1000 * HANG)
    return seen


def draw_all(page: Page) -> None:
    """Look at every figure that the reader could scroll to."""
    places = page.locator(".plot:visible")
    for i in range(places.count()):
        places.nth(i).scroll_into_view_if_needed()
        expect(places.nth(i).locator("svg.main-svg").first).to_be_attached()


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
    draw_all(page)
    places = page.locator("main .plot").count()
    assert places > 20
    assert page.locator("main .plot:has(svg.main-svg)").count() == places
    assert page.locator(".plot .heatmaplayer image, .plot .heatmaplayer path").count() > 0
    assert page.locator(".plot .scatterlayer .point").count() > 100
    assert page.locator(".plot .barlayer .point").count() > 5
    assert page.locator("#runs .plot:has(svg.main-svg)").count() == 0  # nobody has opened the page of a run


def test_figures_are_drawn_when_they_come_near(browser: Browser, file: Path) -> None:
    seen = visit(browser, file, 1200)
    last = seen.page.locator("main .plot").last
    expect(last.locator("svg.main-svg")).to_have_count(0)
    last.scroll_into_view_if_needed()
    expect(last.locator("svg.main-svg").first).to_be_attached()
    seen.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")  # paper cannot scroll
    assert seen.page.locator("main .plot:visible:not(:has(svg.main-svg))").count() == 0
    seen.page.context.close()


def test_names_in_figures_are_shown_as_they_are(desk: Visit) -> None:
    texts = desk.page.locator("#section-1 .plot text").all_text_contents()
    assert "%{x}|*b*" in texts
    assert f"{SCRIPT} (source)" in texts


def test_no_errors_and_no_network(desk: Visit, file: Path) -> None:
    assert desk.complaints == []
    assert {url for url in desk.requests if not url.startswith(("data:", "blob:"))} == {file.as_uri()}


def rows_of(page: Page, table: str) -> list[str]:
    return [name.strip() for name in page.locator(f"{table} tbody tr:visible > th").all_text_contents()]


def test_sorting(desk: Visit) -> None:
    table = desk.page.locator(f"{CHAIN_SECTION} table[data-kind=summary]")

    def click(title: str) -> list[str]:
        table.get_by_role("button", name=title, exact=True).click()
        return rows_of(desk.page, f"{CHAIN_SECTION} table[data-kind=summary]")

    best_first = ["cosda", "cosda (no-dual-speed)", "bn", "source"]
    assert click("Adaptation") == best_first
    assert table.locator("th[aria-sort]").get_attribute("aria-sort") == "descending"
    assert click("Adaptation") == best_first[::-1]
    assert click("Source drop") == ["source", "cosda", "bn", "cosda (no-dual-speed)"]
    assert click("Method") == ["bn", "cosda", "cosda (no-dual-speed)", "source"]
    assert table.locator("th[aria-sort]").count() == 1


def test_every_column_of_every_table_can_be_sorted_by_keyboard(desk: Visit) -> None:
    heads = desk.page.locator("main table.sortable thead th")
    assert heads.count() == desk.page.locator("main table.sortable thead th > button").count() > 20
    button = desk.page.locator(f"{CHAIN_SECTION} table[data-kind=runs] thead button").nth(2)
    button.focus()
    desk.page.keyboard.press("Enter")
    assert "s0" in rows_of(desk.page, f"{CHAIN_SECTION} table[data-kind=runs]")[0]
    desk.page.keyboard.press("Enter")
    assert "s2" in rows_of(desk.page, f"{CHAIN_SECTION} table[data-kind=runs]")[0]


def test_filtering_by_method_benchmark_and_seed(browser: Browser, file: Path) -> None:
    seen = visit(browser, file, 1200)
    page, summary, runs = (
        seen.page,
        f"{CHAIN_SECTION} table[data-kind=summary]",
        f"{CHAIN_SECTION} table[data-kind=runs]",
    )
    everything = page.locator("main tr:visible").count()
    trade_off = page.locator(f"{CHAIN_SECTION} .plot").first
    trade_off.scroll_into_view_if_needed()
    expect(trade_off.locator(".textpoint text")).to_have_count(4)
    page.get_by_label("Method").select_option("cosda")
    assert rows_of(page, summary) == ["cosda"]
    assert rows_of(page, runs) == [f"digits-cosda-s{seed}-00aa{seed}" for seed in range(3)]
    assert (
        page.locator("main figure[data-method]:visible").evaluate_all("nodes => nodes.map(n => n.dataset.method)")[0]
        == "cosda"
    )
    assert not page.locator("main figure[data-method=bn]:visible").count()
    assert not page.get_by_role("heading", name=AMPERSAND).is_visible()
    trade_off.scroll_into_view_if_needed()
    expect(trade_off.locator(".textpoint text")).to_have_count(1)
    page.get_by_label("Seed").select_option("1")
    assert rows_of(page, runs) == ["digits-cosda-s1-00aa1"]
    page.get_by_role("button", name="Show all").click()
    expect(page).to_have_url(re.compile(r"^[^#]*#?$"))
    assert page.locator("main tr:visible").count() == everything
    page.get_by_label("Benchmark").select_option(AMPERSAND)
    assert page.locator("main section.block:visible").count() == 2  # its section and its table of classes
    assert seen.complaints == []
    seen.page.context.close()


def test_searching_by_words_with_the_keyboard_and_sending_the_link(browser: Browser, file: Path) -> None:
    seen = visit(browser, file, 1200)
    page, summary = seen.page, f"{CHAIN_SECTION} table[data-kind=summary]"
    page.get_by_label("Search").press_sequentially("DUAL hand")
    assert rows_of(page, summary) == ["cosda (no-dual-speed)"]
    assert "sections have matching rows" in page.inner_text("#filter output")
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    assert rows_of(page, summary) == ["cosda (no-dual-speed)"]
    assert page.get_by_label("Search").input_value() == "DUAL hand"
    page.get_by_label("Search").fill("nothing of that name")
    assert page.locator("main section.block:visible").count() == 0
    assert "0 of" in page.inner_text("#filter output")
    assert seen.complaints == []
    seen.page.context.close()


def test_the_page_of_a_run_and_back(browser: Browser, file: Path) -> None:
    seen = visit(browser, file, 1200)
    page = seen.page
    assert page.locator("article.run:visible").count() == 0
    link = page.get_by_role("link", name="digits-cosda-s1-00aa1")
    link.scroll_into_view_if_needed()
    place = page.evaluate("window.scrollY")
    assert place > 0
    link.click()
    opened = page.locator("article.run:visible")
    expect(opened).to_have_count(1)
    assert page.url.endswith("#run-digits-cosda-s1-00aa1")
    assert not page.locator("main").is_visible()
    assert page.evaluate("window.scrollY") == 0
    text = opened.inner_text()
    for words in ("preset digits", "3.11.7", "after colour", "84.00", "last (chosen)", "Environment"):
        assert words in text
    draw_all(page)
    assert opened.locator(".plot:has(svg.main-svg)").count() == opened.locator(".plot").count() == 2
    page.get_by_role("link", name="← All results").click()
    expect(page.locator("main")).to_be_visible()
    assert page.locator("article.run:visible").count() == 0
    assert page.evaluate("window.scrollY") == place
    page.go_back()
    expect(opened).to_have_count(1)
    page.go_back()
    expect(page.locator("main")).to_be_visible()
    assert seen.complaints == []
    seen.page.context.close()


def test_a_link_to_a_run_opens_its_page(browser: Browser, file: Path) -> None:
    seen = visit(browser, file, 1200, "#run-hostile-s0-1")
    assert IMAGE in seen.page.locator("article.run:visible").inner_text()
    draw_all(seen.page)
    seen.page.get_by_role("link", name="← All results").click()
    expect(seen.page.locator("#section-1")).to_be_in_viewport()
    assert seen.complaints == []
    seen.page.context.close()


def test_dark_and_light(desk: Visit) -> None:
    page = desk.page
    place = page.locator(f"{CHAIN_SECTION} .plot").first

    def colours() -> tuple[str, str]:
        """Of the page and of the texts in a figure, which is drawn again when the reader sees it."""
        place.scroll_into_view_if_needed()
        ink = page.evaluate("getComputedStyle(document.body).color")
        axis = place.locator(".xtick text").first
        expect(axis).to_have_css("fill", ink)
        return page.evaluate("getComputedStyle(document.body).backgroundColor"), ink

    light = colours()
    page.get_by_role("button", name="Switch to dark colours").click()
    dark = colours()
    assert light[0] != dark[0]
    assert light[1] != dark[1]
    page.get_by_role("button", name="Switch to light colours").click()
    assert colours() == light


def test_a_phone_that_prefers_dark(browser: Browser, file: Path) -> None:
    seen = visit(browser, file, 390, is_mobile=True, has_touch=True, color_scheme="dark")
    page, wide = seen.page, "nodes => nodes.filter(n => n.getBoundingClientRect().width > 390).length"
    assert page.inner_text("#theme") == "Light"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)"
    draw_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.locator(":not(.scroll) > .plot").evaluate_all(wide) == 0
    for name in ("run-digits-cosda-s0-00aa0", "run-hostile-s0-1"):
        page.evaluate("hash => { location.hash = hash; }", name)
        expect(page.locator("article.run:visible")).to_have_count(1)
        draw_all(page)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert seen.complaints == []
    seen.page.context.close()


def test_everything_but_figures_needs_no_javascript(browser: Browser, file: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    assert "84.17" in page.inner_text(CHAIN_SECTION)
    assert "Without JavaScript" in page.inner_text("noscript")
    assert not page.locator("#filter").is_visible()
    assert page.locator("article.run:visible").count() == page.locator("article.run").count() == 11
    assert "preset digits" in page.inner_text("#run-digits-cosda-s1-00aa1")
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_a_report_on_banks(browser: Browser, bank_runs: list[Run], tmp_path: Path, width: int, scheme: str) -> None:
    write_report(bank_runs, tmp_path / "report.html", "html")
    seen = visit(browser, tmp_path / "report.html", width, color_scheme=scheme)
    page = seen.page
    folded = page.locator("#section-1 details:has(> .scroll > table[data-kind=routing])")
    assert not folded.locator("table").is_visible()
    folded.locator("summary").click()
    assert rows_of(page, "#section-1 table[data-kind=experts]") == ["aad (carry bank)"] * 4
    assert folded.locator("tbody tr").first.locator("td").all_inner_texts()[:3] == ["print", "2", "92.00 ± 2.83"]
    card = page.locator("#section-1 details.figures", has=page.get_by_role("heading", name="Routing", exact=True))
    card.scroll_into_view_if_needed()
    expect(card.locator(".heatmap-label text").first).to_have_text("92.00")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.evaluate("location.hash = 'run-digits-aad-s0-bank'")
    opened = page.locator("article.run:visible")
    assert "Base, expert, routed" in opened.inner_text()
    draw_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert seen.complaints == []
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_a_report_on_one_adaptation(browser: Browser, tmp_path: Path, width: int, scheme: str) -> None:
    write_adaptation(tmp_path / "run", REJECTED)
    pixels = np.zeros((96, 96, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "run" / "verdict" / "0.jpg")
    write_report(find_runs([tmp_path]), tmp_path / "report.html", "html")
    seen = visit(browser, tmp_path / "report.html", width, color_scheme=scheme)
    page = seen.page
    assert page.locator("main .judgement .verdict").inner_text() == "rejected"
    assert page.locator("main .lineage li").all_inner_texts()[0].startswith("print")
    assert page.evaluate("document.querySelector('.images img').decode().then(() => true)")
    assert not page.locator("#filter").is_visible()
    draw_all(page)
    assert page.locator("main .plot:has(svg.main-svg)").count() == page.locator("main .plot").count() == 7
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert seen.complaints == []
    assert len(seen.requests) == 1 + sum(url.startswith(("data:", "blob:")) for url in seen.requests)
    page.context.close()


def test_adaptations_beside_runs_with_labels(
    browser: Browser, adapted_runs: list[Run], bank_runs: list[Run], tmp_path: Path
) -> None:
    write_report([*adapted_runs, *bank_runs], tmp_path / "report.html", "html")
    seen = visit(browser, tmp_path / "report.html", 1200)
    page = seen.page
    page.locator("#filter input[name=words]").fill("nothing has this name")
    expect(page.locator("#section-1")).not_to_be_visible()
    expect(page.locator("#adaptations")).to_be_visible()  # the filter is for what is compared
    page.locator("#adaptations a[href='#adaptation-own-aad-damaged']").click()
    opened = page.locator("article.run:visible")
    expect(opened).to_have_count(1)
    assert "verdict.json is damaged" in opened.inner_text()
    draw_all(page)
    assert opened.locator(".plot:has(svg.main-svg)").count() == 4  # routing, losses, two scores
    page.get_by_role("link", name="← All results").click()
    expect(page.locator("#adaptations")).to_be_in_viewport()
    assert seen.complaints == []
    page.context.close()
