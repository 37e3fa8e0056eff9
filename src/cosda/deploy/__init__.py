"""Files that run without cosda: a model as one graph of tensors, in formats by the name that --format takes."""

from __future__ import annotations

from cosda.deploy.format import Format
from cosda.deploy.onnx import ONNX
from cosda.deploy.torch_export import TORCH_EXPORT
from cosda.deploy.torchscript import TORCHSCRIPT
from cosda.registry import Registry

__all__ = ["FORMATS", "Format"]

FORMATS: Registry[Format] = Registry(
    "format of deployed models",
    {
        "onnx": ONNX,
        "torch-export": TORCH_EXPORT,
        "torchscript": TORCHSCRIPT,
    },
)
