"""The tables of the studies in REPRODUCED.md, from reports as CSV: python studies/tables.py out/studies/features.csv"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable
from pathlib import Path

COLUMNS = ("Average", "Adaptation", "Source drop", "Harmonic mean")
RULES = ("last", "interpolate 0.25", "interpolate 0.5", "interpolate 0.75", "along 0.5", "auto")

# A row of the report: column -> percent.
Row = dict[str, float]


def read(path: Path) -> dict[str, Row]:
    """The table over all chains: rows by their label."""
    rows: dict[str, Row] = {}
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            if line["table"] == "chains" and line["mean"]:
                row = rows.setdefault(line["row"], {"seeds": len(line["seeds"].split())})
                row[line["column"]] = 100 * float(line["mean"])
    return rows


def carry_table(rows: dict[str, Row]) -> list[list[str]]:
    """Methods by carry rules: average | adaptation | source drop; bold is the best average of the method."""
    table = [["method", *RULES]]
    for method in [label for label in rows if f"{label} (carry interpolate 0.5)" in rows]:
        found = [rows.get(method if rule == "last" else f"{method} (carry {rule})") for rule in RULES]
        best = max(row["Average"] for row in found if row)
        table.append([method, *("" if row is None else _cell(row, row["Average"] == best) for row in found)])
    return table


def _cell(row: Row, bold: bool) -> str:
    first, *others = (f"{row[column]:.1f}" for column in COLUMNS[:3])
    return " \\| ".join([f"**{first}**" if bold else first, *others])


def list_table(rows: dict[str, Row], pattern: str) -> list[list[str]]:
    """The rows whose label fits, the best harmonic mean first."""
    found = [(label, row) for label, row in rows.items() if re.fullmatch(pattern, label)]
    found.sort(key=lambda pair: -pair[1]["Harmonic mean"])
    lines = [[f"`{label}`", f"{row['seeds']:g}", *(f"{row[name]:.2f}" for name in COLUMNS)] for label, row in found]
    return [["row", "seeds", *COLUMNS], *lines]


def markdown(table: Iterable[list[str]]) -> str:
    """A table with its numbers to the right."""
    head, *lines = table
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---", *["--:"] * (len(head) - 1)], *lines))


STUDIES = {
    "which CoSDA": r"source|cosda( \(authors\))?( \[(?!.*adapt\.statistics).*\])?",
    "ablations": r"cosda( \(no-.*\))?",
    "statistics and rates": r"(bn|shot|nrc|aad|dac|gsfda|cotta|cosda(\+\w+)?)"
    r"( \[(adapt\.statistics|method\.encoder_rate)=[^\[]*\])?",
}

if __name__ == "__main__":
    for name in sys.argv[1:]:
        rows = read(Path(name))
        print(f"### {name}: the carry rule\n\n{markdown(carry_table(rows))}\n")
        for study, pattern in STUDIES.items():
            print(f"### {name}: {study}\n\n{markdown(list_table(rows, pattern))}\n")
