"""A model as one function of tensors, with its preprocessing in it and its answers at the end: what a file can hold."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cosda.data.views import shift_and_scale
from cosda.models.artifact import Model
from cosda.models.experts import DomainBank, together
from cosda.models.network import Network
from cosda.preprocessing import Preprocessing
from cosda.types import Output

EXAMPLES = 5  # images in the batch with which a graph is traced; unlike any other size of it

SAID = ("probabilities", "logits")
ROUTED = ("posteriors", "unknown")


@dataclass(frozen=True)
class Graph:
    """A function of one tensor that gives several."""

    module: nn.Module
    input: str  # its name
    example: Tensor  # (B, …)
    outputs: tuple[str, ...]  # their names
    parts: tuple[Graph, ...] = ()  # of a bank: router and experts apart, for a format that sends images on by itself


class Pixels(nn.Module):
    """Pixels (B, S, S, 3) in 0..255, as image libraries give them, to what a network sees."""

    shift: Tensor
    scale: Tensor

    def __init__(self, preprocessing: Preprocessing) -> None:
        super().__init__()
        shift, scale = shift_and_scale(preprocessing)
        self.register_buffer("shift", shift[:, None, None].clone())
        self.register_buffer("scale", scale[:, None, None].clone())

    def forward(self, pixels: Tensor) -> Tensor:
        """Images (B, 3, S, S)."""
        images: Tensor = pixels.permute(0, 3, 1, 2).float() * self.scale + self.shift
        return images


class Plain(nn.Module):
    """One network."""

    def __init__(self, view: nn.Module, network: Network) -> None:
        super().__init__()
        self.view, self.network = view, _fixed(network)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Probabilities and logits (B, C)."""
        return _said(self.network.forward(self.view(images)))


class Router(nn.Module):
    """What a domain bank decides by, without its experts."""

    def __init__(self, view: nn.Module, bank: DomainBank) -> None:
        super().__init__()
        encoder = Network(bank.encoder, nn.Identity(), nn.Identity())
        encoder.profile = bank.base.profile
        self.view, self.bank = view, DomainBank(encoder, bank.experts, bank.late)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Shares and posteriors (B, K), unknown (B,); of a late bank also the features that experts see."""
        seen, routing = self.bank.look(self.view(images))
        decided = (routing.shares.float(), routing.posterior.float(), routing.unknown)
        return (*decided, seen) if self.bank.late else decided


class Routed(nn.Module):
    """A domain bank with all its experts, of which each sees only the images that are sent to it."""

    def __init__(self, router: Router, experts: list[Network]) -> None:
        super().__init__()
        self.router = router
        self.experts = nn.ModuleList(_Own(_fixed(expert)) for expert in experts)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Probabilities and logits (B, C), posteriors (B, K) and which images are unknown (B,)."""
        seen, routing = self.router.bank.look(self.router.view(images))
        output = together(seen, routing.shares, enumerate(self.experts))
        return (*_said(output), routing.posterior.float(), routing.unknown)


class _Own(nn.Module):
    """An expert for images of its own, of which a batch may have none."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Output:
        """Features and logits."""
        if torch.compiler.is_compiling():
            # Layers ask whether there are any, which a tracer cannot know. `torch_export` takes the demand
            # out of the traced graph again: layers do with none as well.
            torch._check(images.shape[0] > 0)  # type: ignore[no-untyped-call]
        return self.network.forward(images)


def make_graph(model: Model, network: Network) -> Graph:
    """All of a network of a model, in one graph."""
    network, view, name, example = _begin(model, network)
    if not isinstance(network, DomainBank):
        return Graph(Plain(view, network).eval(), name, example, SAID)
    router, experts = Router(view, network), _experts(network)
    outputs: tuple[str, ...] = ("shares", *ROUTED)
    seen_as, seen = name, example
    if network.late:  # experts see the router's features
        outputs, seen_as, view = (*outputs, "features"), "features", nn.Identity()
        with torch.no_grad():
            seen = router.eval()(example)[-1]
    parts = [Graph(Plain(view, expert).eval(), seen_as, seen, SAID) for expert in experts]
    routed = Routed(router, experts).eval()
    return Graph(routed, name, example, (*SAID, *ROUTED), (Graph(router.eval(), name, example, outputs), *parts))


def _begin(model: Model, network: Network) -> tuple[Network, nn.Module, str, Tensor]:
    """A copy of the network, what stands before it, the name of the input, and an example of it."""
    network = copy.deepcopy(network).cpu().eval().requires_grad_(False)
    rng = torch.Generator().manual_seed(0)
    if not model.preprocessing.of_images:
        width = model.architecture.input_width
        assert width is not None
        return network, nn.Identity(), "vectors", torch.randn(EXAMPLES, width, generator=rng)
    size = model.preprocessing.size
    example = torch.randint(0, 256, (EXAMPLES, size, size, 3), generator=rng, dtype=torch.uint8)
    return network, Pixels(model.preprocessing), "images", example


def _experts(bank: DomainBank) -> list[Network]:
    """Of each domain; the first is the base, whose weights the router has too."""
    found = []
    for place, name in enumerate(bank.known):
        network = bank.expert(name) if place else bank.base
        network = network.for_domain(name) if network.needs_domain else network
        found.append(network.with_encoder(nn.Identity()) if bank.late else network)
    return found


def _fixed(network: Network) -> Network:
    """The same encoder, and a head in which weight norm and mask are computed once for all."""
    _, *between, classifier = network.with_encoder(nn.Identity()).plain()
    return Network(network.encoder, nn.Sequential(*between), classifier)


def _said(output: Output) -> tuple[Tensor, Tensor]:
    return output.logits.softmax(dim=1), output.logits
