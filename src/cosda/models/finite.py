"""Whether the numbers of a network and of its inputs still mean something, and what to do where they do not."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cosda.errors import CosdaError
from cosda.models.statistics import statistics

HUGE = 1e6  # of an input; single precision cannot square what is beyond 1e19


def not_finite(network: nn.Module) -> str:
    """The name of a weight or BatchNorm statistic that is not finite; empty where there is none.

    Other buffers may well hold infinity, as masks of attention do.
    """
    kept = {id(value) for value in statistics(network)}
    for name, value in network.state_dict(keep_vars=True).items():
        ours = isinstance(value, nn.Parameter) or id(value) in kept
        if ours and value.is_floating_point() and not bool(value.isfinite().all()):
            return str(name)
    return ""


def check_finite(network: nn.Module, what: str) -> None:
    """An error where a network cannot be used, whatever the images are; ``what`` names it."""
    if name := not_finite(network):
        raise CosdaError(
            f"{what} is unusable: '{name}' holds values that are not finite (NaN or infinity). They were there before "
            "anything was done here, so no setting helps: take an older copy of the model, or train it again."
        )


def largest(values: Tensor) -> float:
    """The largest magnitude; that of NaN is infinite."""
    found = float(values.detach().abs().max()) if values.numel() else 0.0
    return found if found == found else float("inf")


def largest_weight(network: nn.Module) -> float:
    """The largest magnitude of all weights."""
    with torch.no_grad():
        return max(map(largest, network.parameters()), default=0.0)


def about_inputs(reach: float) -> str:
    """Advice where the inputs are so large that they are the cause of what went wrong; otherwise empty."""
    if reach <= HUGE:
        return ""
    return (
        f"The inputs reach {reach:.0e}: scale the features, those of all domains alike, to about mean 0 and variance 1."
    )
