"""On what a run was made."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

import torch

from cosda.records import Json

PACKAGES = ("cosda", "torch", "numpy", "kornia", "safetensors", "scikit-learn", "pillow")


def describe_environment(device: torch.device) -> Json:
    """Versions and machine, without names or paths of the user's."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:  # run from a source tree that is not installed
            versions[package] = "unknown"
    return {
        "python": platform.python_version(),
        "versions": versions,
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
    }
