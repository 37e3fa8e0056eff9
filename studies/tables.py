"""The tables of the studies, from reports as CSV: python studies/tables.py features.csv --into REPRODUCED.md"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Iterable
from pathlib import Path

COLUMNS = ("Average", "Adaptation", "Source drop", "Harmonic mean", "Pair accuracy", "Pair drop")
RULES = ("last", "interpolate 0.25", "interpolate 0.5", "interpolate 0.75", "along 0.5", "auto")

# A row of the report: column -> percent.
Row = dict[str, float]


def read(path: Path) -> dict[str, Row]:
    """The table over all chains, and their first stages, which are the pairs: rows by their label."""
    rows: dict[str, Row] = {}
    pairs: dict[str, dict[str, list[float]]] = {}
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            if not line["mean"]:
                continue
            name, percent = line["row"], 100 * float(line["mean"])
            if line["table"] == "chains":
                rows.setdefault(name, {"seeds": len(line["seeds"].split())})[line["column"]] = percent
            elif line["table"] == "matrix":
                source, first, *_ = line["chain"].split(" > ")
                found = pairs.setdefault(name, {"before": [], "left": [], "target": []})
                match line["part"], line["column"]:
                    case "source model", domain if domain == source:
                        found["before"].append(percent)
                    case after, domain if after == f"after {first}" and domain in (source, first):
                        found["left" if domain == source else "target"].append(percent)
    for name, row in rows.items():
        before, left, target = (sum(values) / len(values) for values in pairs[name].values())
        row |= {"Pair accuracy": target, "Pair drop": before - left}
    return rows


def carry_table(rows: dict[str, Row]) -> list[list[str]]:
    """Methods by carry rules: average | adaptation | source drop.

    Bold is the best average of the method over as many seeds as it has anywhere. A cell of fewer seeds than others have
    says so.
    """
    table, most = [["method", *RULES]], max(row["seeds"] for row in rows.values())
    for method in [label for label in rows if _with_rule(label, "interpolate 0.5") in rows]:
        found = [rows.get(_with_rule(method, rule)) for rule in RULES]
        best = max((row["seeds"], row["Average"]) for row in found if row)
        table.append([method, *("" if row is None else _cell(row, best, most) for row in found)])
    return table


def _with_rule(label: str, rule: str) -> str:
    """The label of a method with a carry rule: `cosda (paper)` becomes `cosda (paper, carry auto)`."""
    if rule == "last":
        return label
    return f"{label[:-1]}, carry {rule})" if label.endswith(")") else f"{label} (carry {rule})"


def _cell(row: Row, best: tuple[float, float], most: float) -> str:
    first, *others = (f"{row[column]:.1f}" for column in COLUMNS[:3])
    shown = " \\| ".join([f"**{first}**" if (row["seeds"], row["Average"]) == best else first, *others])
    return shown if row["seeds"] == most else f"{shown} ({row['seeds']:g} seeds)"


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


LISTS = {
    "which CoSDA": r"source|cosda \((paper|authors)\)( \[(?!.*adapt\.statistics).*\])?",
    "ablations": r"cosda \(paper(, no-.*)?\)",
    "statistics and rates": r"(bn|shot|nrc|aad|dac|gsfda|cotta|cosda \(paper\)|cosda\+\w+)"
    r"( \[(adapt\.statistics|method\.encoder_rate)=[^\[]*\])?",
}


def tables(report: Path) -> dict[str, str]:
    """Name -> table, of all studies on the data of a report: `features: ablations`."""
    rows = read(report)
    made = {"the carry rule": carry_table(rows)} | {study: list_table(rows, fits) for study, fits in LISTS.items()}
    return {f"{report.stem}: {study}": markdown(table) for study, table in made.items()}


def put_into(text: str, made: dict[str, str]) -> str:
    """The text with new tables below the lines that name them, `<!-- features: ablations -->`."""
    for name, table in made.items():
        before, marker, after = text.partition(f"<!-- {name} -->\n\n")
        if marker:
            text = before + marker + table + "\n" + re.sub(r"\A(\|.*\n)*", "", after)
    return text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reports", nargs="+", type=Path, help="what `cosda report -o NAME.csv` wrote")
    parser.add_argument("--into", type=Path, help="a Markdown file with lines such as <!-- features: ablations -->")
    asked = parser.parse_args()
    made = {name: table for report in asked.reports for name, table in tables(report).items()}
    if asked.into:
        asked.into.write_text(put_into(asked.into.read_text(), made))
    else:
        print("\n\n".join(f"### {name}\n\n{table}" for name, table in made.items()))
