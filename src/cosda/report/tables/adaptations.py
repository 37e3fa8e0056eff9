"""What is known of adaptations without labels: all of them in one table, and the numbers of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cosda.records.verdict import Counted, Estimate, Said, Verdict
from cosda.report.model import wording
from cosda.report.model.adaptations import Adaptation
from cosda.report.model.table import Cell, Column, Row, Table

MOST_CLASSES = 40  # of more, those whose images change most are shown
Number = Estimate | Counted | float | None
UNREAD, NOT_COMPARED = "the verdict cannot be read", "training was stopped before there was anything to compare"
NO_INTERVAL = "it gives no interval"
NOT_ASKED, NOTHING_KNOWN = "no labelled images were given", "no earlier domain has a profile"
CHECK = "labelled images"


def change_of(before: float | None, after: float | None) -> float | None:
    """After minus before, where both are known."""
    return None if before is None or after is None else after - before


def known_agreement(verdict: Verdict) -> dict[str, float]:
    """The share of equal answers on what the model knew before, by domain."""
    return {name: share for name, share in verdict.agreement.items() if name != verdict.domain}


def overview(adaptations: Sequence[Adaptation]) -> list[Table]:
    """A row for each adaptation."""
    if not adaptations:
        return []
    columns = [
        _column("estimated before", "estimated_before"),
        _column("estimated after", "estimated_after"),
        _column("change", "estimated_change", signed=True),
        _column("risk", "risk", larger_is_better=False),
        _column("class changed", "changed", None),
        _column("agreement on what was known", "known_agreement"),
        _column("checked before", "checked_before"),
        _column("checked after", "checked_after"),
    ]
    rows = [Row(f"{one.domain} ({one.run.path.name})", tuple(_overview(one)), part=one.word) for one in adaptations]
    table = _table(adaptations[0], "adaptations", "Adaptations without labels", columns, rows)
    return [replace(table, domains=(), row_title="domain (run)", part_title="verdict")]


def _overview(adaptation: Adaptation) -> list[Cell]:
    verdict, runs = adaptation.verdict, (adaptation.run,)
    if verdict is None:
        return [Cell((), UNREAD, runs)] * 8
    estimates = [said.estimate.accuracy if said and said.estimate else None for said in (verdict.before, verdict.after)]
    known, check = known_agreement(verdict), verdict.check
    checked = (None, None) if check is None else (check.before.accuracy, check.after.accuracy)
    numbers = [
        *((value, wording.NO_ESTIMATE) for value in (*estimates, change_of(*estimates))),
        (verdict.risk, NOT_COMPARED),
        (verdict.changed, NOT_COMPARED),
        (min(known.values()) if known else None, NOTHING_KNOWN),
        *((value, NOT_ASKED) for value in checked),
    ]
    return [_cell(adaptation, value, reason) for value, reason in numbers]


def tables_of(adaptation: Adaptation) -> list[Table]:
    """The numbers of one adaptation: before and after, agreement, classes."""
    verdict = adaptation.verdict
    if verdict is None:
        return []
    more = (_agreement, _classes, _evidence)
    return [_before_and_after(adaptation, verdict), *(table for make in more for table in make(adaptation, verdict))]


def _before_and_after(adaptation: Adaptation, verdict: Verdict) -> Table:
    """The estimate, what each estimator says, the check and the confidence."""
    columns = [
        _column("before", "before"),
        _column("from", "before_low"),
        _column("to", "before_high"),
        _column("after", "after"),
        _column("from", "after_low"),
        _column("to", "after_high"),
        _column("change", "change", signed=True),
    ]
    sides = (verdict.before, verdict.after)
    found = [said.estimate if said is not None else None for said in sides]
    reason = NOT_COMPARED if verdict.before is None else wording.NO_ESTIMATE
    rows = [_sides(adaptation, "estimated accuracy", found, reason)]
    rows += [
        _sides(adaptation, f"by {name}", [one and one.estimators.get(name) for one in found], reason)
        for name in estimator_names(verdict)
    ]
    if verdict.check is not None:
        counted = (verdict.check.before, verdict.check.after)
        rows.append(_sides(adaptation, f"measured on {CHECK}", counted, NOT_ASKED))
    sure = [said.confidence if said is not None else None for said in sides]
    rows.append(_sides(adaptation, "mean confidence", sure, NOT_COMPARED))
    table = _table(adaptation, "verdict", "Before and after in numbers", columns, rows)
    notes: tuple[str, ...] = ("From and to: the interval of an estimate holds in nine of ten cases.",)
    if verdict.check is not None:
        exact = "The interval of the measured accuracy is exact (Clopper and Pearson, 95 %)."
        notes = (*notes, f"{verdict.check.after.images} {CHECK}: {wording.paired(verdict.check)}. {exact}")
    return replace(table, row_title="measure", notes=notes)


def _sides(adaptation: Adaptation, name: str, found: Sequence[Number], reason: str) -> Row:
    """A number before and after, each with its interval where it has one, and the change."""
    numbers: list[tuple[float | None, str]] = []
    for one in found:
        centre, low, high = (one, None, None) if isinstance(one, float | None) else (one.accuracy, one.low, one.high)
        numbers += [(centre, reason), (low, NO_INTERVAL), (high, NO_INTERVAL)]
    numbers.append((change_of(numbers[0][0], numbers[3][0]), reason))
    return Row(name, tuple(_cell(adaptation, value, why) for value, why in numbers))


def estimator_names(verdict: Verdict) -> list[str]:
    """All estimators that said something."""
    found = [said.estimate.estimators for said in (verdict.before, verdict.after) if said and said.estimate]
    return list(dict.fromkeys(name for estimators in found for name in estimators))


def _agreement(adaptation: Adaptation, verdict: Verdict) -> list[Table]:
    if not verdict.agreement:
        return []
    rows = [
        Row(f"{name} (new)" if name == verdict.domain else name, (_cell(adaptation, share, ""),))
        for name, share in verdict.agreement.items()
    ]
    title = "Agreement of the incoming and the adapted model"
    table = _table(adaptation, "agreement", title, [_column("same class", "agreement", None)], rows)
    note = "Share of images that both give the same class. For earlier domains, images made from their profiles."
    return [replace(table, row_title="domain", notes=(note,))]


def _classes(adaptation: Adaptation, verdict: Verdict) -> list[Table]:
    before, after = verdict.before, verdict.after
    if before is None or after is None:
        return []
    shown = most_moved(before, after)
    columns = [
        Column("before", "before", None, percent=False, decimals=0),
        Column("after", "after", None, percent=False, decimals=0),
        Column("change", "change", None, percent=False, signed=True, decimals=0),
    ]
    rows = []
    for i in shown:
        numbers = (before.classes[i], after.classes[i], after.classes[i] - before.classes[i])
        rows.append(Row(verdict.classes[i], tuple(_cell(adaptation, float(number), "") for number in numbers)))
    table = _table(adaptation, "predicted", "Images of each predicted class", columns, rows)
    left_out = len(verdict.classes) - len(shown)
    notes = (f"{left_out} more classes change less.",) if left_out else ()
    return [replace(table, row_title="class", folded=True, notes=notes)]


def _evidence(adaptation: Adaptation, verdict: Verdict) -> list[Table]:
    if not verdict.evidence:
        return []
    columns = [Column("value", "evidence", None, percent=False, decimals=3)]
    rows = [Row(name, (_cell(adaptation, value, ""),)) for name, value in verdict.evidence.items()]
    table = _table(adaptation, "evidence", "What the risk and the estimates rest on", columns, rows)
    return [replace(table, row_title="number", folded=True)]


def most_moved(before: Said, after: Said, most: int = MOST_CLASSES) -> list[int]:
    """The classes whose number of images changes most, in the model's order."""
    moved = [abs(b - a) for b, a in zip(before.classes, after.classes, strict=True)]
    return sorted(sorted(range(len(moved)), key=lambda i: (-moved[i], i))[:most])


def _column(title: str, measure: str, larger_is_better: bool | None = True, signed: bool = False) -> Column:
    return Column(title, measure, larger_is_better, signed=signed, decimals=1)


def _cell(adaptation: Adaptation, value: float | None, reason: str) -> Cell:
    return Cell((), reason, (adaptation.run,)) if value is None else Cell((value,), "", (adaptation.run,))


def _table(adaptation: Adaptation, kind: str, title: str, columns: Sequence[Column], rows: Sequence[Row]) -> Table:
    config: Mapping[str, object] = adaptation.run.config
    return Table(
        title=title,
        benchmark=str(config.get("benchmark", "")),
        domains=adaptation.chain,
        protocol=str(config.get("protocol", "")),
        headline="",
        select=str(config.get("select", "")),
        fingerprint=str(config.get("fingerprint", "")),
        columns=tuple(columns),
        rows=tuple(rows),
        kind=kind,
    )
