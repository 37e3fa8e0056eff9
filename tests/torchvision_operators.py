"""The two operators without which torchvision cannot be imported beside a CPU build of torch.

As a program: runs a script of somebody's with these operators, as it would run where torchvision fits torch.
"""

import importlib.util
import runpy
import sys

import torch

KEPT_ALIVE = []  # a library's operators vanish with the object that declared them


def declare_torchvision_operators() -> None:
    """Detection needs nms and qnms; classifiers only need them to exist."""
    if KEPT_ALIVE or importlib.util.find_spec("torchvision") is None:
        return
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        KEPT_ALIVE.append(library)


if __name__ == "__main__":
    declare_torchvision_operators()
    runpy.run_path(sys.argv[1], run_name="__main__")
