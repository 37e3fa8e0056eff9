"""ONNX: for ONNX Runtime, in any language."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

import torch

from cosda.deploy.format import Array, Description, Format, Run, by_name, silence
from cosda.deploy.graph import Graph
from cosda.deploy.torch_export import traced
from cosda.errors import CosdaError

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
OPSET = 18
LARGEST = 2**31  # bytes of a file of protocol buffers


def check() -> None:
    """An error where a package is missing."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise CosdaError(f"the format onnx needs {' and '.join(missing)}: pip install 'cosda[onnx]'.")


def write(graph: Graph, description: Description) -> bytes:
    """The file; each fact of the description is an entry of its metadata, as JSON."""
    proto = _joined(graph) if graph.parts else _exported(graph)
    for key, value in description.items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, json.dumps(value, ensure_ascii=False)
    if proto.ByteSize() >= LARGEST:
        raise CosdaError(
            "the model takes more than 2 GiB, which an ONNX file cannot. Take --format torch-export; for a domain bank "
            "also --experts separate."
        )
    content: bytes = proto.SerializeToString(deterministic=True)
    return content


def _exported(graph: Graph) -> Any:
    """What the exporter makes of a graph."""
    program = traced(graph)
    with torch.no_grad(), silence():
        exported = torch.onnx.export(
            program,
            dynamo=True,
            input_names=[graph.input],
            output_names=graph.outputs,
            opset_version=OPSET,
            verbose=False,
        )
        assert exported is not None
        proto = exported.model_proto
    _forget_sources(proto)
    return proto


def _joined(bank: Graph) -> Any:
    """Router and experts as one graph, which does what `cosda.models.experts.together` does.

    An expert that gets no image of a batch is left out by an If: not every operator takes a batch of none.
    """
    from onnx import TensorProto, compose, helper

    router, *experts = (_exported(part) for part in bank.parts)
    main, classes, seen = router.graph, bank.parts[1].outputs, bank.parts[1].input

    def constant(name: str, kind: int, values: list[Any], shape: list[int]) -> str:
        main.initializer.append(helper.make_tensor(name, kind, shape, values))
        return name

    def do(operator: str, inputs: list[str], output: str, **how: Any) -> str:
        main.node.append(helper.make_node(operator, inputs, [output], **how))
        return output

    zero, one = (constant(f"bank/{value}", TensorProto.FLOAT, [value], []) for value in (0, 1))
    last = constant("bank/last", TensorProto.INT64, [1], [1])
    tiny = constant("bank/tiny", TensorProto.FLOAT, [1e-30], [])
    width = constant("bank/classes", TensorProto.INT64, [_width(experts[0])], [1])
    shape = do("Concat", [do("Shape", ["shares"], "bank/batch", start=0, end=1), width], "bank/shape", axis=0)
    totals = [do("ConstantOfShape", [shape], f"bank/{name}") for name in classes]
    for number, expert in enumerate(experts):
        own = f"expert-{number}/"
        compose.add_prefix(expert, own, inplace=True)
        router.functions.extend(expert.functions)
        place = constant(f"{own}place", TensorProto.INT64, [number], [])
        share = do("Gather", ["shares", place], f"{own}share", axis=1)
        rows = do("Transpose", [do("NonZero", [share], f"{own}columns")], f"{own}rows")
        do("GatherND", [seen, rows], own + seen)
        part = do("Unsqueeze", [do("GatherND", [share, rows], f"{own}part"), last], f"{own}weight")
        any_ = do("Greater", [do("ReduceMax", [share], f"{own}largest", keepdims=0), zero], f"{own}any")
        answers = [output.name for output in expert.graph.output]
        some = helper.make_graph(expert.graph.node, f"{own}some", [], expert.graph.output, expert.graph.initializer)
        nothing = [helper.make_tensor(f"{name}/none", TensorProto.FLOAT, [0, _width(expert)], []) for name in answers]
        none = helper.make_graph(
            [helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in nothing],
            f"{own}none",
            [],
            [helper.make_tensor_value_info(tensor.name, TensorProto.FLOAT, tensor.dims) for tensor in nothing],
        )
        said = [f"{name}/said" for name in answers]
        main.node.append(helper.make_node("If", [any_], said, then_branch=some, else_branch=none))
        share_of = do("Mul", [said[0], part], f"{own}weighted")
        # Logits are needed of those experts alone that answer alone.
        totals = [
            do("ScatterND", [totals[0], rows, share_of], f"{own}probabilities-so-far", reduction="add"),
            do("ScatterND", [totals[1], rows, said[1]], f"{own}logits-so-far"),
        ]
    largest = do("ReduceMax", ["shares", last], "bank/largest", keepdims=1)
    mixed = do("Less", [largest, one], "bank/mixed")
    do("Identity", [totals[0]], "probabilities")
    logarithm = do("Log", [do("Max", ["probabilities", tiny], "bank/positive")], "bank/logarithm")
    do("Where", [mixed, logarithm, totals[1]], "logits")
    outputs = {output.name: output for output in main.output}
    for name in classes:
        outputs[name] = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", _width(experts[0])])
    del main.output[:]
    main.output.extend(outputs[name] for name in bank.outputs)
    return router


def _width(proto: Any) -> int:
    """How many classes an exported network tells apart."""
    return int(proto.graph.output[0].type.tensor_type.shape.dim[1].dim_value)


def _forget_sources(proto: Any) -> None:
    """Take out whose code each operator came from, which names paths of this machine."""
    for part in (proto, *proto.functions, proto.graph):
        part.ClearField("metadata_props")
    for node in (*proto.graph.node, *(node for function in proto.functions for node in function.node)):
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        value.ClearField("metadata_props")


def open_(content: bytes) -> Run:
    """The file, ready to run on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    options.intra_op_num_threads = torch.get_num_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # torch's threads need the cores, too
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    [asked] = session.get_inputs()
    names = [output.name for output in session.get_outputs()]

    def run(images: Array) -> dict[str, Array]:
        return by_name(names, session.run(names, {asked.name: images}))

    return run


ONNX = Format("ONNX, for ONNX Runtime in any language", ".onnx", check, write, open_)
