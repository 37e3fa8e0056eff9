"""Formats of graphs by the ending of their files."""

from __future__ import annotations

from cosda.models.graphs import onnx, pt2
from cosda.models.graphs.base import Format, Last, Opened, Runner, Shape

__all__ = ["FORMATS", "Format", "Last", "Opened", "Runner", "Shape"]

FORMATS = {
    "onnx": Format("ONNX", onnx.read, onnx.Opened),
    "pt2": Format("torch.export", pt2.read, pt2.Opened),
}
