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
    from cosda.api import Result, adapt, evaluate, predict, run_chain, train_source
    from cosda.data.benchmarks import load as load_benchmark
    from cosda.data.domain import Benchmark, Domain
    from cosda.data.inputs import load_domain
    from cosda.errors import CosdaError
    from cosda.methods import METHODS
    from cosda.methods.base import Method
    from cosda.models.artifact import Model, load
    from cosda.models.wrap import wrap
    from cosda.preprocessing import Preprocessing
    from cosda.records.run import Run
    from cosda.report import write_report
    from cosda.run.machine import Machine
    from cosda.run.predictions import Prediction
    from cosda.run.predictor import Predictor

__version__ = "0.1.0"

_PLACES = {
    "METHODS": "cosda.methods",
    "Benchmark": "cosda.data.domain",
    "CosdaError": "cosda.errors",
    "Domain": "cosda.data.domain",
    "Machine": "cosda.run.machine",
    "Method": "cosda.methods.base",
    "Model": "cosda.models.artifact",
    "Prediction": "cosda.run.predictions",
    "Predictor": "cosda.run.predictor",
    "Preprocessing": "cosda.preprocessing",
    "Result": "cosda.api",
    "Run": "cosda.records.run",
    "adapt": "cosda.api",
    "evaluate": "cosda.api",
    "load": "cosda.models.artifact",
    "load_benchmark": "cosda.data.benchmarks:load",
    "load_domain": "cosda.data.inputs",
    "predict": "cosda.api",
    "run_chain": "cosda.api",
    "train_source": "cosda.api",
    "wrap": "cosda.models.wrap",
    "write_report": "cosda.report",
}

__all__ = [
    "METHODS",
    "Benchmark",
    "CosdaError",
    "Domain",
    "Machine",
    "Method",
    "Model",
    "Prediction",
    "Predictor",
    "Preprocessing",
    "Result",
    "Run",
    "adapt",
    "evaluate",
    "load",
    "load_benchmark",
    "load_domain",
    "predict",
    "run_chain",
    "train_source",
    "wrap",
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
