"""The HTML page as text: the same bytes each time, nothing from outside, names that stay names."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
from stored_runs import AMPERSAND, COSDA, IMAGE, SCRIPT, SOURCE, WriteRun

from cosda.records import Run, find_runs, read_run
from cosda.report import embedding, plots
from cosda.report.gallery import albums
from cosda.report.html import render, script_json
from cosda.report.tables import build

ELSEWHERE = """
import hashlib, sys
from pathlib import Path
from cosda.records import find_runs
from cosda.report.html import render
page = render(find_runs([Path(sys.argv[1])])[::-1])
assert "torch" not in sys.modules, "a report must not import torch"
print(hashlib.sha256(page.encode()).hexdigest())
"""


def own_part(page: str) -> str:
    """The page without plotly's own code."""
    start = page.index("<script>/**")
    return page[:start] + page[page.index("</script>", start) :]


def figures_of(page: str) -> dict[str, plots.Figure]:
    text = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)
    assert text is not None
    found: dict[str, plots.Figure] = json.loads(text[1])
    return found


def test_same_folders_same_bytes(runs_folder: Path, page: str) -> None:
    """In another process with another hash seed and another number of threads, from runs in another order."""
    import hashlib

    environment = {**os.environ, "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-c", ELSEWHERE, str(runs_folder)]
    made = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert made.stdout.strip() == hashlib.sha256(page.encode()).hexdigest()


def test_names_from_data_are_escaped(page: str) -> None:
    own = own_part(page)
    for name in (SCRIPT, IMAGE, AMPERSAND):
        assert name not in own
        assert html.escape(name) in own.replace("&#34;", "&quot;")
    assert "</script>" + SCRIPT not in own


def test_the_page_is_self_contained(page: str, runs_folder: Path) -> None:
    own = own_part(page)
    assert page.count("plotly.js v") == 1
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!#)""", own)
    assert "default-src 'none'" in own
    assert str(runs_folder) not in own
    assert "/home/somebody" not in own


def test_the_words_are_there(page: str) -> None:
    for words in (
        "Backward transfer: the mean, over all domains but the last one",
        "each stage hands on the model of its last epoch",
        "an upper bound that nobody can reach in practice",
        "not finished: it has 1 epoch of stage 2 (hand)",
        "preset digits",
        "3.11.7",
        '84.17 <span class="spread">± 1.65</span>',
    ):
        assert words in page


def test_plotly_accepts_every_figure(page: str) -> None:
    figures = figures_of(page)
    assert len(figures) == 6 + 16 + 5
    for figure in figures.values():
        go.Figure(figure)


def test_heat_map_holds_the_mean_matrix(runs: list[Run]) -> None:
    section = next(s for s in build(runs).sections if len(s.rows) == 4)
    figure = plots.heat_map(section, section.rows[1])
    assert figure["data"][0]["z"][2] == [79.0, 65.0, 62.0]


def test_tsne_has_the_papers_colours(page: str) -> None:
    titled = [f for f in figures_of(page).values() if any("(source)" in t.get("name", "") for t in f["data"])]
    assert len(titled) == 5 + 2  # the shared source model and four methods; one hostile method
    for figure in titled:
        colours = {trace["name"].endswith("(source)"): trace["marker"]["color"] for trace in figure["data"]}
        assert colours == {True: "#d73027", False: "#4575b4"}


def test_a_gap_between_stages_and_no_nan(tmp_path: Path, make_run: WriteRun) -> None:
    folder = make_run(tmp_path / "run", COSDA[0], label="cosda")
    text = (folder / "records.jsonl").read_text(encoding="utf-8").replace("-0.2", "NaN")
    (folder / "records.jsonl").write_text(text, encoding="utf-8")
    page = render([read_run(folder)])
    losses = next(f for f in figures_of(page).values() if f["data"][0].get("name") == "consistency")
    assert losses["data"][0]["x"] == [1, 2, 3, 3.5, 4, 5, 6]
    assert losses["data"][0]["y"][3] is None
    assert losses["data"][1]["y"][1] is None


def notes_of(run: Run) -> list[str]:
    return [note for album in albums(build([run]).sections[0]) for note in album.notes]


def test_runs_without_features_need_no_excuse(tmp_path: Path, make_run: WriteRun) -> None:
    run = read_run(make_run(tmp_path / "run", SOURCE[0], label="source"))
    assert notes_of(run) == []
    assert "Features of source" not in render([run])


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        (None, "damaged"),
        ({"features": np.zeros((20, 4))}, "damaged"),
        ({"features": np.full((20, 4), np.inf), "domain": np.zeros(20, int)}, "not finite"),
        ({"features": np.zeros((20, 4)), "domain": np.zeros(20, int)}, "fewer than 8 different points"),
        ({"features": np.zeros((20, 4)), "domain": np.full(20, 9)}, "domains that the chain does not have"),
        ({"features": np.zeros((20, 4)), "domain": np.array([{}] * 20)}, "damaged"),  # would need a pickle
    ],
)
def test_damaged_features_are_a_note(
    tmp_path: Path, make_run: WriteRun, arrays: dict[str, np.ndarray] | None, reason: str
) -> None:
    folder = make_run(tmp_path / "run", SOURCE[0], label="source", features=10)
    path = folder / "embedding" / "stage-2.npz"
    if arrays is None:
        path.write_bytes(b"PK but not a zip")
    else:
        np.savez(path, **arrays)
    notes = notes_of(read_run(folder))
    assert len(notes) == 1
    assert notes[0].startswith("source, after:")
    assert reason in notes[0]


def test_many_features_are_thinned_evenly(tmp_path: Path, make_run: WriteRun) -> None:
    folder = make_run(tmp_path / "run", SOURCE[0], label="source", features=700)
    found = embedding.read(folder, 0, 3)
    assert isinstance(found, embedding.Embedding)
    assert [found.domains.count(domain) for domain in range(3)] == [200, 200, 200]


def test_a_page_of_nothing_but_unfinished_runs(tmp_path: Path, make_run: WriteRun) -> None:
    make_run(tmp_path / "run", COSDA[2], label="cosda", finished=False)
    page = render(find_runs([tmp_path]))
    assert "not finished" in page
    assert 'title="no finished run">–</td>' in page


def test_a_page_of_a_damaged_run(tmp_path: Path, make_run: WriteRun) -> None:
    folder = make_run(tmp_path / "run", COSDA[0], label="cosda")
    with (folder / "records.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"kind":"loss"}\n')
    page = render([read_run(folder)])
    assert "No figure: damaged records" in page
    (folder / "config.json").write_text("{}", encoding="utf-8")
    assert "Runs that could not be placed" in render([read_run(folder)])


def test_script_json_cannot_end_its_script() -> None:
    value = {"name": "</script><!-- & \u2028 é"}
    text = str(script_json(value))
    assert not set("<>&\u2028é") & set(text)
    assert json.loads(text) == value


def test_labels_of_figures_are_escaped_and_cut() -> None:
    assert plots.label("<b>x</b> & y") == "&lt;b&gt;x&lt;/b&gt; &amp; y"
    assert plots.label("a\nb" + "c" * 50, 6) == "a bcc…"
