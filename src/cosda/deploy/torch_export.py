"""torch.export: torch's own graph, for torch in Python and for compilers of it."""

from __future__ import annotations

import io
import json

import torch
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule

from cosda.deploy.format import DESCRIPTION, Array, Description, Format, Run, as_text, by_name, silence
from cosda.deploy.graph import Graph

DEMANDS = (torch.ops.aten._assert_scalar.default, torch.ops.aten.sym_constrain_range_for_size.default)
SOURCES = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn")  # the paths and names of whose code it was


def traced(graph: Graph) -> ExportedProgram:
    """The graph for batches of any size."""
    with torch.no_grad(), silence():
        graph.module(graph.example)  # what is computed once must be there, and not be traced
        program = torch.export.export(
            graph.module, (graph.example,), dynamic_shapes=({0: Dim("batch", min=1)},), strict=False
        )
    for module in program.graph_module.modules():
        if isinstance(module, GraphModule):
            for node in module.graph.nodes:
                node.meta = {key: value for key, value in node.meta.items() if key not in SOURCES}
            for node in [node for node in module.graph.nodes if node.target in DEMANDS]:
                module.graph.erase_node(node)  # an expert may get no image of a batch
            module.graph.eliminate_dead_code()
            module.recompile()
    for name, value in program.constants.items():
        if isinstance(value, torch.Tensor):
            program.constants[name] = value.contiguous().clone()  # not a view of something larger
    return program


def write(graph: Graph, description: Description) -> bytes:
    """The file."""
    content = io.BytesIO()
    program = traced(graph)
    with silence():
        torch.export.save(program, content, extra_files={DESCRIPTION: as_text(description)})
    return content.getvalue()


def open_(content: bytes) -> Run:
    """The file, ready to run."""
    said = {DESCRIPTION: ""}
    with silence():
        module = torch.export.load(io.BytesIO(content), extra_files=said).module()
    names = json.loads(said[DESCRIPTION])["outputs"]

    def run(images: Array) -> dict[str, Array]:
        with torch.no_grad():
            return by_name(names, module(torch.from_numpy(images)))

    return run


TORCH_EXPORT = Format("torch.export, for torch and its compilers", ".pt2", lambda: None, write, open_)
