"""The mutation check, on a made-up package whose tests are known to be weak in one place."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tools.mutants import Tree, chosen_files, concerned_tests, main, mutants

SUMS = '''
"""Sums."""

def total(values, start=0):
    """With 1 + 1 = 2 in the docstring."""
    result = start
    for value in values:
        if value > 1.5 and not value == 7:
            result += value
    assert result >= 0, "1 + 1"
    return max(result, 0, key=abs)
'''


def changed(source: str) -> list[str]:
    """All mutants of a program, each as the one line that is other."""
    before, found = source.encode(), []
    for mutant in mutants(Path("sums.py"), before):
        after = mutant.source(before).decode()
        ast.parse(after)
        pairs = zip(source.splitlines(), after.splitlines(), strict=True)
        [line] = [new.strip() for old, new in pairs if old != new]
        found.append(line)
    return found


def test_all_mutants_of_a_small_program() -> None:
    assert sorted(changed(SUMS)) == sorted(
        [
            "def total(values, start=1):",
            "if (not (value > 1.5 and (not value == 7))):",
            "if (value > 1.5 or not value == 7):",
            "if (value >= 1.5) and not value == 7:",
            "if value > 3.0 and not value == 7:",
            "if value > 1.5 and (value == 7):",
            "if value > 1.5 and not (value != 7):",
            "if value > 1.5 and not value == 8:",
            "result -= value",
            "pass",
            "return None",
            "return min(result, 0, key=abs)",
            "return max(result, 1, key=abs)",
            "return max(result, 0)",
        ]
    )


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("a = x.amax(dim=1)", ["a = x.amin(dim=1)", "a = x.amax()", "a = x.amax(dim=2)"]),
        ("self.x = y", ["pass"]),
        ("x = y", []),
        ("forget(x)", ["pass"]),
        ("a = b - c * d", ["a = (b + c * d)", "a = b - (c / d)"]),
        ("a = 1e-5", ["a = 0.01"]),
        ("a: Literal[3] = True", ["a: Literal[3] = False"]),
        ("zip(a, b, strict=True)", ["pass"]),
        ("a = 1 if b else c", ["a = 1 if (not (b)) else c", "a = 2 if b else c"]),
        ("ä = 'ö' + f'{1 + 1}'", ["ä = ('ö' - f'{1 + 1}')"]),
        ("raise ValueError(1 + 1)", []),
    ],
)
def test_mistakes_of_every_kind(right: str, wrong: list[str]) -> None:
    assert sorted(changed(right)) == sorted(wrong)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    files = {
        "src/pocket/__init__.py": "",
        "src/pocket/sums.py": "def add(a, b):\n    return a + b\n\n\ndef double(a):\n    return add(a, a) * 1\n",
        "src/pocket/mean.py": "from pocket.sums import add\n\n\ndef mean(a, b):\n    return add(a, b) / 2\n",
        "src/pocket/alone.py": "ONE = 1\n",
        "tests/test_sums.py": "from pocket.sums import add\n\n\ndef test_add():\n    assert add(2, 0) == 2\n",
        "tests/test_mean.py": "from pocket.mean import mean\n\n\ndef test_mean():\n    assert mean(2, 4) == 3\n",
        "tests/test_double.py": "from pocket import sums\n\n\ndef test_double():\n    assert sums.double(3) == 6\n",
        "tests/test_wrong.py": "import pocket.sums\n\n\ndef test_wrong():\n    assert False\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_concerned_tests_the_same_name_come_first_then_those_that_import_it_then_those_behind(tree: Path) -> None:
    found = [[test.name for test in ring] for ring in concerned_tests(Path("src/pocket/sums.py"), tree)]
    assert found == [["test_sums.py"], ["test_double.py", "test_wrong.py"], ["test_mean.py"]]
    assert concerned_tests(Path("src/pocket/alone.py"), tree) == []


def test_a_file_a_folder_or_what_there_is_not(tree: Path) -> None:
    assert chosen_files(tree, ["src/pocket/sums.py"]) == [Path("src/pocket/sums.py")]
    assert len(chosen_files(tree, ["src"])) == 4
    with pytest.raises(SystemExit, match=r"there is no .*sumz\.py"):
        chosen_files(tree, ["src/pocket/sumz.py"])


def test_a_mutant_is_noticed_or_survives_and_the_tree_is_as_before(tree: Path) -> None:
    """`test_add` adds 0, so that minus is as good as plus; `test_double` notices."""
    copy, source = Tree(tree, 30), (tree / "src/pocket/sums.py").read_bytes()
    minus = next(one for one in mutants(Path("src/pocket/sums.py"), source) if one.text == "(a - b)")
    weak, good, wrong = (Path(f"tests/test_{name}.py") for name in ("sums", "double", "wrong"))
    assert not copy.notices(minus, [[weak]])
    assert copy.notices(minus, [[wrong], [good]])
    assert copy.usable([wrong, good]) == [good], "a test that fails on the right program shows nothing"
    assert (tree / "src/pocket/sums.py").read_bytes() == source


def test_survivors_are_shown_and_counted(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", str(tree), "--only", "src/pocket/alone.py"]) == 1
    said = capsys.readouterr().out
    assert said.startswith("1 of 1 mutants of 1 files")
    assert "SURVIVED src/pocket/alone.py:1" in said
    assert "-ONE = 1\n+ONE = 2" in said
    assert main(["--root", str(tree), "--only", "src/pocket/mean.py", "--count", "1"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("1 of 3 mutants of 1 files")
    assert "noticed  src/pocket/mean.py:5" in said
