"""G-SFDA: Generalized Source-free Domain Adaptation. Yang et al., ICCV 2021, https://arxiv.org/abs/2108.01614

Each domain sees the features through a mask of its own, random and almost binary (sparse domain attention). The source
model learns its labels through all masks. On a target, an image's prediction is drawn to those of its nearest
neighbours in a bank (local structure clustering) while the mean prediction stays diverse; what the masks of other
domains let through is protected: these rows of the bottleneck and columns of the classifier's direction do not move.
Between epochs it keeps the bank, which is built once for each target. To predict, one must know an image's domain.

Where we depart: every head sees feature ⊙ its own mask (in the two-domain code of both repositories the target's head
sees source mask ⊙ target mask, so half of it is never supervised). The *update* is gated, so weight decay and momentum
do not move protected entries either. Neighbours really lie outside the batch (the repositories fill a copy of the
bank, which excludes nothing). Any number of domains, as in the original's continual script. Left out: annealing of s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cosda import losses
from cosda.methods.base import Group, Method, Progress, TargetImages, trained
from cosda.models.masks import SCALE, MaskedNetwork, add_masks
from cosda.models.network import Network
from cosda.models.statistics import batch_norms
from cosda.parts.bank import Bank, nearest
from cosda.settings import setting
from cosda.types import Batch, Losses

CLOSED = 0.999  # from this value of a protecting mask on, an entry does not move at all


@dataclass
class GSFDA(Method):
    """Local structure clustering under one mask per domain."""

    title: ClassVar[str] = "one feature mask per domain, neighbours agree (needs the domain's name)"
    variants: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {},
        "authors": {"exclude": "none", "train_masks": True},
        "original-step": {"exclude": "none", "encoder": "bn"},  # its rates, schedule, epochs and κ are the benchmark's
    }
    source_settings: ClassVar[tuple[str, ...]] = ("scale", "sparsity")

    encoder_rate: float = setting(0.1, "learning rate of the encoder relative to the head's", low=0, high=1)
    neighbours: int = setting(2, "neighbours whose predictions an image follows", low=1, symbol="k")
    diversity: float = setting(1.0, "weight of the diversity of the mean prediction", low=0, symbol="λ_gen")
    exclude: Literal["batch", "own", "none"] = setting(
        "batch", "rows of the bank that are no neighbours: the batch's, the image's own, or none"
    )
    protect: Literal["all", "past"] = setting("all", "protect the masks of all other domains, or of earlier ones only")
    protect_classifier: bool = setting(False, "also hold the classifier's magnitude and bias, which have no channels")
    encoder: Literal["all", "bn"] = setting("all", "train the whole encoder, or its BatchNorm weights only")
    train_masks: bool = setting(False, "train the target's mask; those of other domains never move")
    scale: float = setting(SCALE, "steepness of the masks, fixed in source training", low=1e-3, symbol="s")
    sparsity: float = setting(0.75, "weight of the masks' mean in source training", low=0, symbol="κ")

    def source_network(self, network: Network, width: int, domains: Sequence[str]) -> Network:
        """A mask for each domain of the chain; those of the targets are learnt with the source's images too."""
        return add_masks(network, width, domains, self.scale)

    def adopt(self, network: Network, domains: Sequence[str], rng: torch.Generator) -> tuple[Network, str]:
        """A network without masks works too, but protects nothing."""
        if isinstance(network.base, MaskedNetwork):
            return super().adopt(network, domains, rng)
        return network, (
            "the given model has no masks, so gsfda protects nothing of what it knows; "
            "'cosda run --method gsfda' trains source models that have them"
        )

    def source_losses(self, network: Network, images: Tensor, labels: Tensor, smoothing: float) -> Losses:
        """Σ_t CE(c(f ⊙ m_t)) + κ·mean of all masks, with one classifier for all."""
        if not isinstance(network, MaskedNetwork):
            return super().source_losses(network, images, labels, smoothing)
        heads = [losses.label_smoothing(head.logits, labels, smoothing) for head in network.heads(images)]
        return {"cross_entropy": torch.stack(heads).sum(), "sparsity": self.sparsity * network.masks().mean()}

    def setup(self, student: Network, loader: TargetImages) -> None:
        """What the masks of other domains protect is fixed for the whole stage; a network without masks has none."""
        super().setup(student, loader)
        self.bank: Bank | None = None
        self.gates: list[tuple[nn.Parameter, Tensor]] = []
        affine = {id(p) for norm in batch_norms(student.encoder) for p in norm.parameters()}
        for parameter in student.encoder.parameters():
            parameter.requires_grad_(self.encoder == "all" or id(parameter) in affine)
        if isinstance(student, MaskedNetwork):
            student.masks.requires_grad_(self.train_masks)
            self.gates = gates(student, self.protect, self.protect_classifier)

    def parameters(self) -> list[Group]:
        """All but what `setup` has frozen."""
        return trained(self.student, {"encoder": self.encoder_rate, "masks": float(self.train_masks)})

    def begin_epoch(self, progress: Progress) -> None:
        """The bank is built once, from the model that the stage began with."""
        super().begin_epoch(progress)
        if self.bank is None:
            self.bank = Bank.build(self.student, self.loader, "weak")

    def step(self, batch: Batch) -> Losses:
        """-mean_i Σ_j log⟨p_i, S_j⟩ over neighbours j in the bank, and λ_gen Σ p̄ log p̄."""
        assert self.bank is not None
        output = self.student(batch.images)
        scores = self.bank.scores[self._neighbours(output.features.detach(), batch.index)].to(output.logits.dtype)
        self.bank.update(batch.index, output)
        p = output.logits.softmax(dim=1)
        return {
            "neighbours": losses.local_structure(p, scores),
            "diversity": self.diversity * losses.negative_diversity(p),
        }

    def before_update(self) -> None:
        """Remember what may be protected."""
        self.before = [parameter.detach().clone() for parameter, _ in self.gates]

    @torch.no_grad()
    def after_update(self) -> None:
        """w ← old + gate·(new - old): with gate 0 the old bits, whatever weight decay and momentum did."""
        for (parameter, gate), old in zip(self.gates, self.before, strict=True):
            parameter.copy_(torch.lerp(old, parameter, gate.expand_as(old)))

    def predictor(self, domain: str | None = None) -> Network:
        """The student with the mask of a domain; of the stage's own if none is named."""
        return self.student if domain is None else self.student.for_domain(domain)

    def state_dict(self) -> dict[str, Any]:
        """The bank."""
        return {} if self.bank is None else {"bank": self.bank.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The bank."""
        self.bank = Bank.from_state(state["bank"]) if "bank" in state else None

    def _neighbours(self, features: Tensor, index: Tensor) -> Tensor:
        """Positions (B, k) in the bank of the rows nearest to the current features."""
        assert self.bank is not None
        queries, keys = F.normalize(features), self.bank.features
        if self.exclude != "batch":
            return nearest(queries, keys, self.neighbours, own=index if self.exclude == "own" else None)
        # So many more that k are left without the batch. In a domain so small that they are not, its rows come last.
        found = nearest(queries, keys, self.neighbours + len(index), own=index)
        order = torch.isin(found, index).byte().argsort(dim=1, stable=True)
        return found.gather(1, order[:, : self.neighbours])


@torch.no_grad()
def gates(network: MaskedNetwork, protect: str, protect_classifier: bool) -> list[tuple[nn.Parameter, Tensor]]:
    """How much of an update each entry takes: 1 - M with M the largest protecting mask, and 0 from `CLOSED` on.

    Gated are the bottleneck (all its weights that have a row for each feature), the columns of the classifier, the rows
    of other domains' masks, and, if asked, the rest of the classifier.
    """
    here, masks = network.position, network.masks()
    row = torch.arange(len(masks), device=masks.device)[:, None]
    own_mask = (network.masks.embedding, (row == here).to(masks))
    protecting = masks[:here] if protect == "past" else masks[row[:, 0] != here]
    if len(protecting) == 0:
        return [own_mask]
    largest = protecting.amax(dim=0)
    gate = torch.where(largest > CLOSED, 0.0, 1 - largest)  # (d,)
    rows = [p for p in network.bottleneck.parameters() if p.shape[0] == len(gate)]
    found = [own_mask, *((p, gate.view(-1, *[1] * (p.dim() - 1))) for p in rows)]
    for parameter in network.classifier.parameters():
        if parameter.dim() == 2 and parameter.shape[1] == len(gate):  # the direction, or all without weight norm
            found.append((parameter, gate))
        elif protect_classifier:
            found.append((parameter, torch.zeros_like(gate[:1])))
    return found
