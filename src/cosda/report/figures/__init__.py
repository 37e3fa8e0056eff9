"""All kinds of figure that a section may have, in the order of the page."""

from __future__ import annotations

from cosda.registry import Registry
from cosda.report.figures.base import FigureKind
from cosda.report.figures.classes import CLASSES
from cosda.report.figures.confusions import CONFUSIONS
from cosda.report.figures.epochs import EPOCHS
from cosda.report.figures.features import FEATURES
from cosda.report.figures.matrices import MATRICES
from cosda.report.figures.routing import ROUTING
from cosda.report.figures.stages import STAGES
from cosda.report.figures.trade_off import TRADE_OFF

__all__ = ["FIGURES", "FigureKind"]

FIGURES: Registry[FigureKind] = Registry(
    "figure",
    {
        "trade-off": TRADE_OFF,
        "stages": STAGES,
        "matrices": MATRICES,
        "routing": ROUTING,
        "epochs": EPOCHS,
        "classes": CLASSES,
        "confusions": CONFUSIONS,
        "features": FEATURES,
    },
    group="cosda.figures",
    of=FigureKind,
)
