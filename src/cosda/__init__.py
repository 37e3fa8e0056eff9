"""Continual source-free domain adaptation.

    model = cosda.load("source-model")
    result = cosda.adapt(model, "photos/new-site", method="cosda")
    result.model.save("adapted-model")

Names are loaded when they are first used, so ``import cosda`` is quick and does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cosda.api import (
        Check,
        Evaluation,
        Result,
        adapt,
        diff,
        evaluate,
        export,
        monitor,
        predict,
        profile,
        run_chain,
        train_source,
    )
    from cosda.config.request import Options
    from cosda.data.benchmarks import load as load_benchmark
    from cosda.data.domain import Benchmark, Domain, Files, Images, Items
    from cosda.data.inputs import load_domain
    from cosda.data.torch_dataset import Indexable
    from cosda.deploy.export import Exported
    from cosda.errors import CosdaError
    from cosda.judge.monitor import Drift
    from cosda.methods import METHODS
    from cosda.methods.base import Group, Method, Progress, TargetImages
    from cosda.models.architecture import Architecture
    from cosda.models.artifact import Model, load
    from cosda.models.calibration import Calibration
    from cosda.models.history import history
    from cosda.models.importing import import_model
    from cosda.models.network import Network
    from cosda.models.profile import DomainProfile
    from cosda.models.wrap import wrap
    from cosda.preprocessing import Preprocessing
    from cosda.records.images import ComparedImage
    from cosda.records.lineage import Step
    from cosda.records.run import RoutedImages, Run, find_runs
    from cosda.records.verdict import Checked, Counted, Estimate, Said, Verdict
    from cosda.report import write_report
    from cosda.report.diff.changes import Diff
    from cosda.report.diff.files import write_diff
    from cosda.run.machine import Machine
    from cosda.run.predictions import Prediction, Route
    from cosda.run.predictor import Predictor
    from cosda.settings import setting
    from cosda.types import Batch, Output
    from cosda.watch import Watcher

__version__ = "0.2.0"  # the only place; pyproject.toml takes it from here

_PLACES = {
    "METHODS": "cosda.methods",
    "Architecture": "cosda.models.architecture",
    "Batch": "cosda.types",
    "Benchmark": "cosda.data.domain",
    "Calibration": "cosda.models.calibration",
    "Check": "cosda.api",
    "Checked": "cosda.records.verdict",
    "ComparedImage": "cosda.records.images",
    "CosdaError": "cosda.errors",
    "Counted": "cosda.records.verdict",
    "Diff": "cosda.report.diff.changes",
    "Domain": "cosda.data.domain",
    "DomainProfile": "cosda.models.profile",
    "Drift": "cosda.judge.monitor",
    "Estimate": "cosda.records.verdict",
    "Evaluation": "cosda.api",
    "Exported": "cosda.deploy.export",
    "Files": "cosda.data.domain",
    "Group": "cosda.methods.base",
    "Images": "cosda.data.domain",
    "Indexable": "cosda.data.torch_dataset",
    "Items": "cosda.data.domain",
    "Machine": "cosda.run.machine",
    "Method": "cosda.methods.base",
    "Model": "cosda.models.artifact",
    "Network": "cosda.models.network",
    "Options": "cosda.config.request",
    "Output": "cosda.types",
    "Prediction": "cosda.run.predictions",
    "Predictor": "cosda.run.predictor",
    "Preprocessing": "cosda.preprocessing",
    "Progress": "cosda.methods.base",
    "Result": "cosda.api",
    "Route": "cosda.run.predictions",
    "RoutedImages": "cosda.records.run",
    "Run": "cosda.records.run",
    "Said": "cosda.records.verdict",
    "Step": "cosda.records.lineage",
    "TargetImages": "cosda.methods.base",
    "Verdict": "cosda.records.verdict",
    "Watcher": "cosda.watch",
    "adapt": "cosda.api",
    "diff": "cosda.api",
    "evaluate": "cosda.api",
    "export": "cosda.api",
    "find_runs": "cosda.records.run",
    "history": "cosda.models.history",
    "import_model": "cosda.models.importing",
    "load": "cosda.models.artifact",
    "load_benchmark": "cosda.data.benchmarks:load",
    "load_domain": "cosda.data.inputs",
    "monitor": "cosda.api",
    "predict": "cosda.api",
    "profile": "cosda.api",
    "run_chain": "cosda.api",
    "setting": "cosda.settings",
    "train_source": "cosda.api",
    "wrap": "cosda.models.wrap",
    "write_diff": "cosda.report.diff.files",
    "write_report": "cosda.report",
}

__all__ = [
    "METHODS",
    "Architecture",
    "Batch",
    "Benchmark",
    "Calibration",
    "Check",
    "Checked",
    "ComparedImage",
    "CosdaError",
    "Counted",
    "Diff",
    "Domain",
    "DomainProfile",
    "Drift",
    "Estimate",
    "Evaluation",
    "Exported",
    "Files",
    "Group",
    "Images",
    "Indexable",
    "Items",
    "Machine",
    "Method",
    "Model",
    "Network",
    "Options",
    "Output",
    "Prediction",
    "Predictor",
    "Preprocessing",
    "Progress",
    "Result",
    "Route",
    "RoutedImages",
    "Run",
    "Said",
    "Step",
    "TargetImages",
    "Verdict",
    "Watcher",
    "adapt",
    "diff",
    "evaluate",
    "export",
    "find_runs",
    "history",
    "import_model",
    "load",
    "load_benchmark",
    "load_domain",
    "monitor",
    "predict",
    "profile",
    "run_chain",
    "setting",
    "train_source",
    "wrap",
    "write_diff",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'cosda' has no attribute '{name}'")
    module, _, attribute = _PLACES[name].partition(":")
    value = getattr(import_module(module), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
