"""The tables of a single chain, with cells computed by hand: summary, final, adapted, matrix."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cells import cell_of, sections_of, titles_of
from stored_runs import SOURCE

from cosda import metrics
from cosda.records.run import Run
from cosda.report.model.groups import Section
from cosda.report.model.table import Table
from cosda.report.tables.adapted import adapted_tables
from cosda.report.tables.contents import contents
from cosda.report.tables.final import final_table
from cosda.report.tables.matrix import matrix_tables
from cosda.report.tables.summary import short_table, summary_table, summary_tables


@pytest.fixture
def chain(runs: list[Run]) -> Section:
    """Four methods on one chain."""
    return next(section for section in sections_of(runs, "digits") if section.select == "last")


@pytest.mark.parametrize(
    ("measure", "mean", "spread"),
    [
        # Seed 0 ends with 96, 79, 74 and seed 1 with 95, 85, 76.
        ("average", (83 + 256 / 3) / 200, 7 / 3 / 2**0.5 / 100),
        ("adaptation", 0.785, 3 / 2**0.5 / 100),  # (80 + 74) / 2 and (84 + 76) / 2
        ("source_drop", 0.015, 1 / 2**0.5 / 100),  # 98 - 96 and 96 - 95
        ("bwt", -0.0075, 1.5 / 2**0.5 / 100),  # (-2 - 1) / 2 and (-1 + 1) / 2
        ("bwt_targets", 0.0, 2 / 2**0.5 / 100),  # 79 - 80 and 85 - 84
        ("forgetting", 0.01, 1 / 2**0.5 / 100),  # (2 + 1) / 2 and (1 + 0) / 2
        ("forward_transfer", 0.07, 2 / 2**0.5 / 100),  # 56 - 50 and 60 - 52
    ],
)
def test_summary_cells(chain: Section, measure: str, mean: float, spread: float) -> None:
    cell = cell_of(summary_table(chain), "cosda", metrics.MEASURES[measure].title, measure)
    assert cell.mean == pytest.approx(mean)
    assert cell.spread == pytest.approx(spread)


def test_the_summary_has_every_measure_in_its_direction(chain: Section) -> None:
    columns = summary_table(chain).columns
    assert [column.measure for column in columns] == list(metrics.MEASURES)
    assert [c.measure for c in columns if not c.larger_is_better] == ["source_drop", "forgetting"]


def test_accuracies_on_single_domains(chain: Section) -> None:
    assert cell_of(final_table(chain), "cosda", "colour").values == pytest.approx((0.79, 0.85))
    (adapted,) = adapted_tables([chain])
    assert titles_of(adapted) == ["colour", "hand"]
    assert cell_of(adapted, "cosda", "hand").values == pytest.approx((0.74, 0.76))


def test_matrices_hold_every_stage(chain: Section) -> None:
    (table,) = matrix_tables([chain])
    rows = [row for row in table.rows if row.name == "bn"]
    assert [row.part for row in rows] == ["source model", "after colour", "after hand"]
    assert [cell.values for cell in rows[1].cells] == [(0.90, 0.88), (0.70, 0.72), (0.51, 0.53)]


def best_rows(table: Table, title: str) -> list[str]:
    return [row.name for row in table.rows if cell_of(table, row.name, title).best]


def test_best(chain: Section) -> None:
    summary = summary_table(chain)
    assert best_rows(summary, "Average") == ["cosda"]
    assert best_rows(summary, "Source drop") == ["source"]  # lower is better
    assert best_rows(summary, "BWT, targets") == ["source", "cosda"]  # equal at the precision shown


def test_averages_are_tested_over_seeds_and_domains(chain: Section) -> None:
    (summary,) = summary_tables([chain])
    assert {(test.row, test.values) for test in summary.tests} == {
        ("source", 6), ("bn", 6), ("cosda (no-dual-speed)", 6)
    }  # fmt: skip
    assert {test.reference for test in summary.tests} == {"cosda"}
    # cosda against bn: 96-80, 79-66, 74-60, 95-78, 85-64, 76-64, all above: 2 / 64, times 3 tests.
    assert {test.row: test.p for test in summary.tests}["bn"] == pytest.approx(6 / 64)


def test_the_papers_numbers_stand_beside(paper_runs: list[Run]) -> None:
    (section,) = sections_of(paper_runs, "officehome")
    summary = summary_table(section)
    bwt = cell_of(summary, "cosda", "BWT")
    assert (bwt.mean, bwt.published) == (pytest.approx(-0.02), -0.0224)
    assert cell_of(summary, "cosda", "Average").published is None
    pair = next(s for s in sections_of(paper_runs, "office31") if s.domains == ("amazon", "dslr"))
    summary = summary_table(pair)
    assert [cell_of(summary, "cosda", title).published for title in ("Adaptation", "Source drop", "BWT")] == [
        0.8675, 0.0103, None
    ]  # fmt: skip


def test_with_one_target_some_tables_say_nothing_new(runs: list[Run]) -> None:
    chapter = next(chapter for chapter in contents(runs).chapters if len(chapter.section.domains) == 2)
    assert [table.kind for table in chapter.tables] == ["summary", "final"]
    assert chapter.notes == (
        "BWT, targets: needs a chain of two targets or more.",
        "Forward transfer: needs a chain of two targets or more.",
    )


def test_an_unfinished_row_is_empty_and_its_runs_are_named(runs: list[Run], chain: Section) -> None:
    halves = tuple(replace(group, counted=(), matrices=()) for group in chain.groups)
    rows = final_table(replace(chain, groups=halves)).rows
    assert {cell.reason for row in rows for cell in row.cells} == {"no finished run"}
    notes = next(chapter for chapter in contents(runs).chapters if len(chapter.section.groups) == 4).notes
    assert notes == ("cosda, seed 2 (digits-cosda-s2-00aa2): not finished: it has 1 epoch of stage 2 (hand).",)


def test_a_terminal_shows_the_short_measures_and_the_final_accuracies(chain: Section) -> None:
    table = short_table(chain)
    assert titles_of(table) == ["Average", "Adaptation", "Source drop", "BWT", "print", "colour", "hand"]
    source = next(row for row in table.rows if row.name == "source")
    assert [cell.values[0] for cell in source.cells[-3:]] == [n / 100 for n in SOURCE[0][-1]]
    assert source.cells[0].values[0] == pytest.approx(sum(SOURCE[0][-1]) / 300)
