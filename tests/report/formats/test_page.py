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
from stored_runs import AMPERSAND, COSDA, IMAGE, SCRIPT, SOURCE, WriteRun, add_confusions, add_timing, office_epochs

from cosda.records.run import Run, find_runs, read_run
from cosda.report import render_report
from cosda.report.figures import features, style
from cosda.report.figures.matrices import heat_map
from cosda.report.formats.page import script_json, section_figures
from cosda.report.model.groups import group_runs
from cosda.report.tables.contents import contents

ELSEWHERE = """
import hashlib, sys
from pathlib import Path
from cosda.records.run import find_runs
from cosda.report import render_report
page = render_report(find_runs([Path(sys.argv[1])])[::-1], "html")
assert "torch" not in sys.modules, "a report must not import torch"
print(hashlib.sha256(page.encode()).hexdigest())
"""


GOLDEN = Path(__file__).parents[1] / "golden" / "report.html"


def own_part(page: str) -> str:
    """The page without plotly's own code."""
    start = page.index("<script>/**")
    return page[:start] + "<script>plotly" + page[page.index("</script>", start) :]


def plots_of(page: str) -> list[style.Plot]:
    text = re.search(r'<script type="application/json" id="plots">(.*?)</script>', page, re.DOTALL)
    assert text is not None
    found: list[style.Plot] = json.loads(text[1])
    return found


def test_golden(tmp_path: Path, make_run: WriteRun) -> None:
    """Byte for byte, but for plotly's own code; without t-SNE, whose digits depend on the machine.

    After a wanted change: ``RENEW_GOLDEN=1 pytest tests/report/formats/test_page.py``, then read the difference.
    """
    for label, numbers in (("source", [(60, 90), (50, 80)]), ("cosda", [(75, 88), (64, 79)])):
        for pair, (target, source) in zip((["a", "b"], ["b", "a"]), numbers, strict=True):
            before = [90 if pair[0] == "a" else 80, 60 if pair[0] == "a" else 50]
            epochs = office_epochs(target, source) if label == "cosda" else ()
            name = f"letters-{label}-{'2'.join(pair)}"
            folder = make_run(
                tmp_path / name,
                [before, [source, target]],
                label=label,
                domains=pair,
                epochs=epochs,
                benchmark="letters",
            )
            add_confusions(folder, 1, [[[40, 10], [5, 45]], [[30, 20], [0, 50]]])
            add_timing(folder, 3 if epochs else 0)
    make_run(tmp_path / "chain-cosda-s0", COSDA[0], label="cosda")
    make_run(tmp_path / "chain-cosda-s2", COSDA[2], label="cosda", seed=2, finished=False)
    made = own_part(render_report(find_runs([tmp_path]), "html"))
    if os.environ.get("RENEW_GOLDEN"):
        GOLDEN.write_text(made, encoding="utf-8", newline="\n")
    assert made == GOLDEN.read_bytes().decode()


def test_golden_of_banks(bank_runs: list[Run]) -> None:
    """As above, with domain banks among the runs."""
    made = own_part(render_report(bank_runs, "html"))
    stored = GOLDEN.with_name("bank.html")
    if os.environ.get("RENEW_GOLDEN"):
        stored.write_text(made, encoding="utf-8", newline="\n")
    assert made == stored.read_bytes().decode()


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
        "each stage keeps the model of its last epoch",
        "an upper bound that nobody can reach in practice",
        "not finished: it has 1 epoch of stage 2 (hand)",
        "preset digits",
        "3.11.7",
        '84.17 <span class="spread">± 1.65</span>',
        "digits: cosda without its parts",
        "adapt.lr            0.002  preset digits",
        "Wilcoxon",
    ):
        assert words in page


def test_plotly_accepts_every_figure(page: str) -> None:
    figures = plots_of(page)
    assert len(figures) >= 30
    for figure in figures:
        go.Figure(figure)


def test_every_figure_is_stored_once_and_shown(page: str) -> None:
    shown = [int(number) for number in re.findall(r'data-plot="(\d+)"', page)]
    figures = plots_of(page)
    assert set(shown) == set(range(len(figures)))
    assert len(shown) > len(figures)  # curves of the lowest seed stand in the section and on the run's page
    assert len({json.dumps(figure) for figure in figures}) == len(figures)


def test_every_table_of_the_text_formats_is_on_the_page(paper_runs: list[Run]) -> None:
    page = html.unescape(render_report(paper_runs, "html"))
    found = contents(paper_runs)
    assert {table.kind for table in found.across} == {"pairs", "classes", "ablations", "rules"}
    for table in found.tables:
        assert f'data-kind="{table.kind}"' in page
        assert all(note in page for note in table.notes)
    assert "paper 74.90 (-0.40)" in page  # dslr to amazon, where cosda has 74.50 here
    assert "Open diamonds are the paper's numbers." in page
    assert "rank correlation" in page


def test_another_selection_rule(paper_runs: list[Run]) -> None:
    page = render_report(paper_runs, "html", "snd")
    assert "the best label-free score &#39;snd&#39;" in page
    assert "run it with --select snd" in page  # the chain cannot be seen under another rule


def test_equal_folder_names_have_pages_of_their_own(tmp_path: Path, make_run: WriteRun) -> None:
    for seed, place in enumerate(("one", "two")):
        make_run(tmp_path / place / "run ü", SOURCE[0], label="source", seed=seed)
    page = render_report(find_runs([tmp_path]), "html")
    for anchor in ("run-run-", "run-run-~2"):
        assert page.count(f'id="{anchor}"') == page.count(f'href="#{anchor}"') == 1


def test_heat_map_holds_the_mean_matrix(runs: list[Run]) -> None:
    section = next(s for s in group_runs(runs).sections if len(s.groups) == 4)
    assert heat_map(section, section.groups[1])["data"][0]["z"][2] == [79.0, 65.0, 62.0]


def test_tsne_has_the_papers_colours(page: str) -> None:
    titled = [f for f in plots_of(page) if any("(source)" in t.get("name", "") for t in f["data"])]
    assert len(titled) == 2 + 2  # before and after, equal for all methods of the chain; and of one hostile method
    for figure in titled:
        colours = {trace["name"].endswith("(source)"): trace["marker"]["color"] for trace in figure["data"]}
        assert colours == {True: "#d73027", False: "#4575b4"}


def test_a_gap_between_stages_and_no_nan(tmp_path: Path, make_run: WriteRun) -> None:
    folder = make_run(tmp_path / "run", COSDA[0], label="cosda")
    text = (folder / "records.jsonl").read_text(encoding="utf-8").replace("-0.2", "NaN")
    (folder / "records.jsonl").write_text(text, encoding="utf-8")
    page = render_report([read_run(folder)], "html")
    losses = next(f for f in plots_of(page) if f["data"][0].get("name") == "consistency")
    assert losses["data"][0]["x"] == [1, 2, 3, 3.5, 4, 5, 6]
    assert losses["data"][0]["y"][3] is None
    assert losses["data"][1]["y"][1] is None


def notes_of(run: Run) -> list[str]:
    sections = group_runs([run]).sections
    return [note for figure in section_figures(sections[0], style.palette(sections)) for note in figure.notes]


def test_runs_without_features_need_no_excuse(tmp_path: Path, make_run: WriteRun) -> None:
    run = read_run(make_run(tmp_path / "run", SOURCE[0], label="source"))
    assert notes_of(run) == []
    assert "Features of source" not in render_report([run], "html")


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
    found = features.read_features(read_run(folder), 0)
    assert isinstance(found, features.Embedding)
    assert [found.domains.count(domain) for domain in range(3)] == [100, 100, 100]


def test_a_page_of_nothing_but_unfinished_runs(tmp_path: Path, make_run: WriteRun) -> None:
    make_run(tmp_path / "run", COSDA[2], label="cosda", finished=False)
    page = render_report(find_runs([tmp_path]), "html")
    assert "not finished" in page
    assert 'title="no finished run">–</td>' in page


def test_a_page_of_a_damaged_run(tmp_path: Path, make_run: WriteRun) -> None:
    folder = make_run(tmp_path / "run", COSDA[0], label="cosda")
    with (folder / "records.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"kind":"loss"}\n')
    page = render_report([read_run(folder)], "html")
    assert "No figure: damaged records" in page
    (folder / "config.json").write_text("{}", encoding="utf-8")
    assert "Runs that could not be read" in render_report([read_run(folder)], "html")


def test_script_json_cannot_end_its_script() -> None:
    value = {"name": "</script><!-- & \u2028 é"}
    text = str(script_json(value))
    assert not set("<>&\u2028é") & set(text)
    assert json.loads(text) == value


def test_labels_of_figures_are_escaped_and_cut() -> None:
    assert style.label("<b>x</b> & y") == "&lt;b&gt;x&lt;/b&gt; &amp; y"
    assert style.label("a\nb" + "c" * 50, 6) == "a bcc…"
