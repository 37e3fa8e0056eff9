"""The files around the code: workflows call targets that exist, templates are forms, the citation is up to date."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import cosda

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(workflow: Path) -> list[dict[str, Any]]:
    return [step for job in load(workflow)["jobs"].values() for step in job["steps"]]


def called(text: str) -> set[str]:
    """The targets of make in a text."""
    return set(re.findall(r"^\s*make (\w+)", text, flags=re.MULTILINE))


def targets() -> set[str]:
    return set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_targets_that_exist(workflow):
    made = {target for step in steps(workflow) for target in called(step.get("run", ""))}
    assert made
    assert made <= targets()
    for step in steps(workflow):
        assert ("run" in step) != ("uses" in step)
        assert "uses" not in step or re.search(r"@[\w./]+$", step["uses"])
    assert load(workflow)["permissions"] == {"contents": "read"}
    assert load(workflow)["env"]["PIP_EXTRA_INDEX_URL"] in (ROOT / "docs" / "install.md").read_text(encoding="utf-8")


def test_the_workflow_does_what_the_projects_own_check_does():
    made = {target for step in steps(ROOT / ".github/workflows/ci.yml") for target in called(step.get("run", ""))}
    own = called((ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    assert own
    assert own <= made


def test_every_supported_python_is_tested():
    matrix = load(ROOT / ".github/workflows/ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert matrix == re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)
    assert f'requires-python = ">={matrix[0]}"' in project


def test_publishing_needs_no_password():
    workflow = ROOT / ".github/workflows/publish.yml"
    assert load(workflow)["jobs"]["publish"]["permissions"] == {"id-token": "write"}
    assert load(workflow)["jobs"]["publish"]["needs"] == "build"
    assert not re.search(r"password|secrets\.", re.sub(r"#.*", "", workflow.read_text(encoding="utf-8")))


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.name)
def test_issue_templates_are_forms(form):
    content = load(form)
    assert {"name", "description", "body"} <= set(content)
    names = [field["id"] for field in content["body"]]
    assert len(names) == len(set(names))
    for field in content["body"]:
        assert field["type"] in ("input", "textarea", "checkboxes", "dropdown", "markdown")
        assert field["attributes"]["label"]


def test_the_citation_names_this_version_and_the_paper():
    citation = load(ROOT / "CITATION.cff")
    assert citation["version"] == cosda.__version__
    sections = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    released = [section for section in sections if section != "Unreleased"]  # which comes first, where there is one
    assert sections[-len(released) :] == released
    assert released[0] == f"{cosda.__version__} ({citation['date-released']})"
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    [paper] = citation["references"]
    assert paper["url"].rpartition("/")[2] in (ROOT / "README.md").read_text(encoding="utf-8")
    assert [author["family-names"] for author in paper["authors"]][:2] == ["Feng", "Yang"]
    assert f'license = "{citation["license"]}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
