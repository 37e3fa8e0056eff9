"""Make the outputs of the notebooks anew: `python -m tools.notebooks`, or with the names of some of them.

Each is executed from nothing in a folder of its own. What is stored is what a reader wants to see: text, tables, small
pictures. Times, numbers of executions and everything else that differs between two equal executions is left out.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("JUPYTER_PLATFORM_DIRS", "1")  # or jupyter_core warns that it will look elsewhere one day

import nbformat
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

from cosda.files import write_atomically

FOLDER = Path(__file__).parents[1] / "notebooks"
LONGEST = 300  # seconds of one cell
COMMAND = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=ERROR"]


class OwnKernel(AsyncKernelManager):
    """This Python, whatever kernels are installed."""

    @property
    def kernel_spec(self) -> KernelSpec:
        """How it is started."""
        return KernelSpec(argv=COMMAND, display_name="Python 3", language="python")


def paths() -> list[Path]:
    """All notebooks, in their order."""
    return sorted(FOLDER.glob("*.ipynb"))


def read(path: Path) -> nbformat.NotebookNode:
    """A notebook as it is stored."""
    return nbformat.read(path, as_version=4)


def execute(notebook: nbformat.NotebookNode, folder: Path) -> nbformat.NotebookNode:
    """The notebook with fresh outputs; it is executed in the folder, and its cache and Jupyter's files lie there too.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell fails; the message holds the cell and its traceback.
    """
    fresh = nbformat.from_dict(notebook)
    for cell in fresh.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    aside, work = folder / "aside", folder / "work"
    for place in (aside, work):
        place.mkdir(parents=True)
    environment = os.environ | {name: str(aside / name.lower()) for name in ("IPYTHONDIR", "COSDA_CACHE")}
    client = NotebookClient(
        fresh, timeout=LONGEST, kernel_manager_class=OwnKernel, resources={"metadata": {"path": str(work)}}
    )
    client.execute(env=environment)
    return tidy(fresh)


def tidy(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook as it is stored: two equal executions give equal files."""
    found = nbformat.v4.new_notebook(metadata={"kernelspec": KERNEL, "language_info": {"name": "python"}})
    for number, cell in enumerate(notebook.cells, start=1):
        name, text = f"cell-{number:02}", cell.source.rstrip()
        if cell.cell_type == "code":
            outputs = list(map(_tidy, together(cell.outputs)))
            found.cells.append(nbformat.v4.new_code_cell(text, id=name, outputs=outputs))
        else:
            found.cells.append(nbformat.v4.new_markdown_cell(text, id=name))
    nbformat.validate(found)
    return found


KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def together(outputs: list[Any]) -> list[Any]:
    """What a cell printed in several goes is one output."""
    found: list[Any] = []
    for output in outputs:
        same = found and output.output_type == "stream" and found[-1].get("name") == output.name
        if same:
            found[-1].text += output.text
        else:
            found.append(output)
    return found


def _tidy(output: Mapping[str, Any]) -> Any:
    kind = output["output_type"]
    if kind == "stream":
        return nbformat.v4.new_output(
            kind, name=output["name"], text=re.sub(r"[ \t]+$", "", output["text"], flags=re.M)
        )
    # Markdown and HTML are for readers; Python's name of the object beside them has an address.
    data = {
        form: content for form, content in output["data"].items() if form != "text/plain" or "<IPython" not in content
    }
    if "image/png" in data:
        data = {"image/png": data["image/png"]}
    return nbformat.v4.new_output("display_data", data=data)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="such as first-adaptation; all of them where none is named")
    asked = parser.parse_args()
    if unknown := set(asked.names) - {path.stem for path in paths()}:
        parser.error(
            f"there is no notebook {', '.join(sorted(unknown))}; there are {', '.join(p.stem for p in paths())}"
        )
    for path in paths():
        if not asked.names or path.stem in asked.names:
            with tempfile.TemporaryDirectory() as folder:
                made = execute(read(path), Path(folder))
            write_atomically(path, nbformat.writes(made, version=4) + "\n")
            print(path.name)
