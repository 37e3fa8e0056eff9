"""TorchScript: for programs that have libtorch, in C++ above all."""

from __future__ import annotations

import io
import json

import torch

from cosda.deploy.format import DESCRIPTION, Array, Description, Format, Run, as_text, by_name, silence
from cosda.deploy.graph import Graph


def write(graph: Graph, description: Description) -> bytes:
    """The file. Freezing puts the weights into the graph, where BatchNorm is folded into convolutions."""
    content = io.BytesIO()
    with torch.no_grad(), silence():
        graph.module(graph.example)  # what is computed once must be there, and not be traced
        traced = torch.jit.trace(graph.module, graph.example, check_trace=False)  # type: ignore[no-untyped-call]
        frozen = torch.jit.freeze(traced)
        torch.jit.save(frozen, content, _extra_files={DESCRIPTION: as_text(description)})
    return content.getvalue()


def open_(content: bytes) -> Run:
    """The file, ready to run."""
    said = {DESCRIPTION: ""}
    with silence():
        module = torch.jit.load(io.BytesIO(content), _extra_files=said)  # type: ignore[no-untyped-call]
    names = json.loads(said[DESCRIPTION])["outputs"]

    def run(images: Array) -> dict[str, Array]:
        with torch.no_grad(), silence():
            return by_name(names, module(torch.from_numpy(images)))

    return run


TORCHSCRIPT = Format("TorchScript, for libtorch in C++", ".pt", lambda: None, write, open_)
