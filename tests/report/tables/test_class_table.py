"""Tables by class, with cells computed by hand."""

from __future__ import annotations

import pytest
from cells import both_of, cell_of, titles_of

from cosda.records.run import Run
from cosda.report.model.groups import group_runs
from cosda.report.tables.classes import class_tables


def test_classes(paper_runs: list[Run]) -> None:
    (table,) = class_tables(group_runs(paper_runs).sections)
    assert titles_of(table) == ["plane", "bcycl", "bus", "average"]
    assert cell_of(table, "cosda", "plane").values == (19 / 20, 18 / 20)
    assert cell_of(table, "cosda", "plane", "drop").values == pytest.approx((0, 1 / 20))
    assert cell_of(table, "cosda", "bus", "drop").values == pytest.approx((5 / 20, 5 / 20))
    bus = cell_of(table, "cosda", "bus")
    assert (bus.mean, bus.reason) == (None, "no images of this class are measured")
    # The mean is over the classes that occur, as the headline says.
    assert cell_of(table, "cosda", "average").values == pytest.approx(((19 + 17) / 40, (18 + 18) / 40))
    assert cell_of(table, "cosda", "average", "drop").values == pytest.approx((5 / 60, 6 / 60))


def test_classes_beside_the_paper(paper_runs: list[Run]) -> None:
    (table,) = class_tables(group_runs(paper_runs).sections)
    assert [cell.published for cell in both_of(table, "cosda", "plane")] == [0.9504, 0.0019]
    assert [cell.published for cell in both_of(table, "cosda (no-teacher)", "average")] == [0.6488, 0.8538]
    assert cell_of(table, "source", "average", "drop").published is None


def test_only_what_is_measured_by_class_has_such_a_table(runs: list[Run]) -> None:
    tables = class_tables(group_runs(runs).sections)
    assert [table.benchmark for table in tables] == ['a&b"c']
