import copy
import hashlib

import pytest
import torch

from cosda.models.encoders import build_encoder
from cosda.models.encoders.resnet import resnet

# Names and shapes of torchvision 0.28's state dicts without `fc`, as a digest, for machines without torchvision.
TORCHVISION = {18: "504739f3083bec5e", 34: "44a0fd3c2ef0c9ed", 50: "c1f7fd3808aa49e7", 101: "a36254db3e8fffb4"}


def names_and_shapes(state) -> list[str]:
    return sorted(f"{key} {tuple(value.shape)}" for key, value in state.items() if not key.startswith("fc."))


@pytest.fixture(scope="module", params=[18, 34, 50, 101])
def depth(request) -> int:
    return request.param


@pytest.fixture(scope="module")
def encoder(depth):
    return resnet(depth)


def test_keys_are_those_of_torchvisions_weight_files(depth, encoder) -> None:
    lines = names_and_shapes(encoder.state_dict())
    assert "layer2.0.downsample.0.weight" in {line.split()[0] for line in lines}
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16] == TORCHVISION[depth]


@pytest.mark.parametrize("depth", [18, 50])
def test_features_equal_torchvisions(torchvision, depth) -> None:
    theirs = torchvision.models.get_model(f"resnet{depth}").eval()
    ours = resnet(depth).eval()
    assert ours.load_state_dict(theirs.state_dict(), strict=False).missing_keys == []
    theirs.fc = torch.nn.Identity()
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images))


def test_sizes_and_shapes(depth, encoder) -> None:
    parameters = {18: 11_176_512, 34: 21_284_672, 50: 23_508_032, 101: 42_500_160}
    width = 512 if depth < 50 else 2048
    assert sum(parameter.numel() for parameter in encoder.parameters()) == parameters[depth]
    assert encoder.width == width
    with torch.no_grad():
        assert encoder.eval()(torch.zeros(1, 3, 64, 64)).shape == (1, width)


def test_small_takes_32_pixels_in_either_memory_format() -> None:
    encoder = build_encoder("small").eval()
    images = torch.randn(4, 3, 32, 32)
    features = encoder(images)
    assert features.shape == (4, encoder.width)
    assert encoder.preprocessing.size == 32
    last = encoder.to(memory_format=torch.channels_last)(images.to(memory_format=torch.channels_last))
    torch.testing.assert_close(last, features)


def test_small_learns_and_can_be_copied_after_a_backward() -> None:
    encoder = build_encoder("small")
    encoder(torch.randn(4, 3, 32, 32)).sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())
    copied = copy.deepcopy(encoder)
    assert copied.width == encoder.width


@pytest.mark.parametrize("depth", [50, 101])
def test_v1_has_its_stride_on_the_first_convolution_of_a_stage(depth) -> None:
    first, second = build_encoder(f"resnet{depth}-v1"), build_encoder(f"resnet{depth}")
    assert names_and_shapes(first.state_dict()) == names_and_shapes(second.state_dict())

    def strided(encoder) -> set[str]:
        return {name for name, module in encoder.named_modules() if getattr(module, "stride", 1) == (2, 2)}

    past = {"conv1"} | {f"layer{stage}.0.downsample.0" for stage in (2, 3, 4)}
    assert strided(first) == past | {f"layer{stage}.0.conv1" for stage in (2, 3, 4)}
    assert strided(second) == past | {f"layer{stage}.0.conv2" for stage in (2, 3, 4)}


def test_layouts_give_other_features_of_the_same_shape() -> None:
    first, second = build_encoder("resnet50-v1").eval(), build_encoder("resnet50").eval()
    second.load_state_dict(first.state_dict())
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        one, other = first(images), second(images)
    assert one.shape == other.shape == (2, 2048)
    assert not torch.allclose(one, other, rtol=0.1)
