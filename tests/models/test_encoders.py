import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from cosda.api import train_source
from cosda.errors import CosdaError
from cosda.models.architecture import Architecture
from cosda.models.artifact import load
from cosda.models.encoders import ENCODERS, Encoder, Family, Named, Preprocessing, build_encoder
from cosda.models.network import same_weights
from cosda.run.machine import Machine
from tiny import tiny_benchmark

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


@pytest.fixture
def trained():
    torch.manual_seed(1)
    return build_encoder("small")


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(CosdaError, match=r"Did you mean 'resnet50'.*hf/NAME"):
        build_encoder("resnet5O")


@pytest.mark.parametrize("suffix", ["safetensors", "pth", "pt"])
def test_weights_of_a_file(tmp_path, trained, suffix) -> None:
    state = trained.state_dict() | {"fc.weight": torch.zeros(2, 64), "fc.bias": torch.zeros(2)}
    path = tmp_path / f"weights.{suffix}"
    save_file(state, path) if suffix == "safetensors" else torch.save(state, path)
    loaded = build_encoder("small", weights=str(path)).state_dict()
    assert all(torch.equal(loaded[key], value) for key, value in trained.state_dict().items())


def test_weights_of_a_training_program(tmp_path, trained) -> None:
    """Under a key, with DataParallel's prefix, beside numbers, and without BatchNorm's counters."""
    state = {
        f"module.{key}": value for key, value in trained.state_dict().items() if not key.endswith("num_batches_tracked")
    }
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "weights.pth")
    loaded = build_encoder("small", weights=str(tmp_path / "weights.pth"))
    assert torch.equal(loaded.conv1.weight, trained.conv1.weight)


def test_weights_that_do_not_fit_are_listed(tmp_path, trained) -> None:
    state = trained.state_dict()
    state["stem.weight"] = state.pop("conv1.weight")
    state["bn1.bias"] = torch.zeros(3)
    torch.save(state, tmp_path / "weights.pth")
    with pytest.raises(
        CosdaError,
        match=r"missing: conv1.weight; not known: stem.weight; of another shape: bn1.bias is \(3,\), needs \(16,\)",
    ):
        build_encoder("small", weights=str(tmp_path / "weights.pth"))


@pytest.fixture(scope="module")
def bottlenecks():
    return build_encoder("resnet50").state_dict()


V1, V1_5 = "stride 2 on the 1x1 convolution", "stride 2 on the 3x3 convolution"


@pytest.mark.parametrize("key", ["layout", "origin"])
@pytest.mark.parametrize(
    ("said", "fits", "other"), [(V1, "resnet50-v1", "resnet50"), (V1_5, "resnet50", "resnet50-v1")]
)
def test_weights_of_the_other_layout_are_refused(tmp_path, bottlenecks, key, said, fits, other) -> None:
    path = tmp_path / "weights.safetensors"
    save_file(bottlenecks, path, {key: f"ResNet-50, {said} of layer2.0"})
    loaded = build_encoder(fits, weights=str(path))
    assert torch.equal(loaded.layer4[0].conv2.weight, bottlenecks["layer4.0.conv2.weight"])
    with pytest.raises(CosdaError, match=rf"of a ResNet with {said}, but this encoder has .*'resnet50-v1'"):
        build_encoder(other, weights=str(path))


def test_weights_that_do_not_name_their_layout_are_taken(tmp_path, bottlenecks) -> None:
    save_file(bottlenecks, tmp_path / "weights.safetensors", {"format": "pt"})
    torch.save(bottlenecks, tmp_path / "weights.pth")
    for name in ("weights.safetensors", "weights.pth"):
        for encoder in ("resnet50", "resnet50-v1"):
            build_encoder(encoder, weights=str(tmp_path / name))


def test_torchvisions_own_network_refuses_the_other_layout_too(torchvision, tmp_path, bottlenecks) -> None:
    path = tmp_path / "weights.safetensors"
    save_file(bottlenecks, path, {"layout": V1})
    with pytest.raises(CosdaError, match="this encoder has stride 2 on the 3x3"):
        build_encoder("torchvision/resnet50", weights=str(path))


def test_code_in_a_weights_file_is_never_run(tmp_path) -> None:
    class Trap:
        def __reduce__(self):
            return exec, (f"open({str(tmp_path / 'ran')!r}, 'w')",)

    torch.save({"conv1.weight": Trap()}, tmp_path / "weights.pth")
    with pytest.raises(CosdaError, match="runs code"):
        build_encoder("small", weights=str(tmp_path / "weights.pth"))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.pth", None, "does not exist"),
        ("cut.safetensors", b"\x08\x00", "cannot be read"),
        ("text.pth", b"hello", "cannot be read|not a file"),
        ("empty.pth", b"", "cannot be read|not a file"),
    ],
)
def test_unreadable_weights(tmp_path, name, content, message) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CosdaError, match=message):
        build_encoder("small", weights=str(tmp_path / name))


def test_weights_must_be_a_dictionary_of_tensors(tmp_path) -> None:
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(CosdaError, match="no state dict"):
        build_encoder("small", weights=str(tmp_path / "list.pth"))
    with pytest.raises(CosdaError, match=r"is a folder.*cosda\.load"):
        build_encoder("small", weights=str(tmp_path))
    with pytest.raises(CosdaError, match="comes without weights"):
        build_encoder("resnet18", weights="pretrained")


def test_identity_takes_feature_vectors_of_its_width() -> None:
    encoder = build_encoder("identity:5")
    features = torch.randn(2, 5)
    assert encoder.width == 5
    assert encoder(features) is features
    assert not encoder.preprocessing.of_images
    assert build_encoder("identity", input_width=7).width == 7
    with pytest.raises(CosdaError, match="width 5"):
        encoder(torch.randn(2, 6))


@pytest.mark.parametrize(
    ("name", "width", "message"),
    [
        ("identity", None, "needs the width"),
        ("identity:0", None, "needs the width"),
        ("identity:many", None, "not a number"),
        ("identity:5", 6, "does not fit"),
    ],
)
def test_identity_explains_a_wrong_width(name, width, message) -> None:
    with pytest.raises(CosdaError, match=message):
        build_encoder(name, input_width=width)


def test_architecture_builds_and_survives_json() -> None:
    architecture = Architecture("identity", bottleneck=4, classes=3, input_width=6)
    again = Architecture.from_json(json.loads(json.dumps(architecture.as_json())))
    assert again == architecture
    output = again.build().eval()(torch.zeros(2, 6))
    assert output.features.shape == (2, 4)
    assert output.logits.shape == (2, 3)
    with pytest.raises(CosdaError, match=r"no 'architecture.clases'. Did you mean 'classes'"):
        Architecture.from_json({"clases": 3})


def test_preprocessing_survives_json_and_checks_itself() -> None:
    preprocessing = Preprocessing(size=32, profile="shot", flip=False)
    assert Preprocessing.from_json(json.loads(json.dumps(preprocessing.as_json()))) == preprocessing
    with pytest.raises(CosdaError, match=r"preprocessing.profile = 'other' .* one of cosda, shot"):
        Preprocessing.from_json({**preprocessing.as_json(), "profile": "other"})
    with pytest.raises(CosdaError, match="positive"):
        Preprocessing(std=(0.0, 1.0, 1.0))
    with pytest.raises(CosdaError, match="Did you mean 'size'"):
        Preprocessing.from_json({"sise": 32})


# --- The registry -----------------------------------------------------------------------------------------------------


class Mean(Encoder):
    """The mean of each channel, times a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(3))
        self.width = 3
        self.preprocessing = Preprocessing(size=16)

    def forward(self, images):
        return images.mean(dim=(2, 3)) * self.scale


def test_an_encoder_from_outside_is_trained_saved_loaded_and_named_in_help(monkeypatch, tmp_path) -> None:
    monkeypatch.setitem(ENCODERS, "mean", Named("the mean of each channel", Mean))
    assert "mean: the mean of each channel" in ENCODERS.described()
    settings = {"network.encoder": "mean", "network.bottleneck": 4, "source.epochs": 1}
    machine = Machine(device="cpu", threads=1)
    model = train_source(tiny_benchmark(), "one", settings=settings, out=tmp_path / "runs", machine=machine).model
    assert isinstance(model.network.encoder, Mean)
    assert model.preprocessing.size == 16
    assert same_weights(load(model.save(tmp_path / "model")).network, model.network)
    monkeypatch.delitem(ENCODERS, "mean")
    with pytest.raises(CosdaError, match="there is no encoder 'mean'"):
        load(tmp_path / "model")


def test_weights_that_come_with_an_encoder_from_outside_are_its_default(monkeypatch, tmp_path) -> None:
    save_file({"scale": torch.full((3,), 7.0)}, tmp_path / "mean.safetensors")
    monkeypatch.setitem(ENCODERS, "mean", Named("", Mean, lambda: tmp_path / "mean.safetensors"))
    for weights in (None, "pretrained"):
        assert build_encoder("mean", weights).scale.tolist() == [7, 7, 7]
    assert build_encoder("mean", "random").scale.tolist() != [7, 7, 7]


def test_a_family_from_outside_reads_what_follows_its_prefix(monkeypatch) -> None:
    asked = []

    def make(name, weights):
        asked.append((name, weights))
        return Mean()

    monkeypatch.setitem(ENCODERS, "mine/NAME", Family("mine", make, has_weights=False))
    build_encoder("mine/a/b:c", "file")
    assert asked == [("a/b:c", "file")]
    with pytest.raises(CosdaError, match="'mine/a' comes without weights"):
        build_encoder("mine/a", "pretrained")


def test_every_encoder_has_a_title_and_its_place_in_the_docs() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, entry in ENCODERS.items():
        assert entry.title
        assert f"`{name}`" in text
    assert [name for name, entry in ENCODERS.items() if entry.has_weights] == [
        "lite0",
        "timm/NAME",
        "torchvision/NAME",
        "hf/NAME",
    ]
