"""Weights & Biases."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from cosda.files import Json, digest, write_json
from cosda.records.folder import RunFolder
from cosda.records.writers.base import Row, Writer

UPLOAD_SECONDS = 120.0  # what W&B gets at the end of a run; without a limit it would wait for its network for ever


class WeightsAndBiases(Writer):
    """A W&B run that is called like the run folder; its id follows from the name, so that a resumed run goes on in it.

    Online, W&B knows how many rows it has. Offline there is nobody to ask, and of a process that was killed W&B keeps
    some seconds less than it was given. So RUN/wandb.json holds the rows of all processes that came to their end; the
    files of one that did not are removed, and its rows are written again.
    """

    title: ClassVar[str] = "Weights & Biases, online or offline"
    library: ClassVar[str | None] = "wandb"

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
