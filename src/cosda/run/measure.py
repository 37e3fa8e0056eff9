"""What is measured of a run's models on its domains, and written into its folder."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from cosda import metrics
from cosda.config.plan import Plan
from cosda.data.domain import Domain, Index
from cosda.data.loader import Loader
from cosda.distributed import collectives
from cosda.files import write_atomically
from cosda.models.experts import DomainBank
from cosda.models.network import Network
from cosda.records.folder import RunFolder
from cosda.run.evaluate import confusion, counts, embed, predicted_classes, told
from cosda.run.prepare import Prepared
from cosda.run.routed import routed

Confusions = dict[str, Index | None]  # by domain; None where it has no labels


@dataclass(frozen=True)
class Measurer:
    """Looks at the test images of a run's domains with its models."""

    prepared: Prepared
    folder: RunFolder

    @property
    def plan(self) -> Plan:
        """The run's settings."""
        return self.prepared.plan

    @property
    def domains(self) -> Mapping[str, Domain]:
        """The domains that are at hand."""
        return self.prepared.domains

    def everywhere(self, network: Network, stage: int, known: Confusions) -> None:
        """Measure what a stage hands on, on all domains of the chain, seen or not.

        ``known`` are the confusions of those on which this very model was measured after its epoch.
        """
        confusions: dict[str, Index] = {}
        for number, name in enumerate(self.plan.data.domains):
            matrix = known[name] if name in known else self._final(network, stage, name)
            self.record(matrix, stage, None, name)
            if matrix is not None:
                confusions[f"d{number}"] = matrix.astype(np.int32)
        last = stage == len(self.plan.data.domains) - 1
        if confusions and (last or stage == 0):
            self._store("confusion", stage, confusions)
        if last:
            self.embed(network, stage)

    def expert(self, network: Network, stage: int, name: str) -> None:
        """Measure a domain's own expert on it: what routing could reach at best."""
        self.record(self.confusion(network, name), stage, None, name, "expert")

    def _final(self, network: Network, stage: int, name: str) -> Index | None:
        """Confusions of what a stage hands on; of a domain bank also how it routed the images."""
        domain = self.domains.get(name)
        if not isinstance(network, DomainBank) or domain is None or not len(domain.test):
            return self.confusion(network, name)
        found = routed(network, domain, self._test_loader(domain))
        self.folder.append("routing", stage=stage, domain=name, **found.facts(network))
        if domain.labels is None:
            return None
        return confusion(found.predicted, domain.labels[domain.test], len(self.plan.data.classes))

    def with_other_statistics(self, network: Network, stage: int, kind: str) -> None:
        """Measure the same weights on all domains, their network lent BatchNorm statistics of this other kind."""
        for name in self.plan.data.domains:
            self.record(self.confusion(network, name), stage, None, name, "alternative", statistics=kind)

    def confusion(self, network: Network, name: str, seen: Tensor | None = None) -> Index | None:
        """Which class of a domain is taken for which; None where there are no labels.

        ``seen`` are predictions for its test images, where somebody has made them already.
        """
        domain = self.domains.get(name)
        if domain is None or domain.labels is None or len(domain.test) == 0:
            return None
        if seen is None:
            predicted = predicted_classes(told(network, name), self._test_loader(domain))
        else:
            predicted = seen.argmax(dim=1).cpu().numpy()
        return confusion(predicted, domain.labels[domain.test], len(self.plan.data.classes))

    def record(
        self, matrix: Index | None, stage: int, epoch: int | None, name: str, kind: str = "accuracy", **more: str
    ) -> float | None:
        """The benchmark's accuracy on a domain, which is written down; None where there are no labels."""
        if matrix is None:
            return None
        images, correct = counts(matrix)
        facts = {"domain": name, "split": "test", "images": images, "correct": correct}
        self.folder.append(kind, stage=stage, epoch=epoch, **facts, **more)
        accuracy = metrics.accuracy(self.plan.data.headline, correct, images)
        if kind == "accuracy":
            self.prepared.watcher.measured(stage, epoch, name, accuracy)
        return accuracy

    def embed(self, network: Network, stage: int) -> None:
        """Keep features of a sample of each domain for the report's t-SNE."""
        known = [(number, self.domains[n]) for number, n in enumerate(self.plan.data.domains) if n in self.domains]
        loaders = [(number, self._test_loader(domain), domain.labels) for number, domain in known]
        self._store("embedding", stage, embed(network, loaders, self.plan.seed, self.plan.data.domains))

    def _store(self, kind: str, stage: int, arrays: Mapping[str, Any]) -> None:
        """Put what is too large for a line of the records into a file beside them."""
        path = self.folder.path / kind / f"stage-{stage}.npz"
        if collectives.is_main():
            content = io.BytesIO()
            np.savez_compressed(content, allow_pickle=False, **arrays)
            write_atomically(path, content.getvalue())
        self.folder.append(kind, stage=stage, file=f"{kind}/{path.name}")

    def _test_loader(self, domain: Domain) -> Loader:
        return self.prepared.loader(domain, "test")
