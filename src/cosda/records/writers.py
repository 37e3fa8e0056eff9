"""TensorBoard and Weights & Biases: optional writers that follow the records of a run while it goes on. No torch.

A run's records become *rows* of numbers, one for each finished epoch and one for each model handed on. A writer
takes the rows that it does not have yet, and only those that lie behind a checkpoint: they will never be done
again, so a run that was killed goes on without a gap and without a step that is written twice. A writer may be asked
for at any time; it then begins with the rows of the past. It changes no record and no number, and one that
fails is reported once and left out: the run goes on.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from cosda import metrics
from cosda.distributed import collectives
from cosda.errors import CosdaError, nearest
from cosda.files import Json, digest, flatten, write_json
from cosda.records.folder import RunFolder
from cosda.records.run import Run, read_run
from cosda.watch import Watcher

UPLOAD_SECONDS = 120.0  # what W&B gets at the end of a run; without a limit it would wait for its network for ever


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
        stage, epoch = record["stage"], record["epoch"]
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


class Writer(Protocol):
    """Takes the rows of one run folder."""

    place: str  # where its work can be seen

    def __init__(self, folder: RunFolder) -> None: ...

    def send(self, all_rows: Sequence[Row]) -> None:
        """Write the rows that are new."""

    def close(self, finished: bool) -> None:
        """Write what is left in memory, and end."""


class TensorBoard:
    """Event files in RUN/tensorboard: an event with the settings, and then one event for each row.

    A row is a single event because an event is in the file as a whole or not at all: what a killed process had
    written can be counted.
    """

    def __init__(self, folder: RunFolder) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        path = folder.path / "tensorboard"
        # TensorBoard reads files in the order of their names, and these begin with whole seconds.
        if list(path.glob(f"events.out.tfevents.{int(time.time())}.*")):
            time.sleep(1)
        events = sum(1 for _ in _summaries(path))
        self.sent = max(0, events - 1)
        self.writer = EventFileWriter(str(path))
        self.place = str(path)
        if events == 0:
            self._add(_settings(folder.config), 0)

    def send(self, all_rows: Sequence[Row]) -> None:
        """Write the rows that are new."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        for row in all_rows[self.sent :]:
            values = [Summary.Value(tag=tag, simple_value=value) for tag, value in row.values.items()]
            self._add(Summary(value=values), row.step)
            self.sent += 1
        self.writer.flush()

    def close(self, finished: bool) -> None:
        """Write what is left in memory, and end."""
        self.writer.close()

    def _add(self, summary: Any, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self.writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))


def _summaries(path: Path) -> Iterator[Any]:
    """All that event files hold besides their heads; half an event at the end of a file is not one."""
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    for file in sorted(path.glob("events.out.tfevents.*")):
        yield from (event for event in LegacyEventFileLoader(str(file)).Load() if event.HasField("summary"))


def _settings(config: Json) -> Any:
    """The settings as a text to read and as hyperparameters to sort runs by."""
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb

    chosen = flatten({key: value for key, value in config.items() if key not in ("kind", "classes", "origins")})
    flat = {key: value if isinstance(value, str | int | float) else json.dumps(value) for key, value in chosen.items()}
    lines = ["setting | value", "--- | ---", *(f"{key} | {value}" for key, value in flat.items())]
    text = TensorProto(dtype=DT_STRING, string_val=["\n".join(lines).encode()])
    about = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    summary = hparams_pb(flat)
    summary.value.add(tag="settings", metadata=about, tensor=text)
    assert isinstance(summary, Summary)
    return summary


class WeightsAndBiases:
    """A W&B run that is called like the run folder; its id follows from the name, so that a resumed run goes on in it.

    Online, W&B knows how many rows it has. Offline there is nobody to ask, and of a process that was killed W&B keeps
    some seconds less than it was given. So RUN/wandb.json holds the rows of all processes that came to their end; the
    files of one that did not are removed, and its rows are written again.
    """

    def __init__(self, folder: RunFolder) -> None:
        import wandb

        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "cosda"),
            name=folder.path.name,
            id=digest(folder.path.name),
            resume="allow",
            dir=os.environ.get("WANDB_DIR", str(folder.path)),
            config=folder.config,
            job_type=folder.config["kind"],
            reinit="create_new",  # a program around us may have a W&B run of its own
            # Standard error belongs to the watcher, and what a program prints is nobody's business.
            settings=wandb.Settings(silent=True, console="off", finish_timeout=UPLOAD_SECONDS),
        )
        files = Path(self.run.dir).parent
        self.place = self.run.url or str(files)
        self.mark = folder.path / "wandb.json"
        known: Json = json.loads(self.mark.read_bytes()) if self.mark.exists() else {"rows": 0, "open": None}
        if self.run.offline and known["open"]:
            shutil.rmtree(files.with_name(known["open"]), ignore_errors=True)
        self.sent = int(known["rows"] if self.run.offline else self.run.step)
        write_json(self.mark, {"rows": known["rows"], "open": files.name if self.run.offline else None})
        for group in ("loss", "rate", "accuracy", "validation", "cost"):
            self.run.define_metric(f"{group}/*", step_metric="epoch")
        for group in ("handed_on", "handed_on_own", "handed_on_merged", "chosen", "summary"):
            self.run.define_metric(f"{group}/*", step_metric="stage")

    def send(self, all_rows: Sequence[Row]) -> None:
        """Write the rows that are new."""
        for number, row in enumerate(all_rows[self.sent :], start=self.sent):
            self.run.log({**row.values, row.axis: row.step}, step=number, commit=True)
        self.sent = max(self.sent, len(all_rows))

    def close(self, finished: bool) -> None:
        """Write what is left in memory, and end."""
        self.run.finish(exit_code=0 if finished else 1)
        write_json(self.mark, {"rows": self.sent, "open": None})


WRITERS: dict[str, type[Writer]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def check_writers(names: Sequence[str]) -> None:
    """An error for a writer that does not exist or is not installed, before anything begins."""
    for name in names:
        if name not in WRITERS:
            raise CosdaError(f"there is no writer '{name}'. Known: {', '.join(WRITERS)}.{nearest(name, WRITERS)}")
        if find_spec(name) is None:
            raise CosdaError(f"{name} is not installed; 'pip install cosda[{name}]' installs it. Or leave out --log.")


class Log:
    """Lets writers follow a run folder within a ``with`` block."""

    def __init__(self, folder: RunFolder, names: Sequence[str], watcher: Watcher) -> None:
        self.folder = folder
        self.watcher = watcher
        self.names = names
        self.writers: dict[str, Writer] = {}

    def __enter__(self) -> Log:
        for name in dict.fromkeys(self.names if collectives.is_main() else ()):
            self._attempt(name, self._open, name)
        if self.writers:
            self.folder.followers.append(self._send)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, writer in list(self.writers.items()):
            self._attempt(name, writer.close, self.folder.finished)

    def _send(self) -> None:
        for name, writer in list(self.writers.items()):
            self._attempt(name, lambda writer: writer.send(rows(read_run(self.folder.path))), writer)

    def _open(self, name: str) -> None:
        self.writers[name] = WRITERS[name](self.folder)
        self.watcher.note(f"{name}: {self.writers[name].place}")

    def _attempt(self, name: str, act: Callable[[Any], None], value: Any) -> None:
        """Do it; a writer that fails, whatever the reason, is told of once and asked for nothing more."""
        try:
            act(value)
        except Exception as error:
            self.writers.pop(name, None)
            reason = " ".join(str(error).split()) or type(error).__name__
            self.watcher.note(
                f"{name} failed for {self.folder.path.name} and is left out from here on; the run goes on, "
                f"and its records are whole: {reason}"
            )
