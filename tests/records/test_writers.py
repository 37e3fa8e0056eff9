"""TensorBoard and W&B get what the records hold, each step once, and change nothing. No network is used."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cosda.__main__ import main
from cosda.api import run_chain, train_source
from cosda.errors import CosdaError
from cosda.records.folder import RunFolder
from cosda.records.run import Run, read_run
from cosda.records.writers import Log, Row, WeightsAndBiases, check_writers, rows
from cosda.run.machine import Machine
from cosda.watch import Watcher
from tiny import read, tiny_benchmark

CHANGES = ("epochs=3", "batch_size=8", "source.epochs=2", "source.batch_size=8")
CHANGES += ("network.encoder=small", "network.bottleneck=8", "data.size=16")

PROGRAM = """
from test_writers import Die, run_tiny
import sys
run_tiny(sys.argv[1], ("tensorboard", "wandb"), watcher=Die(1, 1))
"""


class Stop(Watcher):
    """Interrupts a run, as Ctrl-C does, when it measures something."""

    def __init__(self, stage: int, epoch: int | None) -> None:
        self.moment = stage, epoch

    def measured(self, stage: int, epoch: int | None, domain: str, accuracy: float) -> None:
        if (stage, epoch) == self.moment:
            raise KeyboardInterrupt


class Die(Stop):
    """Kills the process, as the system does when memory is short, when it measures something."""

    def measured(self, stage: int, epoch: int | None, domain: str, accuracy: float) -> None:
        if (stage, epoch) == self.moment:
            os.kill(os.getpid(), signal.SIGKILL)


def run_tiny(out: Path | str, log: tuple[str, ...] = (), method: str = "cosda", watcher: Watcher | None = None) -> Run:
    machine = Machine(log=log, threads=1)
    return run_chain(tiny_benchmark(), method, out=out, settings=read(CHANGES), machine=machine, watcher=watcher)


@pytest.fixture(scope="module", autouse=True)
def _offline() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("WANDB_")]:
            patch.delenv(name)
        patch.setenv("WANDB_MODE", "offline")
        yield


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run that nobody follows."""
    return run_tiny(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same run with both writers, killed in its first stage, interrupted in its second, and then left in peace."""
    out, both = tmp_path_factory.mktemp("disturbed"), ("tensorboard", "wandb")
    places = [str(Path(__file__).parents[1]), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1"}
    killed = subprocess.run([sys.executable, "-c", PROGRAM, str(out)], env=environment, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with pytest.raises(KeyboardInterrupt):
        run_tiny(out, both, watcher=Stop(2, 1))
    return run_tiny(out, both)


def source_of(run: Run) -> Run:
    return next(read_run(path.parent) for path in run.path.parent.glob("sources/*/config.json"))


# --- Rows -------------------------------------------------------------------------------------------------------------


def test_every_record_with_a_number_is_in_the_rows(plain: Run) -> None:
    found = rows(plain)
    assert [(row.stage, row.epoch) for row in found] == [
        (0, None),
        *((1, epoch) for epoch in range(3)),
        (1, None),
        *((2, epoch) for epoch in range(3)),
        (2, None),
    ]
    assert [row.step for row in found] == [0, 1, 2, 3, 1, 4, 5, 6, 2]
    by_place = {(row.stage, row.epoch): row.values for row in found}
    for record in plain.of("loss"):
        values = by_place[record["stage"], record["epoch"]]
        assert {f"loss/{name}": value for name, value in record["terms"].items()}.items() <= values.items()
        assert {f"rate/{name}": value for name, value in record["rates"].items()}.items() <= values.items()
        assert values["cost/passes"] == record["passes"]
    for record in plain.of("accuracy"):
        group = "handed_on" if record["epoch"] is None else "accuracy"
        values = by_place[record["stage"], record["epoch"]]
        assert values[f"{group}/{record['domain']}"] == sum(record["correct"]) / sum(record["images"])
    for record in plain.of("validation"):
        scores = {f"validation/{name}": value for name, value in record["scores"].items()}
        assert scores.items() <= by_place[record["stage"], record["epoch"]].items()
    for facts in plain.timing:
        values = by_place[facts["stage"], facts["epoch"]]
        assert values["cost/seconds"] == facts["seconds"]
        assert values["cost/images_per_second"] == facts["images"] / facts["seconds"]
        assert values["cost/peak_mib"] == facts["peak_bytes"] / 2**20
    assert by_place[1, None]["chosen/epoch"] == 3
    assert by_place[2, None]["chosen/epoch"] == 6, "as a place on the axis of all epochs"
    assert by_place[2, None]["summary/bwt"] == plain.summary()["bwt"]
    assert {name for name in by_place[1, None] if name.startswith("handed_on_own/")}


def test_the_routing_of_a_bank_is_in_the_row_of_its_stage(plain: Run) -> None:
    sent = {"kind": "routing", "stage": 2, "domain": "two", "known": ["one", "two"], "sent": [3, 9], "mixed": 1}
    routed = Run(plain.path, plain.config, (*plain.records, sent), plain.timing, None)
    (row,) = (row for row in rows(routed) if (row.stage, row.epoch) == (2, None))
    assert (row.values["routing/two to one"], row.values["routing/two to two"]) == (0.25, 0.75)
    assert len(rows(routed)) == len(rows(plain))


def test_an_epoch_that_was_done_twice_has_the_last_time(plain: Run) -> None:
    again = Run(plain.path, plain.config, plain.records, (*plain.timing, {**plain.timing[0], "seconds": 77.0}), None)
    assert [row.values.get("cost/seconds") for row in rows(again)].count(77.0) == 1
    ahead = Run(plain.path, plain.config, plain.records[:4], plain.timing, None)
    assert len(rows(ahead)) < len(rows(plain)), "the time of an epoch that was cut off makes no row"


def test_a_stage_without_epochs_has_its_row(tmp_path: Path) -> None:
    run = run_tiny(tmp_path, ("tensorboard",), method="source")
    assert [(row.step, row.axis) for row in rows(run)] == [(0, "stage"), (1, "stage"), (2, "stage")]
    assert_event_files_hold(run)


# --- TensorBoard ------------------------------------------------------------------------------------------------------


def assert_event_files_hold(run: Run) -> None:
    """Read the event files as TensorBoard does; every value of every row is there, once, and nothing else."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(run.path / "tensorboard"), size_guidance={"scalars": 0})
    read.Reload()
    wanted: dict[str, list[tuple[int, float]]] = {}
    for row in rows(run):
        for tag, value in row.values.items():
            wanted.setdefault(tag, []).append((row.step, pytest.approx(value, rel=1e-6)))  # floats of 32 bits
    got = {tag: [(event.step, event.value) for event in read.Scalars(tag)] for tag in read.Tags()["scalars"]}
    assert got == wanted
    assert "settings" in read.Tags()["tensors"]
    text = read.Tensors("settings")
    assert len(text) == 1, "the settings are written once, however often the run was taken up"
    assert b"settings.network.encoder | small" in text[0].tensor_proto.string_val[0]


def test_a_disturbed_run_has_every_step_once_in_its_event_files(disturbed: Run) -> None:
    assert len(list((disturbed.path / "tensorboard").iterdir())) == 3, "each process has a file of its own"
    assert_event_files_hold(disturbed)
    assert_event_files_hold(source_of(disturbed))
    assert any(tag.endswith("(holdout)") for row in rows(source_of(disturbed)) for tag in row.values)


def test_hyperparameters_can_be_read_by_the_plugin(disturbed: Run) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    read = EventAccumulator(str(disturbed.path / "tensorboard"))
    read.Reload()
    stored = read.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    found = HParamsPluginData.FromString(stored).session_start_info.hparams
    assert found["settings.adapt.epochs"].number_value == 3
    assert found["method"].string_value == "cosda"


def test_a_writer_asked_for_late_begins_with_the_past(plain: Run, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_tiny(tmp_path, watcher=Stop(1, 2))
    run = run_tiny(tmp_path, ("tensorboard",))
    assert len(rows(run)) == len(rows(plain))
    assert_event_files_hold(run)


def test_a_source_training_that_was_interrupted_has_every_step_once(tmp_path: Path) -> None:
    class Interrupt(Watcher):
        def begin(self, task: str, steps: int, unit: str = "steps") -> None:
            if task == "source one 2/2":
                raise KeyboardInterrupt

    def train(watcher: Watcher) -> None:
        machine = Machine(log=("tensorboard",), threads=1)
        changes = [change for change in CHANGES if change.startswith(("source.", "network.", "data."))]
        train_source(tiny_benchmark(), "one", settings=read(changes), out=tmp_path, machine=machine, watcher=watcher)

    with pytest.raises(KeyboardInterrupt):
        train(Interrupt())
    train(Watcher())
    run = next(read_run(path.parent) for path in tmp_path.glob("sources/*/config.json"))
    assert [(row.stage, row.epoch) for row in rows(run)] == [(0, 0), (0, 1), (0, None)]
    assert len(list((run.path / "tensorboard").iterdir())) == 2
    assert_event_files_hold(run)


# --- Weights & Biases -------------------------------------------------------------------------------------------------


def stored_by_wandb(path: Path) -> list[Any]:
    """The records of a .wandb file: a log of LevelDB's format, in blocks of 32 KiB, with a head of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, position, parts, found = path.read_bytes(), 7, b"", []
    while position + 7 <= len(data):
        if 32768 - position % 32768 < 7:
            position += 32768 - position % 32768
            continue
        length, kind = int.from_bytes(data[position + 4 : position + 6], "little"), data[position + 6]
        if kind == 0:
            break
        parts += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last part
            found.append(Record.FromString(parts))
            parts = b""
    return found


def assert_wandb_files_hold(run: Run) -> None:
    files = sorted((run.path / "wandb").glob("offline-run-*/run-*.wandb"))
    records = [record for file in files for record in stored_by_wandb(file)]
    got = []
    for record in records:
        if record.HasField("history"):
            items = {"/".join(item.nested_key) or item.key: item.value_json for item in record.history.item}
            got.append({key: json.loads(value) for key, value in items.items()})
    wanted = [{**row.values, row.axis: row.step, "_step": number} for number, row in enumerate(rows(run))]
    assert [{key: value for key, value in one.items() if key not in ("_runtime", "_timestamp")} for one in got] == [
        {key: pytest.approx(value) for key, value in one.items()} for one in wanted
    ]
    begun = [record.run for record in records if record.HasField("run")]
    assert {one.display_name for one in begun} == {run.path.name}
    assert len({one.run_id for one in begun}) == 1, "a resumed run goes on in the same W&B run"
    assert {one.project for one in begun} == {"cosda"}
    settings = {item.key: json.loads(item.value_json) for item in begun[0].config.update}
    assert settings["settings"] == run.config["settings"]


def test_a_disturbed_run_has_every_step_once_in_wandb(disturbed: Run) -> None:
    folders = list((disturbed.path / "wandb").glob("offline-run-*"))
    assert len(folders) == 2, "what the killed process left is gone, and the other two have done its work"
    assert_wandb_files_hold(disturbed)
    assert_wandb_files_hold(source_of(disturbed))


def test_online_wandb_itself_says_what_it_has(plain: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no W&B to talk to here: an object that notes what it gets plays the run that it would hand out."""
    import wandb

    class Online:
        url, dir, offline, step = "https://wandb.example/run", str(tmp_path / "wandb/run-1/files"), False, 4
        logged: list[int]

        def __init__(self) -> None:
            self.logged, self.exit_code = [], -1

        def define_metric(self, name: str, step_metric: str) -> None: ...

        def log(self, values: dict[str, float], step: int, commit: bool) -> None:
            self.logged.append(step)

        def finish(self, exit_code: int) -> None:
            self.exit_code = exit_code

    online = Online()
    monkeypatch.setattr(wandb, "init", lambda **_: online)
    folder = RunFolder(tmp_path / "run", plain.config)
    with folder:
        writer = WeightsAndBiases(folder)
        writer.send(rows(plain)[:6])
        writer.send(rows(plain))
        writer.close(finished=True)
    assert online.logged == [4, 5, 6, 7, 8]
    assert (writer.place, online.exit_code) == ("https://wandb.example/run", 0)


def results(run: Run) -> dict[str, bytes]:
    """All that a run leaves behind, but for the time it took and what writers made of it."""
    return {
        str(path.relative_to(run.path)): path.read_bytes()
        for path in sorted(run.path.rglob("*"))
        if path.is_file()
        and path.name not in ("timing.jsonl", "wandb.json")
        and not {"wandb", "tensorboard"} & set(path.relative_to(run.path).parts)
    }


def test_writers_change_no_bit_of_the_results(plain: Run, disturbed: Run) -> None:
    assert results(plain) == results(disturbed)
    assert results(source_of(plain)) == results(source_of(disturbed))


# --- What goes wrong --------------------------------------------------------------------------------------------------


class Noting(Watcher):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_writer_that_fails_is_told_of_once_and_the_run_goes_on(
    plain: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    calls = []

    def fail(self: Any, event: Any) -> None:
        calls.append(event)
        if len(calls) > 6:  # in the chain; the source model has four events
            raise OSError("no space left on device")

    monkeypatch.setattr(EventFileWriter, "add_event", fail)
    watcher = Noting()
    run = run_tiny(tmp_path, ("tensorboard",), watcher=watcher)
    assert run.done is not None
    assert (run.path / "records.jsonl").read_bytes() == (plain.path / "records.jsonl").read_bytes()
    failures = [note for note in watcher.notes if "tensorboard failed" in note]
    assert len(failures) == 1
    assert "no space left on device" in failures[0]


def test_a_writer_that_cannot_begin_does_not_stop_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    def unreachable(**_: Any) -> None:
        raise wandb.errors.CommError("Run initialization has timed out")

    monkeypatch.setattr(wandb, "init", unreachable)
    watcher = Noting()
    with RunFolder(tmp_path / "run", {"kind": "adapt"}) as folder, Log(folder, ("wandb",), watcher):
        folder.settle()
    assert len(watcher.notes) == 1
    assert "timed out" in watcher.notes[0]


def test_a_writer_hears_at_the_end_whether_the_run_came_to_its_own(tmp_path: Path) -> None:
    closed = []

    class Fake:
        place = ""

        def send(self, all_rows: list[Row]) -> None: ...

        def close(self, finished: bool) -> None:
            closed.append(finished)

    folder = RunFolder(tmp_path / "run", {"kind": "adapt"})
    with folder:
        with Log(folder, (), Watcher()) as log:
            log.writers["fake"] = Fake()  # type: ignore[assignment]
        folder.finish()
        with Log(folder, (), Watcher()) as log:
            log.writers["fake"] = Fake()  # type: ignore[assignment]
    assert closed == [False, True]


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_what_is_not_installed_stops_the_command_before_it_begins(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    words = ["cosda", "run", "digits", "--log", name, "--out", str(tmp_path / "runs")]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert f"pip install cosda[{name}]" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_an_unknown_writer_is_an_error() -> None:
    with pytest.raises(CosdaError, match=r"no log writer 'tensorbord'.*Did you mean 'tensorboard'"):
        check_writers(("tensorbord",))


def test_neither_is_imported_unless_asked_for() -> None:
    code = "import sys, cosda.api; from cosda import Machine; Machine(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"tensorboard", "wandb"} & set(done.stdout.split())
