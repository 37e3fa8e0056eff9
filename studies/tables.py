"""The tables of the studies, from reports as CSV: python studies/tables.py features.csv --into REPRODUCED.md"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Iterable
from pathlib import Path

COLUMNS = ("Average", "Adaptation", "Source drop", "Harmonic mean", "Pair accuracy", "Pair drop")
RULES = ("last", "interpolate 0.25", "interpolate 0.5", "interpolate 0.75", "along 0.5", "auto")

# A line of the report. A row of a table over all chains: column -> percent.
Line = dict[str, str]
Row = dict[str, float]


def read(report: Path) -> list[Line]:
    """The lines of a report that have a number."""
    with report.open(newline="") as file:
        return [line for line in csv.DictReader(file) if line["mean"]]


def single_targets(lines: list[Line]) -> dict[str, dict[str, tuple[float, float]]]:
    """Label -> pair -> accuracy on the target, drop on the source; the first stage of a chain is one too."""
    keys = "table", "chain", "row", "part", "column"
    percent = {tuple(line[key] for key in keys): 100 * float(line["mean"]) for line in lines}
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for (table, chain, row, part, column), accuracy in percent.items():
        source, *targets = chain.split(" > ")
        if column not in targets[:1]:
            continue
        if table == "final" and len(targets) == 1:
            drop = percent["summary", chain, row, "", "Source drop"]
        elif table == "matrix" and part == f"after {column}":
            drop = percent[table, chain, row, "source model", source] - percent[table, chain, row, part, source]
        else:
            continue
        found.setdefault(row, {})[f"{source} → {column}"] = accuracy, drop
    return found


def all_chains(lines: list[Line]) -> dict[str, Row]:
    """The table over all chains, with the means over their first stages: rows by their label."""
    rows: dict[str, Row] = {}
    for line in lines:
        if line["table"] == "chains":
            row = rows.setdefault(line["row"], {"seeds": len(line["seeds"].split())})
            row[line["column"]] = 100 * float(line["mean"])
            if line["spread"]:
                row[f"± {line['column']}"] = 100 * float(line["spread"])
    pairs = single_targets(lines)
    for name, row in rows.items():
        accuracy, drop = (sum(values) / len(values) for values in zip(*pairs[name].values(), strict=True))
        row |= {"Pair accuracy": accuracy, "Pair drop": drop}
    return rows


def chain_table(lines: list[Line], kind: str) -> list[list[str]]:
    """A table of the only chain of several targets as the report has it: mean ± spread, the best ones bold."""
    rows: dict[str, dict[str, str]] = {}
    for line in lines:
        if line["table"] == kind and line["chain"].count(" > ") > 1:
            numbers = [f"{100 * float(line[name]):.2f}" for name in ("mean", "spread") if line[name]]
            row = rows.setdefault(line["row"], {"seeds": f"{len(line['seeds'].split())}"})
            row[line["column"]] = _bold(" ± ".join(numbers), bool(line["best"]))
    return [["method", *next(iter(rows.values()))], *([label, *row.values()] for label, row in rows.items())]


def pairs_table(lines: list[Line]) -> list[list[str]]:
    """Methods by pairs: accuracy on the target | drop on the source; the best accuracies bold."""
    found = single_targets(lines)
    pairs = sorted({pair for cells in found.values() for pair in cells})
    best = {pair: max(cells[pair][0] for cells in found.values() if pair in cells) for pair in pairs}
    table = [["method", *pairs]]
    for label, cells in found.items():
        shown = dict.fromkeys(pairs, "")
        for pair, (accuracy, drop) in cells.items():
            shown[pair] = f"{_bold(f'{accuracy:.1f}', accuracy == best[pair])} \\| {drop:.1f}"
        table.append([label, *shown.values()])
    return table


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
    shown = " \\| ".join([_bold(first, (row["seeds"], row["Average"]) == best), *others])
    return shown if row["seeds"] == most else f"{shown} ({row['seeds']:g} seeds)"


def _bold(text: str, best: bool) -> str:
    return f"**{text}**" if best else text


def list_table(rows: dict[str, Row], pattern: str) -> list[list[str]]:
    """The rows whose label fits, the best harmonic mean first: mean over seeds and chains ± spread over seeds."""
    found = [(label, row) for label, row in rows.items() if re.fullmatch(pattern, label)]
    found.sort(key=lambda pair: -pair[1]["Harmonic mean"])
    lines = [
        [f"`{label}`", f"{row['seeds']:g}", *(_with_spread(row, name) for name in COLUMNS)] for label, row in found
    ]
    return [["row", "seeds", *COLUMNS], *lines]


def _with_spread(row: Row, column: str) -> str:
    spread = row.get(f"± {column}")
    return f"{row[column]:.2f}" if spread is None else f"{row[column]:.2f} ± {spread:.2f}"


def markdown(table: Iterable[list[str]]) -> str:
    """A table with its numbers to the right."""
    head, *lines = table
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---", *["--:"] * (len(head) - 1)], *lines))


LISTS = {
    "which CoSDA": r"source|cosda( \((paper|authors)\))?( \[(?!.*adapt\.statistics).*\])?",
    "ablations": r"cosda \(paper(, no-.*)?\)",
    "statistics and rates": r"(bn|shot(\+\+)?|nrc|aad|dac|edgemix|gsfda|cotta|cosda \(paper\)|cosda\+\w+)"
    r"( \[(adapt\.statistics|method\.encoder_rate)=[^\[]*\])?",
}


def tables(report: Path) -> dict[str, str]:
    """Name -> table, of all studies on the data of a report: `features: ablations`."""
    lines = read(report)
    rows = all_chains(lines)
    made: dict[str, list[list[str]]] = {}
    if rows:
        made = {"the carry rule": carry_table(rows)} | {study: list_table(rows, fits) for study, fits in LISTS.items()}
    elif any(line["chain"].count(" > ") > 1 for line in lines):
        made = {"the chain": chain_table(lines, "summary"), "after the chain": chain_table(lines, "final")}
    made["single targets"] = pairs_table(lines)
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
    parser.add_argument("--only", help="one study, where the runs of the others are not at hand: 'which CoSDA'")
    asked = parser.parse_args()
    made = {name: table for report in asked.reports for name, table in tables(report).items()}
    if asked.only:
        made = {name: table for name, table in made.items() if name.endswith(f": {asked.only}")}
    if asked.into:
        asked.into.write_text(put_into(asked.into.read_text(), made))
    else:
        print("\n\n".join(f"### {name}\n\n{table}" for name, table in made.items()))
