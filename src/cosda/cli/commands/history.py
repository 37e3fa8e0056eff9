"""cosda history: how a model came about, and where its predecessors lie."""

from __future__ import annotations

from cosda.cli.options import AsJson, ModelFolder
from cosda.cli.tables import print_json


def history(model: ModelFolder, as_json: AsJson = False) -> None:
    """Show how a model came about.

    The chain of steps that led to it, oldest first, with verdict and estimated accuracy before and after; then the
    folder of each step's model, and whether it is still there. It is read from the model's own lineage.

    Model folders are never changed after they were written, so going back is using the older folder.

    Example:  cosda history adapted-model
    """
    from cosda.cli.tables import print_history
    from cosda.models.history import history as read_history

    steps = read_history(model)
    if as_json:
        print_json({"model": str(model), "steps": [step.as_json() for step in steps]})
    else:
        print_history(steps)
