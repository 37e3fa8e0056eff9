"""Formats of graphs by the ending of their files."""

from __future__ import annotations

from cosda.models.graphs import onnx, pt2
from cosda.models.graphs.base import Format, Last, Runner, Shape

__all__ = ["FORMATS", "Format", "Last", "Runner", "Shape"]

FORMATS = {
    "onnx": Format("ONNX", onnx.read, onnx.shape, onnx.last_layer, onnx.open_graph),
    "pt2": Format("torch.export", pt2.read, pt2.shape, pt2.last_layer, pt2.open_graph),
}
