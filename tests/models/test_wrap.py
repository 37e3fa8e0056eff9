import copy

import pytest
import torch
from torch import nn

from cosda.errors import CosdaError
from cosda.models.artifact import load
from cosda.models.encoders.base import FEATURE_VECTORS, Preprocessing
from cosda.models.wrap import wrap

SMALL = Preprocessing(size=16)
IMAGES = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
CLASSES = ("a", "b", "c")


def test_wrapped_model_gives_the_same_logits_and_the_original_is_untouched(own_classifier) -> None:
    own_classifier.train()
    own_classifier.middle.eval()  # a mixture of modes, which must come back
    before = copy.deepcopy(own_classifier.state_dict())
    model = wrap(own_classifier, CLASSES, preprocessing=SMALL)
    assert own_classifier.training
    assert not own_classifier.middle.training
    assert isinstance(own_classifier.top[1], nn.Linear)
    assert not own_classifier.top[1]._forward_hooks
    assert all(torch.equal(own_classifier.state_dict()[key], value) for key, value in before.items())
    own_classifier.eval()
    output = model.network.eval()(IMAGES)
    assert torch.equal(output.logits, own_classifier(IMAGES))
    assert output.features.shape == (3, 6)
    assert model.network.encoder.width == 6
    assert model.architecture.classifier == "top.1"
    assert model.preprocessing == SMALL
    with torch.no_grad():
        model.network.classifier.weight.zero_()
    assert torch.equal(own_classifier.top[1].weight, before["top.1.weight"])


def test_classifier_by_name(own_classifier) -> None:
    assert wrap(own_classifier, CLASSES, classifier="top.1", preprocessing=SMALL).architecture.bottleneck == 6
    with pytest.raises(CosdaError, match=r"no Linear layer called 'top.2'. Did you mean 'top.1'"):
        wrap(own_classifier, CLASSES, classifier="top.2", preprocessing=SMALL)
    with pytest.raises(CosdaError, match="not that of its Linear layer 'middle'"):
        wrap(own_classifier, CLASSES, classifier="middle", preprocessing=SMALL)


def test_model_of_feature_vectors() -> None:
    own = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    model = wrap(own, CLASSES, preprocessing=FEATURE_VECTORS, example=torch.randn(2, 5))
    assert model.architecture.input_width == 5
    with pytest.raises(CosdaError, match="give wrap an example"):
        wrap(own, CLASSES, preprocessing=FEATURE_VECTORS)


class Twice(nn.Module):
    """Uses its last layer in the middle, too."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, images):
        return self.layer(self.layer(images.mean(dim=(2, 3))).relu())


class Record(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, images):
        return {"logits": self.layer(images.mean(dim=(2, 3)))}


class Uncopyable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, images):
        return self.layer(images.mean(dim=(2, 3)))

    def __deepcopy__(self, memo):
        raise RuntimeError("this one is unique")


POOL = (nn.AdaptiveAvgPool2d(1), nn.Flatten())


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (nn.Sequential(nn.Conv2d(3, 3, 1), *POOL), "uses no Linear layer"),
        (nn.Sequential(*POOL, nn.Linear(3, 3), nn.Softmax(dim=1)), "such as a softmax"),
        (nn.Sequential(*POOL, nn.Linear(3, 4)), "tells 4 classes apart, but 3 class names"),
        (nn.Sequential(nn.Linear(16, 3)), r"gives a tensor \(2, 3, 16, 3\) for a batch of 2"),
        (nn.Sequential(*POOL, nn.Linear(7, 3)), r"does not take a batch of shape \(2, 3, 16, 16\)"),
        (Twice(), "may use the layer twice"),
        (Record(), "gives a dict for a batch of 2"),
        (Uncopyable(), "cannot be copied.*this one is unique"),
    ],
)
def test_unsuitable_models_are_explained(own, message) -> None:
    with pytest.raises(CosdaError, match=message):
        wrap(own, CLASSES, preprocessing=SMALL)


def test_saved_and_loaded_with_the_users_own_code(own_classifier, tmp_path) -> None:
    model = wrap(own_classifier, CLASSES, preprocessing=SMALL)
    model.save(tmp_path / "model")
    with pytest.raises(CosdaError, match=r"build=function"):
        load(tmp_path / "model")
    again = load(tmp_path / "model", build=type(own_classifier))
    assert torch.equal(again.network(IMAGES).logits, model.network.eval()(IMAGES).logits)
    assert again.architecture == model.architecture
    with pytest.raises(CosdaError, match=r"no Linear layer called 'top.1'"):
        load(tmp_path / "model", build=Record)


def test_torchvisions_classifier(torchvision) -> None:
    theirs = torchvision.models.mobilenet_v3_small(num_classes=3).eval()
    model = wrap(theirs, CLASSES, preprocessing=Preprocessing(size=32))
    images = torch.randn(2, 3, 32, 32)
    assert model.architecture.classifier == "classifier.3"
    assert torch.equal(model.network.eval()(images).logits, theirs(images))
