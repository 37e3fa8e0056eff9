"""Files of torch.export, which are computed by torch, and only if nothing in them can be code.

torch.export.load is not safe by itself: it unpickles objects and some weights, evaluates the formulas of sizes as
Python, and turns any dotted name below `torch` into a function that the graph calls. Files that `torch.export.save`
writes of a plain network need none of this. So a file is read first as what it is, JSON and raw tensors, and refused
where anything in it goes beyond.
"""

from __future__ import annotations

import copy
import io
import json
import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cosda.errors import CosdaError
from cosda.models.encoders.weights import first_line
from cosda.models.graphs.base import Last, Shape

PROGRAM, INPUTS = "models/model.json", "data/sample_inputs/model.pt"
CONFIGS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
FILES = re.compile(
    r"(models/model\.json|data/weights/(weight_\d+|model_weights_config\.json)|extra/.*|byteorder"
    r"|data/constants/(tensor_\d+|model_constants_config\.json)|data/sample_inputs/model\.pt"
    r"|archive_format|archive_version|\.data/.*|\.format_version|\.storage_alignment)"
)
OPERATORS = re.compile(
    r"torch\.ops\.(aten|quantized_decomposed|torchvision|higher_order)\.\w+(\.\w+)?|torch\.sym_\w+"
    r"|_operator\.(getitem|add|sub|mul|floordiv|truediv|mod|neg|pow|eq|ne|lt|le|gt|ge|and_|or_)"
)
READS_FILES = "torch.ops.aten.from_file"
SIZES = re.compile(  # formulas of sizes, such as Add(Symbol('s31', positive=True, integer=True), Integer(1))
    r"(Symbol\('[a-z]+\d+'|Integer|Add|Mul|Pow|Mod|PythonMod|FloorDiv|CleanDiv|CeilDiv|Max|Min|[a-z]++\d++"
    r"|(positive|nonnegative|integer)=True|[\s\d+\-*/(),<>])*"
)
PLAIN = re.compile(r"[\w.+:\-]*")  # names; nothing that could be called, wherever torch writes them into a program
TREES = ("builtins.tuple", "builtins.list", "builtins.dict")  # in which inputs and outputs may stand
KEYS = re.compile(r'null|\[("\w*"(, )?)*\]')  # of such a dict
AFTER = ("softmax.int", "log_softmax.int", "_softmax.default", "_log_softmax.default", "view.default", "clone.default")


class Opened:
    """The graph of a file of torch.export."""

    def __init__(self, content: bytes) -> None:
        self.made = _open(content)

    def shape(self) -> Shape:
        """What the graph says of its input."""
        inputs = [node for node in self.made.graph.nodes if node.op == "placeholder"]
        if len(inputs) != 1:
            raise CosdaError(f"a classifier of images has one input, but this graph has {len(inputs)}.")
        sides = [side if isinstance(side, int) else None for side in inputs[0].meta["val"].shape]
        if len(sides) != 4 or sides[1] != 3:
            found = ", ".join("any" if side is None else str(side) for side in sides)
            raise CosdaError(f"the graph's input is ({found}), where images (B, 3, H, W) are needed.")
        return Shape(sides[0], sides[2])

    def last_layer(self) -> Last | None:
        """A Linear layer, if the output comes from one."""
        found = _end(self.made.graph).args[0]
        node = found[0] if isinstance(found, list | tuple) and found else found
        while isinstance(node, torch.fx.Node) and any(str(node.target) == f"aten.{name}" for name in AFTER):
            node = node.args[0]
        if not isinstance(node, torch.fx.Node) or str(node.target) != "aten.linear.default":
            return None
        state = {**dict(self.made.named_parameters()), **dict(self.made.named_buffers())}
        tensors = [state.get(str(each.target)) if isinstance(each, torch.fx.Node) else None for each in node.args[1:]]
        before, weight, bias = node.args[0], tensors[0], tensors[1] if len(tensors) > 1 else None
        if not isinstance(before, torch.fx.Node) or weight is None:
            return None
        return Last(before.name, weight.detach(), None if bias is None else bias.detach())

    def runner(self, tensor: str | None) -> _Runner:
        """What computes one of the graph's tensors; its weights are shared."""
        if tensor is None:
            return _Runner(self.made)
        with _quiet():
            graph = copy.deepcopy(self.made.graph)
        _end(graph).args = ((next(node for node in graph.nodes if node.name == tensor),),)
        return _Runner(torch.fx.GraphModule(self.made, graph))


class _Runner:
    def __init__(self, made: torch.fx.GraphModule) -> None:
        self.made = made

    def __deepcopy__(self, memo: Any) -> _Runner:
        return self

    def __call__(self, images: Tensor) -> Tensor:
        """The tensor, on the CPU."""
        with torch.no_grad():
            given: Any = self.made(images.detach().float().cpu().contiguous())
        found = given.get("logits") if isinstance(given, dict) else given
        found = found[0] if isinstance(found, list | tuple) else found
        if not isinstance(found, Tensor):
            raise CosdaError(f"it gives a {type(given).__name__}; export a module that gives logits (B, C)")
        return found


def read(path: Path) -> bytes:
    """The content of a file."""
    return path.read_bytes()


def _end(graph: torch.fx.Graph) -> torch.fx.Node:
    end: torch.fx.Node = next(node for node in graph.nodes if node.op == "output")
    return end


def _open(content: bytes) -> torch.fx.GraphModule:
    """The graph as a module of torch.

    Raises:
        CosdaError: it is no such file, holds something that would have to be unpickled or run, or is of another torch.
    """
    _check(content)
    from torch.export.pt2_archive._package import load_pt2

    try:
        with _quiet():
            program = load_pt2(io.BytesIO(content)).exported_programs["model"]
            program._guards_code = []  # Python that would be run to check the input
            made = program.module()
    except Exception as error:  # whatever torch raises for a file of another version
        raise CosdaError(
            f"the file cannot be opened by this torch, {torch.__version__}: {first_line(error)}. Export the network "
            "again with torch.export.save of this version."
        ) from error
    assert isinstance(made, torch.fx.GraphModule)
    return made


@contextmanager
def _quiet() -> Iterator[None]:
    """Within the block torch does not tell what it falls back on, and what of itself is deprecated."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _check(content: bytes) -> None:
    """An error where anything in a file could be code."""

    def refuse(what: str) -> CosdaError:
        return CosdaError(
            f"the file is refused: it holds {what}, and that can be code, which cosda never runs from a file. Import "
            "the network's weights with --build MODULE:FUNCTION, or an ONNX file of it."
        )

    try:
        from torch.export.pt2_archive._package import PT2ArchiveReader

        reader = PT2ArchiveReader(io.BytesIO(content))
        names = reader.get_file_names()
    except Exception as error:
        raise CosdaError(
            f"this is no file of torch.export.save as torch {torch.__version__} writes it: {first_line(error)}."
        ) from None
    for name in names:
        if not FILES.fullmatch(name):
            raise refuse(f"'{name}'")
    if len(set(names)) != len(names):
        raise refuse("two files of one name")
    try:
        program, *configs = (json.loads(reader.read_bytes(name)) for name in (PROGRAM, *CONFIGS))
        payloads = [each for config in configs for each in config["config"].values()]
        if any(each["use_pickle"] is not False or "/" in each["path_name"] for each in payloads):
            raise refuse("a pickle among its weights")
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:  # RecursionError is the last one
        raise CosdaError(f"the file is damaged: {type(error).__name__}, {first_line(error)[:200]}.") from None
    try:
        torch.load(io.BytesIO(reader.read_bytes(INPUTS)), weights_only=True)
    except Exception as error:
        raise refuse(f"a pickle as its example ({first_line(error)})") from None
    for key, text in _texts(program):
        if not _is_harmless(key, text):
            raise refuse(f"{text[:60]!r} as {key or 'a name'}")


def _is_harmless(key: str, text: str) -> bool:
    """Whether a text of a program cannot be code."""
    if key == "target":
        return bool(OPERATORS.fullmatch(text)) and not text.startswith(READS_FILES)
    if key in ("in_spec", "out_spec"):
        return all(
            one in TREES if part == "type" else KEYS.fullmatch(one) if part == "context" else PLAIN.fullmatch(one)
            for part, one in _texts(json.loads(text))
        )
    return bool((SIZES if key == "expr_str" else PLAIN).fullmatch(text))


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """All texts of a JSON value with the key under which they stand; keys too. What torch only shows is left out."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each, key)
    elif isinstance(value, dict):
        for name, each in value.items():
            yield "", name
            if name not in ("metadata", "guards_code"):
                yield from _texts(each, name)
