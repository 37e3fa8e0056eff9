"""All formats of deployed models by the name that --format takes."""

from __future__ import annotations

from cosda.deploy.formats.base import Format
from cosda.deploy.formats.onnx import ONNX
from cosda.deploy.formats.torch_export import TORCH_EXPORT
from cosda.deploy.formats.torchscript import TORCHSCRIPT
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
