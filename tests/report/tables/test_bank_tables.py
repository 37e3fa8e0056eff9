"""The tables of a domain bank, with cells computed by hand: experts and routing."""

from __future__ import annotations

from pathlib import Path

import pytest
from cells import sections_of, titles_of
from stored_runs import SOURCE, add_records, write_bank_run, write_run

from cosda.cli.tables import print_run, print_tables
from cosda.records.run import Run, find_runs, read_run
from cosda.report import render_report
from cosda.report.formats import FORMATS
from cosda.report.model.groups import Section, group_runs
from cosda.report.model.table import Cell, Table
from cosda.report.tables.contents import contents
from cosda.report.tables.experts import expert_tables
from cosda.report.tables.routing import routing_tables


@pytest.fixture
def chain(bank_runs: list[Run]) -> Section:
    """A bank with two seeds beside the source model."""
    (section,) = sections_of(bank_runs, "digits")
    return section


def cell(table: Table, part: str, title: str) -> Cell:
    row = next(row for row in table.rows if row.part == part)
    return row.cells[[column.title for column in table.columns].index(title)]


def test_base_own_expert_and_routed_bank(chain: Section) -> None:
    (table,) = expert_tables([chain])
    assert titles_of(table) == ["base", "own expert", "routed", "routing costs"]
    assert [(row.name, row.part) for row in table.rows] == [
        ("aad (carry bank)", part) for part in ("print", "colour", "hand", "average")
    ]
    # Of the source the own expert is the base; of the others it was measured after their stage.
    assert cell(table, "print", "own expert").values == cell(table, "print", "base").values == (0.98, 0.96)
    assert cell(table, "colour", "base").values == (0.60, 0.62)
    assert cell(table, "colour", "own expert").values == (0.80, 0.84)
    assert cell(table, "colour", "routed").values == (0.81, 0.83)
    assert cell(table, "colour", "routing costs").values == pytest.approx((-0.01, 0.01))
    assert cell(table, "average", "own expert").values == pytest.approx(((98 + 80 + 76) / 300, (96 + 84 + 78) / 300))
    assert cell(table, "average", "routing costs").values == pytest.approx(((1 - 1 + 2) / 300, (0 + 1 + 0) / 300))


def test_which_expert_images_went_to(chain: Section) -> None:
    (table,) = routing_tables([chain])
    assert titles_of(table) == ["print", "colour", "hand", "mixed", "unknown"]
    assert [row.part for row in table.rows] == ["print", "colour", "hand"]
    assert [found.values for found in table.rows[0].cells] == [
        (0.90, 0.94), (0.08, 0.06), (0.02, 0.0), (0.12, 0.10), (0.01, 0.01)
    ]  # fmt: skip
    assert table.notes[-1] == "Not cross-fitted: the router was fitted on training images and measured on test images."


def test_it_says_where_routing_was_crossfitted(bank_runs: list[Run]) -> None:
    (table,) = routing_tables(sections_of(bank_runs, "letters"))
    assert table.notes[-1] == (
        "Cross-fitted: colour, hand. The router that an image was sent by was fitted without it. "
        "Not cross-fitted: print. The router may have been fitted on the same images."
    )


def test_only_banks_have_them(runs: list[Run], paper_runs: list[Run], bank_runs: list[Run]) -> None:
    kinds = [table.kind for table in contents([*runs, *paper_runs]).tables]
    assert not {"experts", "routing"} & set(kinds)
    chapters = {chapter.section.benchmark: chapter for chapter in contents(bank_runs).chapters}
    assert [table.kind for table in chapters["digits"].tables] == [
        "summary", "final", "adapted", "experts", "matrix", "routing"
    ]  # fmt: skip
    assert {row.name for table in chapters["digits"].tables[3::2] for row in table.rows} == {"aad (carry bank)"}


def test_a_run_that_began_with_a_bank_has_empty_cells_with_a_reason(tmp_path: Path) -> None:
    folder = write_bank_run(tmp_path / "run")
    facts = {"known": ["print", "old"], "sent": [50, 50], "mixed": 0, "unknown": 0, "crossfitted": False}
    add_records(folder, [{"kind": "routing", "stage": 0, "domain": "print", **facts}])
    (table,) = expert_tables(group_runs([read_run(folder)]).sections)
    assert cell(table, "hand", "own expert").values == (0.76,)
    for part, title in (("hand", "base"), ("print", "own expert"), ("average", "own expert")):
        assert cell(table, part, title).values == ()
        assert "began with a bank" in cell(table, part, title).reason
    assert "- base: not measured, because the run began with a bank" in render_report([read_run(folder)], "md")


def test_banks_with_other_experts_share_a_table(tmp_path: Path) -> None:
    first, second = write_bank_run(tmp_path / "a"), write_bank_run(tmp_path / "b", settings={"adapt": {"lr": 1}})
    records = (second / "records.jsonl").read_text(encoding="utf-8")
    (second / "records.jsonl").write_text(records.replace('"known": ["print"', '"known": ["source"'), encoding="utf-8")
    (table,) = routing_tables(group_runs([read_run(first), read_run(second)]).sections)
    assert titles_of(table) == ["print", "colour", "hand", "source", "mixed", "unknown"]
    print_column, source_column = ([row.cells[place].reason for row in table.rows] for place in (0, 3))
    assert sorted(print_column) == sorted(source_column) == [""] * 3 + ["the bank has no such expert"] * 3


def test_a_bank_whose_records_lack_a_domain_has_no_numbers(tmp_path: Path) -> None:
    folder = write_bank_run(tmp_path / "run")
    lines = (folder / "records.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if '"kind": "routing", "stage": 2, "domain": "colour"' not in line]
    assert len(kept) == len(lines) - 1
    (folder / "records.jsonl").write_text("".join(kept), encoding="utf-8")
    assert "the routing of some domains is missing from its records" in render_report([read_run(folder)], "md")


@pytest.mark.parametrize("format", FORMATS)
def test_a_damaged_record_of_routing_is_a_reason(tmp_path: Path, format: str) -> None:
    folder = write_bank_run(tmp_path / "run")
    write_run(tmp_path / "source", SOURCE[0], label="source")
    add_records(folder, [{"kind": "routing", "stage": 2, "domain": "print", "known": ["print"], "sent": []}])
    assert "damaged records" in render_report(find_runs([tmp_path]), format)


def test_the_terminal_says_what_routing_costs(bank_runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    average = "without a domain ID the average is {}%, with the true domains it would be {}%: routing costs {} points"
    print_tables(bank_runs)
    shown = capsys.readouterr().out
    assert "aad (carry bank): " + average.format("84.83 ± 1.18", "85.33 ± 0.94", "0.50 ± 0.24") in shown
    assert shown.count("routing costs") == 2  # a line for each bank, none for the source model
    print_run(next(run for run in bank_runs if run.seed == 1 and run.label != "source"))
    assert average.format("85.67", "86.00", "0.33") in capsys.readouterr().out
