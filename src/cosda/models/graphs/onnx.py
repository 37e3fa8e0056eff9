"""ONNX files, computed by onnxruntime."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cosda.errors import CosdaError
from cosda.models.encoders.external import import_library
from cosda.models.encoders.weights import first_line
from cosda.models.graphs.base import Last, Shape

# What may stand between the last layer and the output.
AFTER = ("Softmax", "LogSoftmax", "Identity", "Cast", "Flatten", "Reshape", "Squeeze")


class Opened:
    """The graph of an ONNX file."""

    def __init__(self, content: bytes) -> None:
        import_library("onnxruntime", "onnx")
        self.content, self.graph = content, _parse(content).graph
        self.stored = {each.name: each for each in self.graph.initializer}

    def shape(self) -> Shape:
        """What the graph says of its input."""
        kind = _input(self.graph).type.tensor_type
        sides = [side.dim_value or None for side in kind.shape.dim]
        if (
            kind.elem_type != import_library("onnx", "onnx").TensorProto.FLOAT
            or len(sides) != 4
            or sides[1] not in (None, 3)
        ):
            found = ", ".join("any" if side is None else str(side) for side in sides)
            raise CosdaError(
                f"the graph's input is ({found}), where images (B, 3, H, W) in float32 are needed. Export the network "
                "with such an input."
            )
        return Shape(sides[0], sides[2])

    def last_layer(self) -> Last | None:
        """A Gemm, or a MatMul with or without an Add, if the output comes from one."""
        made_by = {name: node for node in self.graph.node for name in node.output}
        node = made_by.get(_output(self.graph))
        while node is not None and node.op_type in AFTER:
            node = made_by.get(node.input[0])
        if node is None:
            return None
        if node.op_type == "Gemm":
            facts = {each.name: each.f or each.i for each in node.attribute}
            weight = self._stored(node.input[1])
            if weight is None or facts.get("transA") or {facts.get("alpha", 1), facts.get("beta", 1)} != {1}:
                return None
            bias = self._stored(node.input[2]) if len(node.input) > 2 else None
            return Last(node.input[0], weight if facts.get("transB") else weight.T, bias)
        bias = None
        if node.op_type == "Add":
            known = [name for name in node.input if name in self.stored]
            others = [made_by.get(name) for name in node.input if name not in self.stored]
            if len(known) != 1 or others[0] is None:
                return None
            bias, node = self._stored(known[0]), others[0]
        weight = self._stored(node.input[1]) if node.op_type == "MatMul" else None
        return None if weight is None or weight.ndim != 2 else Last(node.input[0], weight.T, bias)

    def _stored(self, name: str) -> Tensor | None:
        arrays = import_library("onnx.numpy_helper", "onnx")
        return torch.tensor(arrays.to_array(self.stored[name])) if name in self.stored else None

    def runner(self, tensor: str | None) -> _Runner:
        """What computes one of the graph's tensors."""
        return _Runner(self.content, tensor)


class _Runner:
    def __init__(self, content: bytes, tensor: str | None) -> None:
        self.content, self.tensor = content, tensor

    def __deepcopy__(self, memo: Any) -> _Runner:
        return self

    @cached_property
    def _session(self) -> tuple[Any, str, str]:
        """onnxruntime's session, with the names of input and output; made late, when the number of threads is set."""
        model = _parse(self.content)
        graph = model.graph
        name = self.tensor or _output(graph)
        if name not in [output.name for output in graph.output]:
            graph.output.append(import_library("onnx", "onnx").ValueInfoProto(name=name))
        runtime = import_library("onnxruntime", "onnx")
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 3
        session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return session, _input(graph).name, name

    def __call__(self, images: Tensor) -> Tensor:
        """The tensor, on the CPU."""
        session, given, wanted = self._session
        (values,) = session.run([wanted], {given: images.detach().float().cpu().contiguous().numpy()})
        return torch.from_numpy(values)


def read(path: Path) -> bytes:
    """The content of a file, with weights that lie in files beside it."""
    content = path.read_bytes()
    if not any(each.data_location for each in _parse(content, str(path)).graph.initializer):
        return content
    try:
        whole: bytes = import_library("onnx", "onnx").load(str(path)).SerializeToString()
    except Exception as error:
        raise CosdaError(f"{path} has weights in other files, which cannot be read: {first_line(error)}.") from None
    return whole


def _parse(content: bytes, where: str = "the file") -> Any:
    try:
        model = import_library("onnx", "onnx").load_model_from_string(content)
    except CosdaError:
        raise
    except Exception as error:  # protobuf's DecodeError
        raise CosdaError(f"{where} is no ONNX file: {first_line(error)}.") from None
    if not model.graph.output:
        raise CosdaError(f"{where} is no ONNX file: it has no graph.")
    return model


def _input(graph: Any) -> Any:
    """The input; older files name weights among the inputs too."""
    stored = {each.name for each in graph.initializer}
    given = [each for each in graph.input if each.name not in stored]
    if len(given) != 1:
        names = ", ".join(each.name for each in given) or "none"
        raise CosdaError(f"a classifier of images has one input, but this graph has {len(given)}: {names}.")
    return given[0]


def _output(graph: Any) -> str:
    """The name of the output: the one that is called logits, else the first."""
    names = [str(each.name) for each in graph.output]
    return "logits" if "logits" in names else names[0]
