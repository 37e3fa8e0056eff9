"""On what a run is made, and how its networks compute there."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

import torch

from cosda.distributed import collectives
from cosda.files import Json, write_json
from cosda.models.precision import Arithmetic, Precision, lacking
from cosda.records.folder import RunFolder
from cosda.registry import packages_used
from cosda.watch import Watcher

PACKAGES = ("cosda", "torch", "numpy", "kornia", "safetensors", "scikit-learn", "pillow")


def open_arithmetic(precision: Precision, compiled: bool, device: torch.device, watcher: Watcher) -> Arithmetic:
    """The arithmetic that was asked for, as far as the device has it; otherwise float32, and a note that says so."""
    reason = lacking(precision, device)
    if reason:
        watcher.note(f"{reason}, so everything is computed in float32 and precision {precision} is not used")
    return Arithmetic("32" if reason else precision, compiled)


def write_environment(folder: RunFolder, device: torch.device, arithmetic: Arithmetic) -> None:
    """Note in a run folder on what it is made."""
    if collectives.is_main():
        write_json(folder.path / "environment.json", describe_environment(device, arithmetic))


def describe_environment(device: torch.device, arithmetic: Arithmetic) -> Json:
    """Versions and machine, without names or paths of the user's."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:  # run from a source tree that is not installed
            versions[package] = "unknown"
    return {
        "python": platform.python_version(),
        "versions": versions | packages_used(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": collectives.world(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "precision": arithmetic.precision,
        "compiled": arithmetic.compiled,
    }
