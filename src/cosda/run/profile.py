"""Looking at the images of a domain for its profile: see `cosda.models.profile`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from cosda.data.loader import Loader
from cosda.models.bn_folding import evaluating
from cosda.models.network import Network
from cosda.models.profile import DomainProfile
from cosda.models.router import Gauge, new_profile
from cosda.run.evaluate import told
from cosda.run.selector import predict
from cosda.watch import Watcher


@dataclass
class Look:
    """The training images of a domain, as a carry rule may look at them."""

    name: str
    frozen: bool  # whether the encoder is, so that networks are heads
    images: Loader
    watcher: Watcher = field(default_factory=Watcher)

    def __len__(self) -> int:
        return len(self.images)

    def statistics(self, gauge: Gauge) -> Tensor:
        """Routing statistics (N, D) of all images."""
        if self.frozen:  # the images are features already
            gauge = Gauge(nn.Identity(), late=True)
        return routing_statistics(gauge, self.images)

    def profile(self, gauge: Gauge, network: Network, others: tuple[DomainProfile, ...] = ()) -> DomainProfile:
        """Its profile beside those of other domains, with what a network says of it."""
        made = new_profile(self.name, self.statistics(gauge), others, gauge.late)
        profile = replace(made, full=gauge.full)
        return profile.told(predict(told(network, self.name), self.images))

    def image(self) -> Tensor:
        """The first one."""
        return next(iter(self.images.sweep("test"))).images[:1]

    def note(self, text: str) -> None:
        """Tell the user something."""
        self.watcher.note(text)


def routing_statistics(gauge: Gauge, images: Loader) -> Tensor:
    """Routing statistics (N, D) of all images, in order."""
    with evaluating(gauge.encoder):
        return torch.cat([gauge(batch.images) for batch in images.sweep("test")])
