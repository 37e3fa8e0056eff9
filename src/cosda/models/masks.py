"""A network with one mask per domain on its features, as G-SFDA has it: to use it, one must name the domain.

    mask_t = sigmoid(s·e_t),  logits = classifier(feature ⊙ mask_t)

With s = 100 and e_t ~ N(0, 1) a mask is almost binary; half of its entries are on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from cosda.errors import CosdaError, nearest
from cosda.models.network import Network, shared_pass
from cosda.types import Output

SCALE = 100.0


class Masks(nn.Module):
    """The table of masks; its scale lies among the weights, because a stored model means nothing without it."""

    scale: Tensor

    def __init__(self, embedding: Tensor, scale: float | Tensor = SCALE) -> None:
        super().__init__()
        self.embedding = nn.Parameter(embedding)  # (T, d)
        self.register_buffer("scale", torch.as_tensor(scale, dtype=torch.float32).clone())

    def forward(self) -> Tensor:
        """All masks (T, d)."""
        return torch.sigmoid(self.scale * self.embedding)


class Mask(nn.Module):
    """One mask, for good."""

    values: Tensor

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.register_buffer("values", values)

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, d), masked."""
        return features * self.values


class MaskedNetwork(Network):
    """A network that sees each domain through a mask of its own.

    ``domain`` is the one whose images it is given. `for_domain` makes another such object around the same parts, so
    nothing has to be switched and switched back.
    """

    needs_domain = True

    def __init__(self, parts: Network, masks: Masks, domains: Sequence[str], domain: str | None = None) -> None:
        super().__init__(parts.encoder, parts.bottleneck, parts.classifier)
        self.arithmetic, self.profile = parts.arithmetic, parts.profile
        self.masks = masks
        self.domains = tuple(domains)
        self.domain = domain

    @property
    def position(self) -> int:
        """The row of the masks that belongs to the domain."""
        known = ", ".join(self.domains)
        if self.domain is None:
            raise CosdaError(
                "this model has a mask for each domain, so it must be told which domain the images are from: "
                f"--domain NAME (in Python domain='NAME'). Known: {known}."
            )
        if self.domain not in self.domains:
            close = nearest(self.domain, self.domains)
            raise CosdaError(f"the model has no mask for a domain '{self.domain}'.{close} Known: {known}.")
        return self.domains.index(self.domain)

    def forward(self, images: Tensor) -> Output:
        """Masked features, and their logits."""
        return self._masked(self.seen(images), self.masks()[self.position])

    def heads(self, images: Tensor) -> list[Output]:
        """What calling the network gives for each domain in turn, from one pass of encoder and bottleneck."""

        def compute(own: Tensor) -> list[Output]:
            features = self.seen(own)
            return [self._masked(features, mask) for mask in self.masks()]

        return shared_pass(images, compute)

    def _masked(self, features: Tensor, mask: Tensor) -> Output:
        masked = features * mask
        return Output(masked, self.classifier(masked))

    def for_domain(self, domain: str | None) -> MaskedNetwork:
        """The same network (shared, not copied) for the images of one domain; unknown ones are an error."""
        seen = MaskedNetwork(self, self.masks, self.domains, domain)
        seen.training = self.training  # of this object alone: the parts are in use elsewhere
        assert seen.position >= 0
        return seen

    def _between(self) -> dict[str, nn.Module]:
        return {"mask": Mask(self.masks()[self.position].detach())}

    def with_encoder(self, encoder: nn.Module) -> MaskedNetwork:
        """The same head and masks (shared, not copied) on another encoder."""
        return MaskedNetwork(super().with_encoder(encoder), self.masks, self.domains, self.domain)

    def with_domains(self, names: Iterable[str], rng: torch.Generator) -> MaskedNetwork:
        """The same parts with a new table that also has random masks for those domains that had none."""
        new = [name for name in dict.fromkeys(names) if name not in self.domains]
        if not new:
            return self
        old = self.masks.embedding.detach()
        drawn = torch.randn((len(new), old.shape[1]), generator=rng).to(old)
        masks = Masks(torch.cat([old, drawn]), self.masks.scale)
        return MaskedNetwork(self, masks, (*self.domains, *new), self.domain)


def add_masks(network: Network, width: int, domains: Sequence[str], scale: float = SCALE) -> MaskedNetwork:
    """The same parts with random masks for features of a width; drawn from torch's global generator."""
    return MaskedNetwork(network, Masks(torch.randn(len(domains), width), scale), domains)
