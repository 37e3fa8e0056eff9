"""One entry for each registry from a program of somebody else's: one class or function and one line each.

Tables, figures, formats and measures are tested in more detail in tests/report, engines in tests/bench.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from dataclasses import dataclass, replace

from torch import nn

from cosda import METHODS, Method, setting
from cosda.carry import CARRY_RULES, CarryRule
from cosda.data.registry import BENCHMARKS, Known
from cosda.metrics import MEASURES, Measure
from cosda.models.encoders import ENCODERS
from cosda.models.encoders.base import Encoder, Named
from cosda.preprocessing import Preprocessing
from cosda.records.writers import WRITERS, Writer
from cosda.report.model.table import Cell, Column, Row
from cosda.report.tables import TABLES, TableKind
from cosda.report.tables.base import table_of
from cosda.validators import VALIDATORS, Validator
from tiny import tiny_benchmark


@dataclass
class Quiet(Method):
    title = "does as little as it can"
    push: float = setting(0.5, "how much", low=0)

    def step(self, batch):
        return {"push": self.push * self.student(batch.images).logits.square().mean()}


METHODS["quiet"] = Quiet


@dataclass(frozen=True)
class Never(CarryRule):
    title = "the incoming model, whatever was learnt"

    def hand_on(self, incoming, adapted, along, predict):
        return incoming, {"share": 1.0}


CARRY_RULES["never"] = Never
VALIDATORS["boldness"] = Validator("largest probability of all", lambda p, before: p.max())


class Flat(Encoder):
    def __init__(self):
        super().__init__()
        self.width, self.preprocessing = 12, Preprocessing(size=16)
        self.layer = nn.Linear(3 * 16 * 16, 12)

    def forward(self, images):
        return self.layer(images.flatten(1))


ENCODERS["flat"] = Named("one layer on all pixels", Flat)


class Diary(Writer):
    title = "a line for each row"

    def __init__(self, folder):
        self.path, self.place = folder.path / "diary.txt", "diary.txt"

    def send(self, all_rows):
        self.path.write_text("".join(f"{row.axis} {row.step}\\n" for row in all_rows))


WRITERS["diary"] = Diary
MEASURES["worst"] = Measure("Worst domain", "The lowest accuracy at the end.", lambda accuracy: min(accuracy[-1]))


def seeds(sections):
    [section] = sections
    rows = [Row(group.name, (Cell((float(len(group.runs)),)),)) for group in section.groups]
    return [table_of(section, "How many runs", (Column("runs", "runs", percent=False),), rows)]


TABLES["seeds"] = TableKind("how many runs there are", seeds, per_section=True)


def toys():
    return replace(tiny_benchmark(), name="toys")


BENCHMARKS["toys"] = Known("toys", "Toys", {}, 3, preset=sys.argv.pop(1), make=toys)

from cosda.__main__ import main

main()
"""


@pytest.fixture
def program(tmp_path: Path) -> list[str]:
    (tmp_path / "own.py").write_text(PROGRAM)
    preset = {"adapt": "epochs = 2\nbatch_size = 8", "source": "epochs = 1\nbatch_size = 8", "data": "size = 16"}
    (tmp_path / "toys.toml").write_text("\n".join(f"[{name}]\n{text}" for name, text in preset.items()))
    return [sys.executable, str(tmp_path / "own.py"), str(tmp_path / "toys.toml")]


def call(words: list[str], *more: str) -> str:
    places = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": places}
    done = subprocess.run([*words, *more], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def test_help_names_what_came_from_outside(program: list[str]) -> None:
    told = call(program, "run", "--help")
    assert "never: the incoming model, whatever was learnt" in told
    assert "boldness" in told
    assert "diary: a line for each row" in told
    assert "'toys'" in told
    assert "does as little as it can" in call(program, "methods")
    assert "one layer on all pixels" in call(program, "methods", "--encoders")
    assert "method.push" in call(program, "methods", "quiet")


def test_a_run_and_its_report_know_what_came_from_outside(program: list[str], tmp_path: Path) -> None:
    words = ["run", "toys", "--domains", "one,two", "--method", "quiet", "--encoder", "flat", "--carry", "never"]
    options = [
        "--select",
        "boldness",
        "--log",
        "diary",
        "--set",
        "network.bottleneck=8",
        "--out",
        str(tmp_path / "runs"),
    ]
    shown = json.loads(call(program, *words, *options, "--json", "-q"))
    assert shown["label"] == "quiet (carry never)"
    assert shown["accuracy"][0] == shown["accuracy"][1], "what is handed on is the incoming model"
    assert shown["worst"] == min(shown["accuracy"][1])
    folder = Path(shown["run"])
    config = json.loads((folder / "config.json").read_text())
    assert config["origins"]["adapt.epochs"] == "preset toys"
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in records if record["kind"] == "loss"] == [0, 1]
    scores = [record["scores"]["boldness"] for record in records if record["kind"] == "validation"]
    assert len(scores) == 2
    assert next(record for record in records if record["kind"] == "carried")["rule"] == "never"
    assert (folder / "diary.txt").read_text().splitlines()[-1] == "stage 1"
    call(program, "report", str(tmp_path / "runs"), "-o", str(tmp_path / "report.md"))
    report = (tmp_path / "report.md").read_text()
    for text in ("quiet (carry never)", "Worst domain", "How many runs", "boldness"):
        assert text in report, text
