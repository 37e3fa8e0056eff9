"""How the program ends: by signals, by what the system refuses, by a reader that has seen enough."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cosda.cli.app import build_app, run_program
from cosda.errors import CosdaError

PROGRAM = """
import signal, sys
from cosda.cli.app import build_app, run_program

signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background may be deaf

def work() -> None:
    try:
        {begin}
    finally:
        {tidy}
        print("tidied up", flush=True)

run_program(build_app([work, lambda: None]))
"""
BOTH = {signal.SIGINT: 130, signal.SIGTERM: 143}


def ended(begin: str, tidy: str = "pass", **options: object) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(begin=begin, tidy=tidy)
    return subprocess.run([sys.executable, "-c", program, "work"], text=True, stderr=subprocess.PIPE, **options)  # type: ignore[call-overload]


@pytest.mark.parametrize("sent", BOTH)
def test_a_second_signal_does_not_disturb_what_the_first_began(sent: signal.Signals) -> None:
    send = f"signal.raise_signal({int(sent)})"
    done = ended(send, send, stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (BOTH[sent], "tidied up\n")
    assert done.stderr == "cosda: interrupted; the same command goes on where the last epoch ended.\n"


@pytest.mark.parametrize("sent", BOTH)
def test_a_third_one_ends_the_program_at_once(sent: signal.Signals) -> None:
    send = f"signal.raise_signal({int(sent)})"
    done = ended(send, f"{send}; {send}", stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (BOTH[sent], "")
    assert "Traceback" not in done.stderr


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception], None]:
    """A program whose only command ends with an error, in this process."""
    monkeypatch.setattr("sys.argv", ["cosda", "work"])
    monkeypatch.setattr("cosda.cli.app._hear_once", lambda: None)

    def run(error: Exception) -> None:
        def work() -> None:
            raise error

        def rest() -> None: ...

        run_program(build_app([work, rest]))

    return run


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(5, "Input/output error", "/data/x"), "/data/x: Input/output error. The disk or network drive"),
        (MemoryError(), "out of memory. Smaller batches"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "out of memory. Smaller batches"),
        (FileNotFoundError(2, "No such file or directory", "x"), "x: No such file or directory. It was never there"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_the_system_refuses_is_one_line(
    fails: Callable[[Exception], None], capsys: pytest.CaptureFixture[str], error: Exception, line: str
) -> None:
    with pytest.raises(SystemExit) as end:
        fails(error)
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"cosda: {line}")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "line"),
    [("a\nb\x1b[2J\u202e", "a b\\x1b[2J\\u202e"), ("a" + "9" * 10**6 + "b", None)],
)
def test_a_message_is_one_line_whatever_names_it_shows(
    fails: Callable[[Exception], None], capsys: pytest.CaptureFixture[str], text: str, line: str | None
) -> None:
    with pytest.raises(SystemExit):
        fails(CosdaError(text))
    said = capsys.readouterr().err
    assert said.startswith("cosda: a")
    assert said.endswith("b\n") if line is None else said == f"cosda: {line}\n"
    assert len(said) < 4_000


def test_mistakes_of_ours_keep_their_traceback(fails: Callable[[Exception], None]) -> None:
    with pytest.raises(RuntimeError, match="shapes"):
        fails(RuntimeError("shapes do not match"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("letters", [10, 100_000])
def test_a_full_disk_behind_the_standard_output(letters: int) -> None:
    with open("/dev/full", "w") as full:
        done = ended(f"print('x' * {letters}, end='')", stdout=full)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "No space left on device" in done.stderr


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(begin="print('x' * 10**6)", tidy="pass"), "work"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    assert (process.stderr.read(), process.wait()) == (b"", 1)
    process.stderr.close()
