"""TensorBoard: a local page with curves."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from cosda.files import Json, flatten
from cosda.records.folder import RunFolder
from cosda.records.writers.base import Row, Writer


class TensorBoard(Writer):
    """Event files in RUN/tensorboard: an event with the settings, and then one event for each row.

    A row is a single event because an event is in the file as a whole or not at all: what a killed process had
    written can be counted.
    """

    title: ClassVar[str] = "event files in the run folder"
    library: ClassVar[str | None] = "tensorboard"

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
