"""The domain bank: a base network that never changes, an expert for each domain, and a router between them.

An expert is the difference between an adapted network and the base, packed to a few bits a weight (`packing`). The
router looks at each image and says which domain it comes from (`router`), so nobody names a domain. Where that is
clear the image is answered by one expert alone; where it is not, by the mean of the experts' probabilities with the
router's posterior; where the image resembles no domain, by that and the base, half and half. The base is the expert of
the domain that it was trained on.
"""

from __future__ import annotations

import copy
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn import functional as F

from cosda.errors import CosdaError, nearest
from cosda.files import open_regular
from cosda.models.bn_folding import fold
from cosda.models.network import Network
from cosda.models.packing import pack, unpack
from cosda.models.profile import DomainProfile
from cosda.models.router import Gauge, Router
from cosda.types import Output

CLEAR = 0.9  # posterior from which one expert answers alone
FAINT = 0.01  # posterior below which an expert has no part in a mixture
IN_MEMORY = 8  # experts that are kept ready
SOURCE = "source"  # the base's domain, where its name is not known


@dataclass(frozen=True)
class Stored:
    """A file that is read when it is needed, and must then be what it was."""

    path: Path
    sha256: str

    def read(self) -> bytes:
        """Its content."""
        try:
            with open_regular(self.path) as file:
                content = file.read()
        except OSError as error:
            raise CosdaError(f"{self.path} cannot be read: {error.strerror or error}.") from None
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise CosdaError(
                f"{self.path} is not the file that its model.json was written with: it is damaged, cut short or "
                "exchanged. Copy the model folder again from where it was whole."
            )
        return content


@dataclass(frozen=True, eq=False)
class Expert:
    """What one domain needs beside the base."""

    domain: str
    bits: int
    profile: DomainProfile
    content: bytes | Stored  # of its file

    @classmethod
    def make(cls, adapted: Network, base: Network, bits: int, profile: DomainProfile) -> Expert:
        """The expert of an adapted network; both may be heads alone."""
        packed = pack(adapted.state_dict(), base.state_dict(), bits)
        return cls(profile.name, bits, profile, safetensors.torch.save(packed))

    def __deepcopy__(self, memo: dict[int, Any]) -> Expert:
        return self  # nothing ever changes it

    def read(self) -> bytes:
        """The content of its file."""
        return self.content.read() if isinstance(self.content, Stored) else self.content

    def in_memory(self) -> Expert:
        """The same, which needs its file no more."""
        return replace(self, content=self.read())

    @property
    def sha256(self) -> str:
        """Names the content."""
        return self.content.sha256 if isinstance(self.content, Stored) else hashlib.sha256(self.content).hexdigest()

    def tensors(self) -> dict[str, Tensor]:
        """What `packing.unpack` needs."""
        try:
            return safetensors.torch.load(self.read())
        except SafetensorError as error:
            raise CosdaError(f"the expert of '{self.domain}' cannot be read: {error}.") from None


class Routing(NamedTuple):
    """Where a batch of images goes."""

    posterior: Tensor  # (B, K) over the bank's domains
    unknown: Tensor  # (B,) which images resemble no known domain

    @property
    def shares(self) -> Tensor:
        """The part (B, K) that each expert has in each answer: all or nothing where the posterior is clear.

        What resembles no domain is answered by the base for one half: experts of other domains do it no good.
        """
        best = self.posterior.max(dim=1, keepdim=True)
        alone = torch.zeros_like(self.posterior).scatter_(1, best.indices, 1.0)
        mixed = torch.where(self.posterior < FAINT, 0.0, self.posterior)
        mixed = mixed / mixed.sum(dim=1, keepdim=True)
        known = torch.where(best.values >= CLEAR, alone, mixed)
        return torch.where(self.unknown[:, None], (mixed + _base_alone(mixed)) / 2, known)


def _base_alone(shares: Tensor) -> Tensor:
    """Shares (B, K) of the same shape, all of them the base's."""
    return F.one_hot(torch.zeros(shares.shape[0], dtype=torch.long), shares.shape[1]).to(shares)


def together(images: Tensor, shares: Tensor, experts: Iterable[tuple[int, nn.Module]]) -> Output:
    """What experts, each with its place, say of images in whose answers they have these shares (B, K)."""
    features: Tensor | None = None
    for place, expert in experts:
        rows = (shares[:, place] > 0).nonzero()[:, 0]
        said = expert.forward(images[rows.to(images.device)])
        share = shares[rows, place].to(said.logits)[:, None]
        if features is None:
            features = said.features.new_zeros(images.shape[0], said.features.shape[1])
            logits = said.logits.new_zeros(images.shape[0], said.logits.shape[1])
        rows = rows.to(images.device)
        features[rows] += share * said.features
        # Of an expert that answers alone the logits, to the bit; of several the mean of their probabilities.
        logits[rows] += torch.where(share == 1, said.logits, share * said.logits.softmax(dim=1))
    assert features is not None
    mixed = (shares.max(dim=1).values < 1).to(images.device)[:, None]
    return Output(features, torch.where(mixed, logits.clamp(min=1e-30).log(), logits))


class DomainBank(Network):
    """A network that sends each image to the expert of the domain that it looks like.

    Its weights are those of the base. ``late`` says that the encoder was frozen, so that all experts share it and the
    router looks at its features. (It also does for a network without normalisation layers; each expert then has an
    encoder of its own all the same.)
    """

    def __init__(
        self, base: Network, experts: Sequence[Expert], late: bool = False, in_memory: int = IN_MEMORY
    ) -> None:
        nn.Module.__init__(self)
        for name, part in base.named_children():
            self.add_module(name, part)
        self.arithmetic, self.domains = base.arithmetic, base.domains
        self.experts, self.late = tuple(experts), late
        full = any(known.full for known in (base.profile, *(expert.profile for expert in experts)) if known)
        self.gauge = Gauge(base.encoder, late, full)  # how it looks at images
        self._base = [base]  # not a part of its own: its parts are this module's already
        self._ready = _Ready(in_memory)
        self.eval()

    @property
    def base(self) -> Network:
        """The network that never changes."""
        return self._base[0]

    @property
    def profile(self) -> DomainProfile | None:  # type: ignore[override]
        """The base's, if it is of the kind of statistics by which this bank routes."""
        own = self.base.profile
        return own if own is not None and (own.late, own.full) == (self.gauge.late, self.gauge.full) else None

    @property
    def known(self) -> tuple[str, ...]:
        """The domains that it tells apart; the base's comes first."""
        masked = self.base.domains[0] if self.base.domains else SOURCE  # the first mask is that of its own domain
        own = self.base.profile.name if self.base.profile else masked
        return (own, *(expert.domain for expert in self.experts))

    @property
    def profiles(self) -> tuple[DomainProfile, ...]:
        """Of all domains; the base's may be missing."""
        own = () if self.profile is None else (self.profile,)
        return (*own, *(expert.profile for expert in self.experts))

    @property
    def router(self) -> Router:
        """Between all domains that have a profile."""
        if self._ready.router is None:
            self._ready.router = Router(self.profiles)
        return self._ready.router

    def _apply(self, fn: Any, recurse: bool = True) -> DomainBank:
        """What moves the weights; experts that are ready stay behind."""
        self._ready = copy.deepcopy(self._ready)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def train(self, mode: bool = True) -> DomainBank:
        """Nothing; a bank is never trained, its experts are trained apart."""
        super().train(False)
        return self

    # --- Answers ------------------------------------------------------------------------------------------------------

    def forward(self, images: Tensor) -> Output:
        """Features and logits of the expert or the experts that each image is sent to."""
        return self.explain(images)[0]

    def explain(self, images: Tensor) -> tuple[Output, Routing]:
        """What `forward` gives, and where each image was sent."""
        seen, routing = self.look(images)
        return self.answer(seen, routing.shares), routing

    def look(self, images: Tensor) -> tuple[Tensor, Routing]:
        """What the experts get to see, images or features of an encoder that they share, and where each image goes."""
        if not self.late:
            return images, self.route(self.gauge(images))
        features = self.encoder(images)
        return features, self.route(self.gauge.of_features(features))

    def route(self, statistics: Tensor, router: Router | None = None) -> Routing:
        """Where images with these routing statistics (B, D) go, by the bank's router or another one.

        Where nobody knows how far the base's images reach, what resembles no other domain goes to the base.
        """
        if not self.profiles:  # a base that is alone
            alone = torch.ones(statistics.shape[0], 1, dtype=torch.float64)
            return Routing(alone, torch.zeros(statistics.shape[0], dtype=torch.bool))
        router = router or self.router
        posterior, unknown = router.posterior(statistics), router.unknown(statistics)
        if self.profile is None:
            posterior = torch.cat([torch.zeros_like(posterior[:, :1]), posterior], dim=1)
        if self.profile is None or self.profile.limit is None:
            posterior = torch.where(unknown[:, None], _base_alone(posterior), posterior)
            unknown = torch.zeros_like(unknown)
        return Routing(posterior, unknown)

    def answer(self, images: Tensor, shares: Tensor) -> Output:
        """What the experts say of images (of features, for a late bank) with these shares (B, K) of each."""
        if not len(images):
            return self._materialise(0).forward(images)  # not kept: nothing was folded
        order = self._ready.order(shares.sum(dim=0).nonzero()[:, 0].tolist())
        return together(images, shares, ((place, self._expert(place, images)) for place in order))

    def _expert(self, place: int, images: Tensor) -> Network:
        """The expert of a domain, ready to answer such images."""
        with self._ready.lock:
            found = self._ready.get(place)
            if found is None:
                # Not within the caller's inference mode, whose tensors could not be used outside of it.
                with torch.inference_mode(False), torch.no_grad():
                    found = self._materialise(place)
                    if not self.late and not self.arithmetic.compiled:
                        found.encoder = fold(found.encoder, images[:2].clone(), self.base.encoder)
                self._ready.put(place, found)
        return found

    def _materialise(self, place: int) -> Network:
        """An expert for answers; of a late bank its head alone."""
        network = self._copy(self.base.with_encoder(nn.Identity()) if self.late else self.base, place)
        network = network.for_domain(self.known[place]) if network.needs_domain else network
        network.requires_grad_(False).eval()
        return network

    def _copy(self, base: Network, place: int) -> Network:
        """A new network with the weights of an expert."""
        network = copy.deepcopy(base)
        if place:
            expert = self.experts[place - 1]
            try:
                network.load_state_dict(unpack(expert.tensors(), base.state_dict(), expert.bits))
            except CosdaError as error:
                raise CosdaError(f"the expert of '{expert.domain}' cannot be used: {error}") from None
        network.arithmetic = self.arithmetic
        return network

    # --- Experts ------------------------------------------------------------------------------------------------------

    def expert(self, domain: str) -> Network:
        """A new network with the weights of a domain's expert, to be trained or looked at."""
        return self._copy(self.base, self.place(domain))

    def place(self, domain: str) -> int:
        """The place of a domain among those that are known.

        Raises:
            CosdaError: it is not known.
        """
        if domain not in self.known:
            raise CosdaError(
                f"the model has no expert for a domain '{domain}'.{nearest(domain, self.known)} "
                f"Known: {', '.join(self.known)}."
            )
        return self.known.index(domain)

    def for_domain(self, domain: str | None) -> Network:
        """The expert of a domain; the bank itself, which routes, where none is named."""
        if domain is None:
            return self
        network = self.expert(domain)
        return (network.for_domain(domain) if network.needs_domain else network).eval()

    def with_expert(self, expert: Expert) -> DomainBank:
        """The same bank (its base is shared) with one expert more, or with another one for the same domain."""
        others = self.without(expert.domain).experts if expert.domain in self.known else self.experts
        return DomainBank(self.base, [*others, expert], self.late, self._ready.most)

    def without(self, domain: str) -> DomainBank:
        """The same bank (its base is shared) without the expert of a domain."""
        if not self.place(domain):
            raise CosdaError(f"'{domain}' is what the model was trained on, and no expert; it cannot be taken out.")
        # Their files are numbered: those of a folder that is written anew are other ones.
        others = [each.in_memory() for each in self.experts if each.domain != domain]
        return DomainBank(self.base, others, self.late, self._ready.most)

    def keep_ready(self, most: int) -> DomainBank:
        """The same bank, with so many experts in memory at most."""
        return DomainBank(self.base, self.experts, self.late, most)

    def with_encoder(self, encoder: nn.Module) -> DomainBank:
        """The same experts, which must share their encoder, on another one."""
        for expert in self.experts:
            if any(name.startswith("encoder.") for name in expert.tensors()):
                raise CosdaError(
                    f"the expert of '{expert.domain}' has an encoder of its own, so the encoder cannot be frozen. "
                    "Leave --freeze-encoder out."
                )
        return DomainBank(self.base.with_encoder(encoder), self.experts, True, self._ready.most)

    def with_domains(self, names: Iterable[str], rng: torch.Generator) -> Network:
        """The bank with a base that has masks for these domains too, where it has masks at all."""
        base = self.base.with_domains(names, rng)
        return self if base is self.base else DomainBank(base, self.experts, self.late, self._ready.most)

    def plain(self) -> nn.Sequential:
        """A copy that routes, and gives logits alone."""
        return nn.Sequential(OrderedDict(bank=copy.deepcopy(self), logits=_Logits()))


class _Logits(nn.Module):
    def forward(self, output: Output) -> Tensor:
        """The logits (B, C) of an output."""
        return output.logits


class _Ready:
    """Experts that are ready to answer, the least recently used ones first; a copy of a bank begins with none."""

    def __init__(self, most: int) -> None:
        if most < 1:
            raise CosdaError(f"at least one expert must be in memory, not {most}.")
        self.most = most
        self.networks: OrderedDict[int, Network] = OrderedDict()
        self.router: Router | None = None
        self.lock = threading.RLock()

    def __deepcopy__(self, memo: dict[int, Any]) -> _Ready:
        return _Ready(self.most)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Ready, (self.most,)

    def get(self, place: int) -> Network | None:
        if place in self.networks:
            self.networks.move_to_end(place)
        return self.networks.get(place)

    def put(self, place: int, network: Network) -> None:
        while len(self.networks) >= self.most:
            self.networks.popitem(last=False)
        self.networks[place] = network

    def order(self, places: list[int]) -> list[int]:
        """The same places, those first that are ready: they might be gone when others have come."""
        with self.lock:
            return sorted(places, key=lambda place: place not in self.networks)
