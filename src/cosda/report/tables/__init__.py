"""All kinds of table by the name that the CSV uses, in the order of a report."""

from __future__ import annotations

from cosda.registry import Registry
from cosda.report.tables.ablations import ABLATIONS
from cosda.report.tables.adapted import ADAPTED
from cosda.report.tables.base import TableKind
from cosda.report.tables.chains import CHAINS
from cosda.report.tables.classes import CLASSES
from cosda.report.tables.experts import EXPERTS
from cosda.report.tables.final import FINAL
from cosda.report.tables.matrix import MATRIX
from cosda.report.tables.pairs import PAIRS
from cosda.report.tables.routing import ROUTING
from cosda.report.tables.rules import RULES
from cosda.report.tables.summary import SUMMARY

__all__ = ["TABLES", "TableKind"]

TABLES: Registry[TableKind] = Registry(
    "table",
    {
        "pairs": PAIRS,
        "chains": CHAINS,
        "classes": CLASSES,
        "ablations": ABLATIONS,
        "rules": RULES,
        "summary": SUMMARY,
        "final": FINAL,
        "adapted": ADAPTED,
        "experts": EXPERTS,
        "matrix": MATRIX,
        "routing": ROUTING,
    },
    group="cosda.tables",
    of=TableKind,
)
