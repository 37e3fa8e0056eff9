"""The numbers of each method where no benchmark says otherwise, written down a second time from the papers.

A default that changes by mistake changes the results of everybody who adapts to images of their own.
"""

from __future__ import annotations

from typing import Any

import pytest

from cosda.methods import METHODS

SLOW = {"meeting": "epoch", "momentum": (0.9, 0.99), "statistics_merge": "linear"}  # CoSDA, Algorithm 1
COSDA = {
    **SLOW, "temperature": 0.07, "mixup_beta": 2, "fold": False, "consistency": 1, "information": 1, "gate": (0, 0),
    "information_on": "mixed", "teacher_statistics": "batch", "statistics_momentum": None, "restart": False,
}  # fmt: skip
BANK = {"encoder_rate": 1, "bank": "epoch", "bank_keep": 0, "bank_precision": "float32", "neighbours_later": None}
NRC = {"neighbours": 4, "extended": 3, "mutual": 1, "one_sided": 0.1, "extended_later": None, "label_temperature": None}
AAD = {"neighbours": 3, "dispersion": 0.4, "decay": 0.96, "decay_power": None}
TOGETHER = {**COSDA, "bank": "epoch-static", "looks": "teacher", "learn_by": "consistency"}
SHOT = {
    "encoder_rate": 0.1, "label_weight": 0.3, "information": 1, "first_epoch_labels": True, "threshold": 0,
    "label_view": "test",
}  # fmt: skip
DEFAULTS: dict[str, dict[str, Any]] = {
    "nrc": {**BANK, **NRC},
    "aad": {**BANK, **AAD},
    "edgemix": {**BANK, **NRC},
    "cosda": {"encoder_rate": 1, **COSDA},
    "cosda+nrc": {**TOGETHER, **NRC},
    "cosda+aad": {**TOGETHER, **AAD},
    "shot": SHOT,
    "shot++": {
        **SHOT, "rotation": 0.6, "rotation_epochs": 15, "rotation_rate": 0.01, "rotation_weight_norm": False,
        "mixmatch": False, "mixmatch_epochs": 10, "mixmatch_temperature": 0.5, "mixmatch_beta": 0.75,
        "mixmatch_weight": 100,
    },
    "cotta": {
        **SLOW, "augmentations": 32, "ap": 0.92, "restore": 0.01, "anchor": "source", "confidence_of": "source",
        "temperature": 0.3, "gate": (0.3, 0.5), "statistics_momentum": (0.95, 0.99), "restart": True,
        "per_image": False, "feature_noise": 0,
    },
    "dac": {
        "cross_entropy": 0.02, "information": 0.25, "contrast": 0.03, "mmd": 0.15, "warm_up": 1, "confident": 40,
        "neighbours": 5, "keep": 0.8, "gate": 0.97, "temperature": 0.05, "warm_up_labels": False, "encoder_rate": 1,
    },
    "gsfda": {
        "encoder_rate": 0.1, "neighbours": 2, "diversity": 1, "scale": 100, "sparsity": 0.75, "exclude": "batch",
        "protect": "all", "protect_classifier": False, "encoder": "all", "train_masks": False,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_methods_numbers_are_those_of_its_paper(name: str) -> None:
    found = METHODS[name]().settings()
    assert {key: found[key] for key in DEFAULTS[name]} == DEFAULTS[name]


def test_what_a_method_asks_of_every_training() -> None:
    asked = {name: method.preset for name, method in METHODS.items() if method.preset}
    rates = {"adapt": {"lr": 0.01, "lr_end": 0.002}}  # CoSDA's Appendix B
    assert asked == {"shot": rates, "shot++": rates, "edgemix": {"adapt": {"edgemix": 0.9}}}
