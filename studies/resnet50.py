"""The paper's Table 2 on the paper's network, from the runs of `resnet50.sh`, with the paper's numbers below ours.

    python studies/resnet50.py out/studies/resnet50                          # prints the table
    python studies/resnet50.py out/studies/resnet50 --into REPRODUCED.md     # puts it into the page

Each cell is *accuracy on the target (gain over the source model) | drop on the source*. Gains are there because the
source models differ: ours and the paper's begin with other ImageNet weights. Rows of a method: the last epoch; the same
weights with the other BatchNorm statistics; the epoch that is best by the target's test labels (its drop is known where
`adapt.measure=source` was asked for, or where it is the last one); and the paper.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tables import markdown, put_into

from cosda import metrics
from cosda.errors import CosdaError
from cosda.records.run import Run, find_runs
from cosda.records.selection import candidates, choose, reselect
from cosda.report.model.groups import group_runs
from cosda.report.model.published import label_of, published

Pair = tuple[str, ...]

LAST, OTHER, ORACLE, PAPER = "last epoch", "other statistics", "best epoch (oracle)", "the paper"


@dataclass(frozen=True)
class Cell:
    """Of a single target, as fractions; a drop that was not measured is None."""

    accuracy: float
    before: float  # of the source model
    drop: float | None

    def __str__(self) -> str:
        gain = "" if self.accuracy == self.before else f" ({100 * (self.accuracy - self.before):+.2f})"
        drop = "–" if self.drop is None else f"{100 * self.drop:.2f}"
        return f"{100 * self.accuracy:.2f}{gain} \\| {drop}"


def cells(run: Run) -> dict[str, Cell]:
    """What there is of a finished run with one target, by the kind of row."""
    found = {LAST: _cell(run.matrix())}
    if run.config["method"] != "source":
        found |= {OTHER: _cell(run.matrix(other=True)), ORACLE: _oracle(run)}
    return {kind: cell for kind, cell in found.items() if cell is not None}


def _cell(matrix: metrics.Matrix | None) -> Cell | None:
    return None if matrix is None else Cell(matrix[1][1], matrix[0][1], metrics.source_drop(matrix))


def _oracle(run: Run) -> Cell | None:
    """Of the epoch that the target's test labels prefer, where what is handed on is the model of an epoch."""
    epochs = candidates(run, 1)
    if not epochs or any(record["rule"] != "last" for record in run.of("carried", stage=1)):
        return None
    best, last = choose("oracle", epochs), run.matrix()
    if best is epochs[-1]:
        return _cell(last)
    try:
        return _cell(reselect(run, "oracle").matrix())
    except CosdaError:  # the source was not measured after that epoch
        return None if best.accuracy is None or last is None else Cell(best.accuracy, last[0][1], None)


def table(runs: Sequence[Run]) -> list[list[str]]:
    """Methods by pairs, rows as the report names them; below a method's own rows those of the paper, once for all."""
    found: dict[str, dict[str, dict[Pair, dict[str, Cell]]]] = {}
    benchmarks: dict[Pair, str] = {}
    for section in group_runs(runs).sections:
        for group in section.finished:
            run = group.counted[0]  # the study has one seed
            found.setdefault(label_of(run), {}).setdefault(group.name, {})[section.domains] = cells(run)
            benchmarks[section.domains] = section.benchmark
    pairs = sorted(benchmarks)
    lines = [["method", "", *(" → ".join(pair) for pair in pairs)]]
    for method, rows in sorted(found.items()):
        for name, known in sorted(rows.items(), key=lambda row: len(row[0])):
            for kind in (LAST, OTHER, ORACLE):
                lines += _line(name if kind == LAST else "", kind, [known.get(pair, {}).get(kind) for pair in pairs])
        lines += _line("", PAPER, [_printed(benchmarks[pair], pair, method) for pair in pairs])
    return lines


def _printed(benchmark: str, pair: Sequence[str], method: str) -> Cell | None:
    found, source = published(benchmark, pair, method), published(benchmark, pair, "source")
    if found.accuracy is None or source.accuracy is None:
        return None
    return Cell(found.accuracy, source.accuracy, 0.0 if method == "source" else found.drop)


def _line(label: str, kind: str, row: Sequence[Cell | None]) -> list[list[str]]:
    return [[label, kind, *("" if cell is None else str(cell) for cell in row)]] if any(row) else []


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="the folder of the runs")
    parser.add_argument("--into", type=Path, help="a Markdown file with the line <!-- resnet50: beside the paper -->")
    asked = parser.parse_args()
    pairs = [run for run in find_runs([asked.runs]) if len(run.domains) == 2]
    made = {"resnet50: beside the paper": markdown(table(pairs))}
    if asked.into:
        asked.into.write_text(put_into(asked.into.read_text(), made))
    else:
        print("\n".join(made.values()))
