"""Which experts of a domain bank the images of each domain went to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cosda.report.model.groups import Group, Section
from cosda.report.model.table import Cell, Column, Row, Table
from cosda.report.tables.base import TableKind, table_of

NOTE = (
    "Of the test images of each domain, the share that went to each expert after the last stage. The bank was not told "
    "their domain. Mixed: several experts answered, because none was clearly the right one; the image counts for the "
    "most likely one. Unknown: the image resembles no known domain."
)
NO_EXPERT = "the bank has no such expert"


def routing_tables(sections: Sequence[Section]) -> list[Table]:
    """A table for each section with a domain bank."""
    return [_table(section) for section in sections if section.banks]


def _table(section: Section) -> Table:
    runs = [run for group in section.banks for run in group.counted]
    names = list(dict.fromkeys(name for run in runs for sent in run.routing().values() for name in sent.experts))
    columns = [Column(name, "sent", larger_is_better=None) for name in names]
    columns += [Column(name, name, larger_is_better=None) for name in ("mixed", "unknown")]
    rows = [_row(group, domain, names) for group in section.banks for domain in section.domains]
    table = table_of(section, "Routing: images of each domain sent to each expert", columns, rows)
    # It is long, and there are heat maps of it.
    return replace(table, part_title="domain", folded=True, notes=(NOTE, _on_crossfitting(section)))


def _row(group: Group, domain: str, names: Sequence[str]) -> Row:
    found = [run.routing()[domain] for run in group.counted]
    shares = [tuple(sent.experts[name] for sent in found if name in sent.experts) for name in names]
    shares += [tuple(sent.mixed for sent in found), tuple(sent.unknown for sent in found)]
    cells = [Cell(values, "" if values else NO_EXPERT, group.counted) for values in shares]
    return Row(group.name, tuple(cells), group.seeds, domain)


def _on_crossfitting(section: Section) -> str:
    """Whether the router had seen the images that it was measured on."""
    runs = [run for group in section.banks for run in group.counted]
    own = [name for name in section.domains if all(run.routing()[name].crossfitted for run in runs)]
    others = [name for name in section.domains if name not in own]
    if not own and section.protocol == "inductive":
        return "Not cross-fitted: the router was fitted on training images and measured on test images."
    notes = []
    if own:
        notes.append(f"Cross-fitted: {', '.join(own)}. The router that an image was sent by was fitted without it.")
    if others:
        notes.append(f"Not cross-fitted: {', '.join(others)}. The router may have been fitted on the same images.")
    return " ".join(notes)


ROUTING = TableKind("which experts of a bank the images of each domain went to", routing_tables, per_section=True)
