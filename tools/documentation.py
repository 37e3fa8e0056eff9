"""What mkdocs is told of this repository: pages that are made or lie elsewhere, and Markdown as a code host reads it.

A hook of mkdocs (see mkdocs.yml). The site has the pages of docs/, the reference (`tools.reference`), and whatever file
of the repository a page links to: a page such as CONTRIBUTING.md as it is; a script, a notebook or a folder of scripts
as a page that shows it. None of this is written to the disk, so it cannot be out of date.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from tools.reference import pages

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<=\]\()[^)\s#:]+(?=[)#])")  # of Markdown: the path; addresses with a scheme have a colon
# How much a page counts in the search: who looks for a word wants the page about it, before the tables that have it.
WEIGHTS = (
    (re.compile(r"results/|reference/presets/"), 0.2),
    (re.compile(r"examples/|performance|scale|published|REPRODUCED|CHANGELOG"), 0.5),
    (re.compile(r"bank|carry|deploy|verdict|monitor|guides/|tutorials/|concepts/|reference/(settings|commands)"), 2.0),
)
LANGUAGES = {".py": "python", ".sh": "sh", ".toml": "toml", ".yml": "yaml"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and those that others link to."""
    try:
        made = pages()
    except ValueError as error:
        raise PluginError(str(error)) from None
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    seen, waiting = set(), [f"docs/{file.src_uri}" for file in files.documentation_pages()] + ["CHANGELOG.md"]
    while waiting:
        path = waiting.pop()
        if path in seen or not (ROOT / path).exists():  # a made page, or a link that mkdocs will complain of
            continue
        seen.add(path)
        if not path.startswith("docs/"):
            files.append(File.generated(config, in_site(path), content=shown(path), inclusion=level(path)))
        if path.endswith(".md"):
            linked = (reached(path, target) for target in LINK.findall((ROOT / path).read_text(encoding="utf-8")))
            waiting += [other for other in linked if other != "README.md"]
    return files


def level(path: str) -> InclusionLevel:
    """Pages at the root have their places in the navigation; what else is linked to need not have one."""
    return InclusionLevel.NOT_IN_NAV if "/" in path else InclusionLevel.UNDEFINED


def in_site(path: str) -> str:
    """Where in the site a file of the repository is."""
    if path == "README.md":
        return "index.md"  # the front page takes its place
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return path if path.endswith(".md") else f"{path}.md"


def in_repository(page: str) -> str:
    """The file that a page of the site shows."""
    if (ROOT / "docs" / page).is_file():
        return f"docs/{page}"
    return page if (ROOT / page).exists() else page.removesuffix(".md")


def reached(path: str, target: str) -> str:
    """The file to which a relative link in a file leads, both from the root of the repository."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target))


def shown(path: str) -> str:
    """A file or folder of the repository as a page."""
    place = ROOT / path
    if place.is_dir():
        parts = [f"## {file.name}\n\n{block(file)}" for file in sorted(place.iterdir()) if file.suffix in LANGUAGES]
        return "\n\n".join([f"# {place.name}", *parts]) + "\n"
    if place.suffix == ".md":
        return place.read_text(encoding="utf-8")
    if place.suffix == ".ipynb":
        return "\n\n".join(cells(json.loads(place.read_text(encoding="utf-8")))) + "\n"
    return f"# {place.name}\n\n{block(place)}\n"


def block(file: Path) -> str:
    """The text of a file as a block of code."""
    return f"````{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text(encoding='utf-8').rstrip()}\n````"


def cells(notebook: dict[str, Any]) -> Iterator[str]:
    """The cells of a notebook, with the outputs that are stored in it."""
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield text
        elif text:
            yield f"````python\n{text}\n````"
        for output in cell.get("outputs", ()):
            yield from output_of(output)


def output_of(output: dict[str, Any]) -> Iterator[str]:
    """What a cell printed or returned: a picture, a table, or text."""
    data = output.get("data", {})
    if "image/svg+xml" in data:
        yield f'<div class="output">{"".join(data["image/svg+xml"])}</div>'
    elif "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        yield f'<img class="output" alt="" src="data:image/png;base64,{picture}">'
    elif "text/html" in data:
        yield f'<div class="output">{"".join(data["text/html"])}</div>'
    elif "text/markdown" in data:
        yield f'<div class="output" markdown>\n\n{"".join(data["text/markdown"])}\n\n</div>'
    elif text := "".join(output.get("text", data.get("text/plain", ()))).rstrip():
        yield f"````{{.text .output}}\n{text}\n````"


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links lead to pages of the site; lists are those that a code host sees."""
    file = in_repository(page.file.src_uri)
    page.meta["search"] = {
        "boost": next((weight for places, weight in WEIGHTS if places.match(page.file.src_uri)), 1.0)
    }
    parts = re.split(r"(^```.*?^```+$)", markdown, flags=re.MULTILINE | re.DOTALL)
    link = partial(relinked, file, page.file.src_uri)
    parts[::2] = [LINK.sub(lambda found: link(found[0]), as_on_a_code_host(part)) for part in parts[::2]]
    return "".join(parts)


def relinked(file: str, page: str, target: str) -> str:
    """A link of a file, on the page that shows it."""
    place = reached(file, target)
    if not (ROOT / place).exists():
        return target  # a made page, which only the site has
    return posixpath.relpath(in_site(place), posixpath.dirname(page) or ".")


def as_on_a_code_host(markdown: str) -> str:
    """Two things that Python-Markdown wants: an empty line before a list, and four spaces before a list within one."""
    markdown = re.sub(r"^((?![*-] |\d+\. |\s|\||#|>).+\n)(?=[*-] |1\. )", r"\1\n", markdown, flags=re.MULTILINE)
    return re.sub(r"^ {2,3}(?=[*-] )", "    ", markdown, flags=re.MULTILINE)
