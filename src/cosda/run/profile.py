"""Looking at the images of a domain for its profile: see `cosda.models.profile`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cosda.data.loader import Loader
from cosda.models.bn_folding import evaluating
from cosda.models.network import Network
from cosda.models.profile import CONFIDENCES, FEWEST, GROUPS, DomainProfile, bin_of, group_means
from cosda.models.router import Gauge, new_profile
from cosda.run.evaluate import outputs, told
from cosda.run.selector import predict, sample
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

    def profile(
        self,
        gauge: Gauge,
        network: Network,
        others: tuple[DomainProfile, ...] = (),
        stranger: Network | None = None,
    ) -> DomainProfile:
        """Its profile beside those of other domains, with what a network says of it.

        A ``stranger``, a network that was not trained on these images, tells what to compare later ones with. Without
        one that are the early layers alone.
        """
        made = new_profile(self.name, self.statistics(gauge), others, gauge.late)
        profile = replace(made, full=gauge.full).told(predict(told(network, self.name), self.images))
        if stranger is not None:
            return replace(profile, groups={**profile.groups, **self.groups(stranger, gauge)})
        return replace(profile, groups={}) if self._learnt(gauge) else profile

    def groups(self, stranger: Network, gauge: Gauge) -> dict[str, Tensor]:
        """What a network that was not trained on these images makes of groups of them."""
        some = replace(self, images=sample(self.images, GROUPS * FEWEST))
        seen = later_places(stranger.with_encoder(nn.Identity()) if self.frozen else stranger, some.images)
        if self._learnt(gauge):
            seen["early"] = some.statistics(gauge)
        return {place: group_means(values) for place, values in seen.items()}

    def _learnt(self, gauge: Gauge) -> bool:
        """Whether there are no early layers: the routing statistics are features of an encoder that was trained."""
        return not (gauge.sites or self.frozen) and bool(gauge.encoder.state_dict())

    def image(self) -> Tensor:
        """The first one."""
        return next(iter(self.images.sweep("test"))).images[:1]

    def note(self, text: str) -> None:
        """Tell the user something."""
        self.watcher.note(text)


def later_places(network: Network, images: Loader) -> dict[str, Tensor]:
    """For each image its features (N, d), and its predicted class and confidence (N, C + 20), at the places' names.

    Class and confidence are ones among zeros: means over images are histograms.
    """
    seen = [
        (output.features.cpu(), output.logits.double().softmax(dim=1).cpu()) for _, output in outputs(network, images)
    ]
    features, probabilities = (torch.cat(part) for part in zip(*seen, strict=True))
    confidence, predicted = probabilities.max(dim=1)
    classes = F.one_hot(predicted, probabilities.shape[1])
    return {
        "features": features,
        "predictions": torch.cat([classes, F.one_hot(bin_of(confidence), CONFIDENCES)], dim=1),
    }


def routing_statistics(gauge: Gauge, images: Loader) -> Tensor:
    """Routing statistics (N, D) of all images, in order."""
    with evaluating(gauge.encoder):
        return torch.cat([gauge(batch.images) for batch in images.sweep("test")])
