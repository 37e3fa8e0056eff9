"""What a log writer is, and the rows of numbers that it takes. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from cosda import metrics
from cosda.files import Json
from cosda.records.folder import RunFolder
from cosda.records.run import Run


@dataclass
class Row:
    """The numbers of one epoch, or of the model that a stage handed on (``epoch`` is None)."""

    stage: int
    epoch: int | None
    step: int  # epochs so far over the whole chain; for a model handed on, its stage
    values: dict[str, float] = field(default_factory=dict)

    @property
    def axis(self) -> str:
        """What `step` counts."""
        return "stage" if self.epoch is None else "epoch"


def rows(run: Run) -> list[Row]:
    """All numbers of a run in the order in which they came; the same run gives the same rows."""
    found: dict[tuple[int, int | None], Row] = {}
    epochs = 0
    for record in run.records:
        values = _values(record, str(run.config.get("headline", "top1")))
        if not values:
            continue
        stage, epoch = record["stage"], record.get("epoch")  # a stage's routing has none
        if record["kind"] == "chosen":  # told of the model handed on; as a place on the axis of the epochs
            values, epoch = {"chosen/epoch": found[stage, epoch].step}, None
        if (stage, epoch) not in found:
            epochs += epoch is not None
            found[stage, epoch] = Row(stage, epoch, stage if epoch is None else epochs)
        found[stage, epoch].values.update(values)
    for facts in run.timing:  # an epoch that was done twice has two lines: the last one holds
        if row := found.get((facts["stage"], facts["epoch"])):
            row.values.update(_cost(facts))
    if run.config["kind"] == "adapt" and (summary := run.summary())["accuracy"] is not None:
        last = found[len(run.domains) - 1, None].values
        last.update({f"summary/{name}": summary[name] for name in metrics.MEASURES if summary[name] is not None})
    return list(found.values())


def _values(record: Json, headline: str) -> dict[str, float]:
    """The numbers of one record; none for a record that names a file."""
    match record["kind"]:
        case "loss":
            terms = _named("loss", record["terms"]) | _named("rate", record["rates"])
            return {"stage": record["stage"], **terms, "cost/passes": record["passes"]}
        case "accuracy" | "alternative" as kind:
            group = "accuracy" if record["epoch"] is not None else "handed_on"
            group += f"_{record['statistics']}" if kind == "alternative" else ""
            name = record["domain"] if record["split"] == "test" else f"{record['domain']} ({record['split']})"
            return {f"{group}/{name}": metrics.accuracy(headline, record["correct"], record["images"])}
        case "validation":
            return _named("validation", record["scores"])
        case "routing":
            sent = zip(record["known"], record["sent"], strict=True)
            return {f"routing/{record['domain']} to {name}": count / sum(record["sent"]) for name, count in sent}
        case "chosen" if record["epoch"] is not None:
            return {"chosen/epoch": record["epoch"]}
    return {}


def _named(group: str, values: Json) -> dict[str, float]:
    return {f"{group}/{name}": value for name, value in values.items()}


def _cost(facts: Json) -> dict[str, float]:
    seconds = facts["seconds"]
    return {
        "cost/seconds": seconds,
        "cost/images_per_second": facts["images"] / seconds if seconds else 0.0,
        "cost/peak_mib": facts["peak_bytes"] / 2**20,
    }


class Writer:
    """Takes the rows of one run folder. The library that it needs is never imported unless it is asked for."""

    title: ClassVar[str] = ""
    library: ClassVar[str | None] = None  # that must be installed, by the name of its module and of our extra
    place: str  # where its work can be seen

    def __init__(self, folder: RunFolder) -> None:
        raise NotImplementedError

    def send(self, all_rows: Sequence[Row]) -> None:
        """Write the rows that are new."""
        raise NotImplementedError

    def close(self, finished: bool) -> None:
        """Write what is left in memory, and end."""
