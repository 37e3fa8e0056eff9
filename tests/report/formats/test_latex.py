"""LaTeX: environments that close, as many cells as columns, and names that cannot break out of their cell."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from stored_runs import COSDA, WriteRun

from cosda.records.run import Run, find_runs
from cosda.report import render_report
from cosda.report.formats.latex import plain

HOSTILE = r"""\input{/etc/passwd} 100% $x_1$ & #1 ^~ {}} \\[2pt] * | <a> "q" `t` -- – → ± \end{table}"""
PDFLATEX = shutil.which("pdflatex")


def environments(text: str) -> list[str]:
    """The environments that are open at the end; an error if one closes that is not the last."""
    stack: list[str] = []
    for verb, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if verb == "begin":
            stack.append(name)
        else:
            assert stack.pop() == name
    return stack


def without_escapes(text: str) -> str:
    return re.sub(r"\\[\\{}$&#%_]", "", text)


def depth(text: str) -> int:
    """How many braces stay open; an error if one closes too many."""
    level = 0
    for brace in re.findall(r"[{}]", without_escapes(text)):
        level += 1 if brace == "{" else -1
        assert level >= 0
    return level


def tables(text: str) -> list[tuple[int, list[str]]]:
    """Of every table, how many columns it has and its lines."""
    found = re.findall(r"\\begin\{tabular\}\{(\w+)\}\n(.*?)\\end\{tabular\}", text, re.DOTALL)
    rules = (r"\toprule", r"\midrule", r"\addlinespace", r"\bottomrule")
    return [(len(form), [line for line in body.splitlines() if line not in rules]) for form, body in found]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, make_run: WriteRun) -> str:
    folder = tmp_path_factory.mktemp("hostile")
    place = {"benchmark": HOSTILE, "domains": [HOSTILE, "*b", "[c]"], "select": HOSTILE, "protocol": HOSTILE}
    make_run(folder / "run % & _ #", COSDA[0], label=HOSTILE, fingerprint=HOSTILE, **place)
    make_run(folder / "other", COSDA[1], label="*", fingerprint=HOSTILE, **place)
    (folder / "damaged_%&").mkdir()
    (folder / "damaged_%&" / "config.json").write_text('{"kind": "adapt"}', encoding="utf-8")
    return render_report(find_runs([folder]), "tex")


def check(text: str) -> None:
    code = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert environments(code) == []
    assert depth(code) == 0
    bare = without_escapes(code)
    assert bare.count("$") % 2 == 0
    assert "#" not in bare
    assert "_" not in bare
    assert re.findall(r"%.", bare) == []  # only at the end of a line, to swallow its end
    for columns, lines in tables(code):
        for line in lines:
            assert line.endswith(r" \\")
            assert without_escapes(line).count("&") == columns - 1
            assert not line.startswith(("*", "["))  # would belong to the end of the line before


def test_reports_are_sound(runs: list[Run], paper_runs: list[Run]) -> None:
    text = render_report([*runs, *paper_runs], "tex")
    check(text)
    assert len(tables(text)) > 20
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == len(tables(text))
    assert r"\textbf{" in text
    assert r"$^{\dagger}$" in text


def test_hostile_names_stay_names(hostile: str) -> None:
    check(hostile)
    assert r"\textbackslash{}input\{/etc/passwd\}" in hostile
    assert r"\input{" not in hostile.split("\n\n", 1)[1]
    assert r"damaged\_\%\&" in hostile


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a_b & 5%", r"a\_b \& 5\%"),
        ("{x}^2~\\", r"\{x\}\textasciicircum{}2\textasciitilde{}\textbackslash{}"),
        ("$1 #2", r"\$1 \#2"),
        ("-3.20 (-0.5) no-mi", "$-$3.20 ($-$0.5) no-mi"),
        ("a--b – c", "a-{}-b -- c"),
        ("96.0 ± 1 → b", r"96.0 $\pm$ 1 $\rightarrow$ b"),
        ("two\nlines\x00\u2028", "two lines"),
        ("*[é]", "{*}{[}é{]}"),
    ],
)
def test_plain(text: str, shown: str) -> None:
    assert plain(text) == shown


@pytest.mark.skipif(PDFLATEX is None, reason="no pdflatex is installed")
def test_it_compiles(tmp_path: Path, hostile: str, paper_runs: list[Run]) -> None:
    for name, text in (("hostile", hostile), ("paper", render_report(paper_runs, "tex"))):
        (tmp_path / f"{name}.tex").write_text(text, encoding="utf-8")
    (tmp_path / "main.tex").write_text(
        "\\documentclass{article}\\usepackage{booktabs}\\usepackage{graphicx}\n"
        "\\begin{document}\\input{hostile}\\input{paper}\\end{document}\n",
        encoding="utf-8",
    )
    command = [str(PDFLATEX), "-draftmode", "-interaction=nonstopmode", "-halt-on-error", "main.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]
