"""What one process and several do alike, for tests: `torchrun … together.py FOLDER` leaves what each rank has."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cosda.api import adapt, train_source
from cosda.config.schema import AdaptSettings
from cosda.data.edges import EdgeMixing, sobel
from cosda.data.loader import Loader
from cosda.distributed import collectives
from cosda.errors import CosdaError
from cosda.methods import METHODS, Method
from cosda.models.masks import add_masks
from cosda.models.network import Network
from cosda.run.machine import Machine
from cosda.run.supervised import Supervised
from cosda.run.train import Training
from tiny import CLASSES, read, tiny_benchmark, tiny_domain, tiny_loader, tiny_network

COUNT, BATCH = 30, 9  # batches of 9, 9, 9 and 3: two processes share the first unevenly and the last not at all
# Everything that a method can do, as far as images on a small network show it: little ones for what takes long.
METHOD_SETTINGS: dict[str, dict[str, Any]] = {
    "cotta": {"augmentations": 2, "ap": 1.0},
    "dac": {"warm_up": 1, "confident": 2},
    "shot++": {"rotation_epochs": 2, "mixmatch": True, "mixmatch_epochs": 1},
    "nrc": {"bank": "persistent", "bank_keep": 0.5},
    "cosda": {"gate": (0.3, 0.3), "information_on": "clean"},
}


def plain_network(masked: bool) -> Network:
    """Without BatchNorm; with masks for the one method that has them."""
    network = tiny_network("plain")
    return add_masks(network, 6, ("source", "target")).for_domain("target") if masked else network


def train(method: Method, network: Network, loader: Loader, epochs: int = 2) -> dict[str, Any]:
    """All that a training leaves: what a resume would need, and the facts of its epochs."""
    settings = AdaptSettings(epochs=epochs, batch_size=BATCH, lr=0.02, lr_end=0.01)
    job, facts = Training(method, network, loader, settings, 0, 1, "target"), []
    job.run(lambda epoch: facts.append(epoch.recorded))
    return {"state": job.state_dict(), "facts": facts, "predictor": method.predictor("target").state_dict()}


def adapted(name: str, kind: str = "plain") -> dict[str, Any]:
    """A target domain learnt by a method."""
    loader = tiny_loader(kind, COUNT, BATCH)
    if name == "edgemix":
        loader = replace(loader, edges=EdgeMixing(sobel, 0.9, clean_from=1))
    network = plain_network(name == "gsfda") if kind == "plain" else tiny_network(kind)
    return train(METHODS[name](**METHOD_SETTINGS.get(name, {})), network, loader)


def with_dropout() -> dict[str, Any]:
    """The same with a network that draws random numbers of its own, and with what torch's generator began from."""
    network = plain_network(False)
    network.bottleneck = nn.Sequential(network.bottleneck, nn.Dropout(0.5))
    method = METHODS["nrc"](**METHOD_SETTINGS["nrc"])
    return {"training": train(method, network, tiny_loader("plain", COUNT, BATCH)), "seed": torch.initial_seed()}


def supervised(name: str) -> dict[str, Any]:
    """A source model learnt for a method."""
    labels = tiny_domain("target", COUNT, seed=3).labels
    assert labels is not None
    method = Supervised(0.5, 0.1, torch.from_numpy(labels), METHODS[name]())
    return train(method, plain_network(name == "gsfda"), tiny_loader("plain", COUNT, BATCH))


def by_calls(folder: Path) -> dict[str, Any]:
    """What a program does: train a source model, adapt it to features of a frozen encoder, and save it."""
    quick = ("network.encoder=small", "network.bottleneck=8", "data.size=16", "source.epochs=1", "source.batch_size=8")
    frozen = ("network.freeze_encoder=true", "epochs=2", "batch_size=8")
    machine, data = Machine(device="cpu", threads=1), tiny_benchmark()
    source = train_source(data, "one", settings=read(quick), out=folder / "runs", machine=machine).model
    result = adapt(source, data["two"], "nrc", settings=read(frozen), out=folder / "runs", machine=machine)
    result.model.save(folder / "adapted")
    return {"network": result.model.network.state_dict(), "records": len(result.run.records)}


def by_bank(folder: Path) -> dict[str, Any]:
    """The same that leaves a domain bank, twice; and its answers to images of all domains, shared evenly or not."""
    quick = ("network.encoder=small", "network.bottleneck=8", "data.size=16", "source.epochs=1", "source.batch_size=8")
    settings: dict[str, Any] = {"settings": read(("epochs=1", "batch_size=8")), "out": folder / "banks"}
    settings["machine"] = machine = Machine(device="cpu", threads=1)
    data = tiny_benchmark()
    source = train_source(data, "one", settings=read(quick), out=folder / "banks", machine=machine).model
    first = adapt(source, data["two"], "aad", carry="bank", **settings).model
    second = adapt(first, data["three"], "aad", **settings)
    second.model.save(folder / "bank")
    answers = {count: second.model.network(mixed_images(count)).logits for count in (9, 5, 3, 1, 0)}
    return {"key": second.model.key, "answers": answers, "records": len(second.run.records)}


def mixed_images(count: int) -> Tensor:
    """Some of each domain, as the bank's network sees them."""
    batches = [next(tiny_loader("plain", 20, 20, seed=0).sweep("test")).images + shift for shift in (0.0, 0.3, 0.6)]
    return torch.stack([batch[:3] for batch in batches], dim=1).flatten(0, 1)[:count]


class Spy:
    """Samples that remember which of them were read."""

    def __init__(self, items: Any) -> None:
        self.items, self.read = items, list[int]()
        self.dtype, self.shape = items.dtype, items.shape

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: Any) -> Any:
        self.read += np.asarray(index).tolist()
        return self.items[index]


def epoch_of_views(views: tuple[str, ...] = ("weak", "strong", "test")) -> dict[str, Any]:
    """The batches of an epoch, and which images this process read for them."""
    loader = tiny_loader("plain", COUNT, BATCH)
    spy = Spy(loader.items)
    batches = list(replace(loader, items=spy).epoch(1, 0, views))
    parts = zip(*(batch.views for batch in batches), strict=True)
    return {
        "views": [torch.cat(part) for part in parts],
        "index": torch.cat([b.index for b in batches]),
        "read": spy.read,
    }


def dropped_out() -> Tensor:
    """Which features of a batch of ones are left by dropout, seen by every process."""
    torch.manual_seed(collectives.rank())
    network = Network(nn.Dropout(0.5), nn.Identity(), nn.Linear(50, len(CLASSES))).train()
    return network(torch.ones(8, 50)).features.detach()


def gradients(count: int) -> dict[str, Tensor]:
    """Of a loss of gathered outputs, and of one that every process computes in full."""
    torch.manual_seed(0)
    network, images, head = tiny_network("plain"), torch.randn(count, 3, 16, 16), nn.Linear(6, 1)
    output = network(images)
    loss = output.logits.softmax(1).mean(0).square().sum() + head(output.features.detach()).square().mean()
    loss = loss + output.features.std() + head.weight.sum()
    loss.backward()
    named = dict(network.named_parameters()) | {f"head.{name}": p for name, p in head.named_parameters()}
    collectives.mean_over_ranks([p.grad for p in named.values() if p.grad is not None])
    return {name: p.grad for name, p in named.items() if p.grad is not None} | {"loss": loss.detach()}


def apart() -> list[str]:
    """What is said when one process goes its own way, from the beginning or later."""

    class Straying(type(METHODS["aad"]())):  # type: ignore[misc]
        def end_epoch(self) -> None:
            if collectives.rank() == 1 and self.progress.epoch == 1:
                self.student.classifier.bias.data += 1e-6

    said = []
    for method, seed in ((METHODS["aad"](), collectives.rank()), (Straying(), 0)):
        try:
            train(method, tiny_network("plain", seed), tiny_loader("plain", COUNT, BATCH))
        except CosdaError as error:
            said.append(f"CosdaError: {error}")
    return said


def everything() -> dict[str, Any]:
    """All of the above."""
    return {
        "adapted": {name: adapted(name) for name in METHODS},
        "batch_norm": {name: adapted(name, "batch_norm") for name in ("bn", "cosda", "shot")},
        "supervised": {name: supervised(name) for name in ("source", "gsfda")},
        "views": epoch_of_views(),
        "gradients": {count: gradients(count) for count in (8, 5, 3, 1)},
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    Machine(device="cpu").join()
    found = everything() | {"dropout": with_dropout(), "dropped": dropped_out(), "apart": apart()}
    found |= {"calls": by_calls(Path(sys.argv[1])), "bank": by_bank(Path(sys.argv[1])), "world": collectives.world()}
    torch.save(found, Path(sys.argv[1]) / f"rank-{collectives.rank()}.pt")
    collectives.leave()
