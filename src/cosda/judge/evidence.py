"""What can be seen without labels of a model before and after an adaptation: numbers, each with a sentence.

The estimators of accuracy are those of the literature: confidence at the temperature of the source, ATC (Garg et al.,
ICLR 2022, https://arxiv.org/abs/2201.04234), the nuclear norm (Deng et al., ICML 2023, https://arxiv.org/abs/2302.01094),
disagreement between views (as in Jiang et al., ICLR 2022, https://arxiv.org/abs/2106.13799), and how far images are
classified as their nearest neighbours are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from cosda.data.loader import Loader
from cosda.judge.looking import Answers, neighbours_agree
from cosda.models.calibration import Calibration, certainty
from cosda.models.experts import DomainBank
from cosda.models.network import Network
from cosda.randomness import stream
from cosda.run.profile import Look

SAMPLES = 1000  # images of a known domain that are drawn from its profile

# Estimates of the accuracy, each by itself.
ESTIMATORS: Mapping[str, str] = {
    "confidence": "mean confidence at the temperature of the source",
    "atc": "share of images above the source's threshold (ATC)",
    "nuclear norm": "nuclear norm of the probabilities",
    "views": "share of images that have the same class in other views",
    "neighbours": "share of images classified as their nearest neighbours are",
    "noise": "share of images that have the same class with noise in them",
}


def estimators(answers: Answers, calibration: Calibration) -> dict[str, float]:
    """What each estimator says of a model's accuracy, from 0 to 1."""
    p = calibration.probabilities(answers.logits)
    rows, columns = p.shape
    return {
        "confidence": float(p.max(dim=1).values.mean()),
        "atc": float((certainty(p) > calibration.threshold).double().mean()),
        "nuclear norm": float(torch.linalg.matrix_norm(p, "nuc")) / math.sqrt(rows * min(rows, columns)),
        "views": same(answers.classes, *(view.argmax(dim=1) for view in answers.views)),
        "neighbours": neighbours_agree(answers),
        "noise": same(answers.classes, answers.noisy.argmax(dim=1)),
    }


def diversity(classes: Tensor, count: int) -> float:
    """How many of ``count`` classes are predicted, each by its weight (the exponential of the entropy), as a share."""
    share = torch.bincount(classes, minlength=count).double() / max(1, len(classes))
    return float(torch.special.entr(share).sum().exp()) / count


def compared(before: Answers, after: Answers) -> dict[str, float]:
    """What the answers of the adapted model have in common with those of the incoming one."""
    confident = before.probabilities.max(dim=1).values
    surest = confident.argsort(descending=True)[: max(1, len(confident) // 2)]
    return {
        "agreement": same(before.classes, after.classes),
        "agreement where sure": same(before.classes[surest], after.classes[surest]),
        "diversity before": diversity(before.classes, before.logits.shape[1]),
        "diversity": diversity(after.classes, after.logits.shape[1]),
    }


def same(classes: Tensor, *others: Tensor) -> float:
    """The share of images (N,) that have the same class in others, on average."""
    return float(torch.stack([(classes == other).double().mean() for other in others]).mean())


def distance(network: Network, images: Loader, frozen: bool) -> float:
    """How far images lie from all domains that a network knows: 0 is where a hundredth of those domains' own lie.

    The decimal logarithm of the median; 0 where nobody knows.
    """
    bank = network if isinstance(network, DomainBank) else DomainBank(network, (), frozen)
    known = [profile for profile in bank.profiles if profile.limit]
    if not known:
        return 0.0
    seen = Look("", frozen, images).statistics(bank.gauge)
    apart = torch.stack([profile.distance(seen) / float(profile.limit or 1) for profile in known])
    return math.log10(float(apart.amin(dim=0).median()) + 1e-6)


def moved(incoming: Network, adapted: Network, domain: str, steps: int) -> float:
    """How far the weights went in so many steps: a decimal logarithm, in units of the incoming weights' length.

    A walk of so many steps; four times as many lead twice as far. Of a bank the weights are those of the domain's
    expert, and it is the way from the nearest network of the incoming one.
    """
    began = [incoming.expert(name) for name in incoming.known] if isinstance(incoming, DomainBank) else [incoming]
    now = dict((adapted.expert(domain) if isinstance(adapted, DomainBank) else adapted).named_parameters())
    way = min(_way(dict(network.named_parameters()), now) for network in began)
    return math.log10(way / math.sqrt(max(1, steps)) + 1e-6)


def _way(was: Mapping[str, Tensor], now: Mapping[str, Tensor]) -> float:
    both = [name for name in was if name in now and was[name].shape == now[name].shape]
    way = sum(float((now[name].detach() - was[name].detach()).double().square().sum()) for name in both)
    return math.sqrt(way / max(sum(float(was[name].detach().double().square().sum()) for name in both), 1e-12))


def kept_by_router(bank: DomainBank, new: str) -> dict[str, float]:
    """The share of images of each known domain that a bank does not send to its new expert.

    Its own networks never change, so this alone is at stake. The images are drawn from the domains' profiles.
    """
    shares = {}
    for profile in bank.profiles:
        if profile.name != new and profile.covariance is not None:
            factor = torch.linalg.cholesky(profile.covariance)
            noise = torch.randn((SAMPLES, len(factor)), generator=stream(0, "profile"), dtype=torch.float64)
            sent = bank.route(profile.mean + noise @ factor.T).shares[:, bank.known.index(new)]
            shares[profile.name] = 1 - float(sent.mean())
    return shares
