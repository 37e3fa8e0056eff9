"""The benchmarks run at tiny sizes and write what they should. How fast anything is, is not tested."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import pytest
from benchmarks.__main__ import ALL, main
from benchmarks.adaptation import DATA
from benchmarks.facts import BEGIN, END, Fact
from benchmarks.timing import interleaved, spread


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """All benchmarks, run once."""
    folder = tmp_path_factory.mktemp("benchmarks")
    main(["--quick", "--out", str(folder)])
    return folder


@pytest.mark.parametrize("name", ALL)
def test_a_benchmark_runs_and_writes_what_it_found(results, name):
    found = json.loads((results / f"{name}.json").read_text())
    assert found["name"] == name
    assert found["quick"] is True
    assert {"torch", "cpu", "cores", "threads", "load"} <= found.keys()
    if name == "adaptation" and not DATA.is_dir():
        pytest.skip(f"there is no {DATA}")
    assert found["facts"]
    for fact in found["facts"]:
        assert math.isfinite(fact["value"])
        assert fact["unit"] != "×" or fact["value"] > 0
        assert all(math.isfinite(value) for value in fact["seconds"].values())
        if fact["low"] is not None:
            assert fact["low"] <= fact["value"] <= fact["high"]


def test_the_table_is_put_between_the_markers_of_a_page(results, tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    main(["--table", "--out", str(results), "--into", str(page)])
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n\n| benchmark |")
    assert text.endswith(f"\n\n{END}\nafter\n")
    assert "old" not in text
    assert "quick sizes" in text
    assert "| `views` |" in text
    main(["--table", "--out", str(tmp_path), "views", "deployed"])
    assert "Not measured: views, deployed." in capsys.readouterr().out
    main(["--table", "--out", str(tmp_path), "views"])
    assert "Not measured: views." in capsys.readouterr().out


def test_exported_files_have_a_table_of_latency_and_throughput(tmp_path, capsys):
    names = {"original": 0.01, "onnx": 0.004, "torchscript": 0.02}
    facts = [
        asdict(Fact(f"{name}, lite0, 96 px, {count}", 0.01 / seconds, seconds=names)) | {"met": None}
        for count in ("one image", "32 images")
        for name, seconds in list(names.items())[1:]
    ]
    where = {"cpu": "a processor", "cores": 2, "torch": "2", "load": 0.25, "quick": False}
    (tmp_path / "deployed.json").write_text(json.dumps(where | {"facts": facts}))
    main(["--table", "--out", str(tmp_path), "deployed"])
    assert capsys.readouterr().out.splitlines() == [
        "| network | batch | original | onnx | torchscript |",
        "|---|---|--:|--:|--:|",
        "| lite0, 96 px | one image | 10.00 ms | 4.00 ms<br>2.50× | 20.00 ms<br>0.50× |",
        "| lite0, 96 px | 32 images | 3,200/s | 8,000/s<br>2.50× | 1,600/s<br>0.50× |",
        "",
        "Taken on a processor, 2 cores, torch 2; load average at the start: 0.2.",
    ]
    main(["--table", "--out", str(tmp_path / "none"), "deployed"])
    assert capsys.readouterr().out == "Not measured: deployed.\n"


def test_a_page_without_markers_is_left_alone(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("nothing\n")
    with pytest.raises(SystemExit, match="needs the lines"):
        main(["--table", "--out", str(tmp_path), "--into", str(page)])
    assert page.read_text() == "nothing\n"


def test_an_unknown_benchmark_is_an_error(capsys):
    with pytest.raises(SystemExit):
        main(["stepp"])
    assert "there is no benchmark stepp" in capsys.readouterr().err


def test_limits_are_kept_or_not():
    assert Fact("a", 1.04, most=1.05).met is True
    assert Fact("a", 1.06, most=1.05).met is False
    assert Fact("a", 3.9, least=4).met is False
    assert Fact("a", 4.1, least=4).met is True
    assert Fact("a", 4.1).met is None
    assert Fact("a", 4.1, least=4).target == "at least 4.00×"


def test_ratios_are_those_of_pairs_and_the_first_round_does_not_count():
    calls = []
    timing = interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=3)
    assert sorted(calls) == ["a"] * 4 + ["b"] * 4
    assert all(len(values) == 3 for values in timing.rounds.values())
    assert spread([4.0, 1.0, 2.0, 3.0, 5.0]).value == 3
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]).low == 2
    assert spread([2.0]).high == 2
