"""The table of selection rules, with cells computed by hand; reports under another rule."""

from __future__ import annotations

from pathlib import Path

import pytest
from cells import cell_of, sections_of
from stored_runs import WriteRun, office_epochs

from cosda.errors import CosdaError
from cosda.records.run import Run, find_runs
from cosda.report import render_report
from cosda.report.model.groups import group_runs
from cosda.report.tables.rules import rule_tables


def test_rules_by_hand(paper_runs: list[Run]) -> None:
    (table,) = rule_tables(group_runs(paper_runs).sections)
    assert [row.name for row in table.rows] == [
        "last", "information", "snd", "nuclear_norm", "entropy", "agreement", "oracle"
    ]  # fmt: skip
    # 40 finished runs that were trained, each with accuracies t - 3, t + 1, t over its three epochs; in two of them
    # t is 100, and so is the best.
    assert cell_of(table, "last", "stages").mean == 40
    assert cell_of(table, "last", "regret").mean == pytest.approx(0.38 / 40)
    assert cell_of(table, "snd", "regret").mean == 0
    assert cell_of(table, "entropy", "regret").mean == pytest.approx((38 * 0.04 + 2 * 0.03) / 40)
    assert cell_of(table, "oracle", "regret").mean == 0
    # Information ranks the epochs 1, 2, 3 and accuracy 1, 3, 2: 1 - 6 * 2 / 24. With the tie 1, 2.5, 2.5 it is
    # sqrt(3) / 2.
    expected = (38 * 0.5 + 2 * 3**0.5 / 2) / 40
    assert cell_of(table, "information", "rank correlation").mean == pytest.approx(expected)
    assert cell_of(table, "agreement", "rank correlation").mean is None
    assert cell_of(table, "last", "rank correlation").reason == "it has no score"


def test_the_oracle_takes_no_part_in_the_contest(paper_runs: list[Run]) -> None:
    (table,) = rule_tables(group_runs(paper_runs).sections)
    assert [row.name for row in table.rows if row.cells[0].best] == ["snd"]


def test_runs_without_scores_have_no_table(runs: list[Run]) -> None:
    assert rule_tables(group_runs(runs).sections) == []


def test_a_single_epoch_is_no_choice(tmp_path: Path, make_run: WriteRun) -> None:
    epochs = office_epochs(80, 90)[-1:]
    make_run(tmp_path / "run", [[95, 60], [90, 80]], label="nrc", domains=["a", "b"], epochs=epochs)
    assert rule_tables(group_runs(find_runs([tmp_path])).sections) == []


def test_a_report_under_another_rule(paper_runs: list[Run]) -> None:
    for rule, epoch in (("snd", 1), ("entropy", 0), ("last", 2)):
        sections = [s for s in sections_of(paper_runs, "office31", rule) if s.domains == ("amazon", "dslr")]
        (section,) = sections
        assert section.select == rule
        target, source, _ = office_epochs(87, 94)[epoch]
        group = next(group for group in section.groups if group.name == "cosda")
        assert group.matrices[0][1] == pytest.approx([source / 100, target / 100])


def test_a_chain_keeps_its_place_under_another_rule_and_says_why(paper_runs: list[Run]) -> None:
    (section,) = sections_of(paper_runs, "officehome", "snd")
    assert section.select == "snd"
    assert section.groups[0].counted == ()
    assert "chain of several targets" in section.groups[0].problems[0].reason
    text = render_report(paper_runs, "md", "snd")
    assert "officehome: Art → Clipart → Product → Real World (rule: snd)" in text
    assert "run it with --select snd" in text


def test_an_interrupted_run_is_not_chosen_from(paper_runs: list[Run]) -> None:
    (section,) = [s for s in sections_of(paper_runs, "office31", "oracle") if s.domains == ("webcam", "amazon")]
    nrc = next(group for group in section.groups if group.name == "nrc")
    assert [problem.reason[:12] for problem in nrc.problems] == ["not finished"]


def test_a_run_without_scores_says_so(runs: list[Run]) -> None:
    found = group_runs(runs, "information").sections
    assert {section.select for section in found} == {"information"}
    hostile = next(section for section in found if len(section.domains) == 2)
    assert "no 'information'" in hostile.groups[0].problems[0].reason


@pytest.mark.parametrize("format", ["md", "csv", "tex"])
def test_an_unknown_rule(runs: list[Run], format: str) -> None:
    with pytest.raises(CosdaError, match=r"unknown selection rule 'orcale'.*Did you mean 'oracle'"):
        render_report(runs, format, "orcale")
