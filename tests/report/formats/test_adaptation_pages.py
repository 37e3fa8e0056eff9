"""The page of an adaptation without labels: what is on it, and what is not where files are damaged or missing."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from pathlib import Path

import pytest
from stored_runs import (
    ACCEPTED,
    COSDA,
    LOOKED_AT,
    PICTURE,
    REJECTED,
    SCRIPT,
    STOPPED,
    WriteRun,
    add_records,
    write_adaptation,
)

from cosda.records.run import Run, find_runs
from cosda.records.verdict import FOLDER, JudgedImage, Verdict
from cosda.report import render_report
from cosda.report.formats.adaptation_pages import LARGEST, AdaptationPage, adaptation_pages
from cosda.report.tables.contents import contents


def page_of(folder: Path) -> AdaptationPage:
    [page] = adaptation_pages(contents(find_runs([folder])).judged)
    return page


def titles(page: AdaptationPage) -> dict[str, list[str]]:
    return {figure.title: [panel.title for panel in figure.panels] for figure in page.figures}


def own_part(html: str) -> str:
    """The page without plotly, styles, scripts and plots."""
    return re.sub(r"<(script|style)\b.*?</\1>", "", html, flags=re.DOTALL)


def test_the_page_of_an_adaptation(tmp_path: Path) -> None:
    page = page_of(write_adaptation(tmp_path / "run"))
    assert page.anchor == "adaptation-run"
    assert [(tile.title, tile.value, tile.note) for tile in page.tiles] == [
        ("Estimated accuracy", "61% → 78%", "54% to 67% before, 71% to 84% after"),
        ("Images whose class changed", "25%", "of 20"),
        ("Mean confidence", "64% → 81%", ""),
        ("Agreement on what was known", "98%", "colour 98%, print 99%"),
    ]
    assert titles(page) == {
        "Before and after": ["Accuracy", "Confidence"],
        "Images of each predicted class": [""],
        "Routing": [""],
        "Epoch by epoch": ["Loss terms", "information", "agreement"],
    }
    assert "adapt.lr" in page.settings
    assert "3.11.7" in page.environment


def test_a_check_stands_first(tmp_path: Path) -> None:
    page = page_of(write_adaptation(tmp_path / "run", REJECTED))
    first = page.tiles[0]
    assert (first.title, first.value) == ("Accuracy on 20 labelled images", "85% → 60%")
    assert first.note == "1 better, 6 worse, p = 0.125"


def test_training_that_was_stopped_has_reasons_and_curves(tmp_path: Path) -> None:
    page = page_of(write_adaptation(tmp_path / "run", STOPPED, images=()))
    assert page.tiles == ()
    assert list(titles(page)) == ["Routing", "Epoch by epoch"]
    assert "All images are copies of one." in render_report([page.adaptation.run], "html")


def test_a_model_without_a_bank_has_no_routing(tmp_path: Path) -> None:
    assert "Routing" not in titles(page_of(write_adaptation(tmp_path / "run", bank=False)))


def test_images_are_embedded(tmp_path: Path) -> None:
    page = page_of(write_adaptation(tmp_path / "run"))
    [changed], [unsure] = page.changed, page.unsure
    assert changed.picture == "data:image/jpeg;base64," + base64.b64encode(PICTURE).decode()
    assert (changed.name, changed.image) == ("a.png", LOOKED_AT[0])
    assert unsure.picture is None


@pytest.mark.parametrize("content", [None, b"no image", PICTURE + b"x" * LARGEST])
def test_a_thumbnail_that_is_missing_or_no_thumbnail_is_left_out(tmp_path: Path, content: bytes | None) -> None:
    folder = write_adaptation(tmp_path / "run")
    if content is None:
        (folder / FOLDER / "0.jpg").unlink()
    else:
        (folder / FOLDER / "0.jpg").write_bytes(content)
    assert page_of(folder).changed[0].picture is None


def test_damaged_records_are_reasons_on_the_page(tmp_path: Path) -> None:
    folder = write_adaptation(tmp_path / "run")
    add_records(folder, [{"kind": "validation", "stage": 1, "epoch": 2}])
    [problem] = page_of(folder).adaptation.problems
    assert problem.startswith("records.jsonl, line ")
    assert problem.endswith("is damaged: there is no images, scores.")


def test_scores_of_other_images_do_not_begin_the_curves(tmp_path: Path) -> None:
    page = page_of(write_adaptation(tmp_path / "run", replace(ACCEPTED, images=21)))
    [plot] = [panel.plot for panel in page.figures[-1].panels if panel.title == "agreement"]
    assert plot is not None
    assert plot["data"][0]["x"] == [1, 2]
    page = page_of(write_adaptation(tmp_path / "same"))
    [plot] = [panel.plot for panel in page.figures[-1].panels if panel.title == "agreement"]
    assert plot is not None
    assert plot["data"][0]["x"] == [0, 1, 2]


def test_many_domains_are_not_all_in_a_tile(tmp_path: Path) -> None:
    agreement = {f"site-{i}": 0.9 + i / 100 for i in range(5)}
    page = page_of(write_adaptation(tmp_path / "run", replace(ACCEPTED, agreement=agreement)))
    assert page.tiles[-1].note == "site-0 90%, site-1 91%, site-2 92%, …"


def test_one_adaptation_is_the_whole_report(tmp_path: Path) -> None:
    write_adaptation(tmp_path / "run")
    text = own_part(render_report(find_runs([tmp_path]), "html"))
    main = text[text.index("<main") : text.index("</main>")]
    assert "Adaptation to hand" in main
    assert text.count("Adaptation to hand") == 1
    assert "The estimated accuracy rises." in main
    assert "Estimated accuracy</dt>" in main
    assert "Forgetting" not in main  # nothing was measured on labels
    assert SCRIPT not in text


def test_several_adaptations_have_a_list_and_pages(adapted_runs: list[Run]) -> None:
    text = own_part(render_report(adapted_runs, "html"))
    main, pages = text.split("</main>")
    links = re.findall(r'href="#(adaptation-[^"]*)"', main)
    assert len(links) == 4
    assert re.findall(r'id="(adaptation-[^"]*)"', pages) == links
    assert "verdict/verdict.json is damaged" in pages
    assert pages.count("The check found harm.") == 1
    assert re.findall(r'class="verdict (\w+)"', main) == ["rejected", "accepted", "unreadable", "rejected"]


@pytest.mark.parametrize("format", ["html", "md", "csv", "tex"])
def test_beside_runs_with_labels_both_are_shown(
    tmp_path: Path, adapted_runs: list[Run], make_run: WriteRun, format: str
) -> None:
    make_run(tmp_path / "digits-cosda-s0", COSDA[0], label="cosda")
    chain = find_runs([tmp_path])
    text = render_report([*chain, *adapted_runs], format)
    assert text == render_report([*adapted_runs[::-1], *chain], format)
    assert "own-aad-rejected" in text
    assert "digits-cosda-s0" in text or format in ("md", "tex")
    if format != "csv":
        assert "The check found harm." in text
        assert "Forward transfer" in text
        assert "Estimated accuracy" in text
        assert "verdict.json is damaged" in text


def test_an_adaptation_changes_nothing_in_the_sections_of_others(
    tmp_path: Path, adapted_runs: list[Run], make_run: WriteRun
) -> None:
    make_run(tmp_path / "digits-cosda-s0", COSDA[0], label="cosda")
    chain = find_runs([tmp_path])
    alone, both = (render_report(runs, "csv").splitlines() for runs in (chain, [*chain, *adapted_runs]))
    assert both[0] == alone[0]
    assert both[-len(alone) + 1 :] == alone[1:]


@pytest.mark.parametrize("format", ["html", "md", "tex"])
def test_names_that_try_to_break_out(tmp_path: Path, format: str) -> None:
    evil = f"{SCRIPT}|`*\n](x)"
    images = [JudgedImage(evil, evil, 0.5, evil, 0.5, why="changed", thumbnail=None)]
    verdict: Verdict = replace(ACCEPTED, reasons=(evil,), domain=evil, agreement={evil: 0.5, SCRIPT: 1.0})
    write_adaptation(tmp_path / "run", verdict, images)
    text = render_report(find_runs([tmp_path]), format)
    assert SCRIPT not in text
    if format == "md":
        assert "\n](x)" not in text
