"""Small models, and the libraries of others where they are installed."""

import pytest
import torch
from torch import nn

from cosda.models.architecture import Architecture
from cosda.models.artifact import Model
from torchvision_operators import declare_torchvision_operators


def optional(package: str):
    """The package, or a skipped test that says why."""
    declare_torchvision_operators()
    return pytest.importorskip(package, reason=f"{package} is not installed: pip install 'cosda[{package}]'")


@pytest.fixture(autouse=True)
def one_thread():
    """These networks are tiny: on a busy machine, threads that wait for each other cost more than they bring."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def torchvision():
    return optional("torchvision")


@pytest.fixture(scope="session")
def timm():
    optional("torchvision")
    return optional("timm")


@pytest.fixture(scope="session")
def transformers():
    declare_torchvision_operators()
    return optional("transformers")


@pytest.fixture
def model() -> Model:
    """An untrained model of two classes on the small encoder."""
    torch.manual_seed(0)
    architecture = Architecture("small", bottleneck=8, classes=2)
    network = architecture.build()
    lineage = [{"step": "source", "data": "hand", "accuracy": 0.5}]
    return Model(network, architecture, ("no", "yes"), network.encoder.preprocessing, lineage)


class OwnClassifier(nn.Module):
    """A user's own network: its classifier is registered first and called last, behind dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.top = nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3))
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.middle = nn.Linear(4, 6)

    def forward(self, images):
        return self.top(self.middle(self.features(images).mean(dim=(2, 3))))


@pytest.fixture
def own_classifier() -> OwnClassifier:
    torch.manual_seed(0)
    return OwnClassifier()
