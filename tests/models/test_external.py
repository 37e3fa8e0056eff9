"""Networks of timm, torchvision and transformers, for real where these are installed."""

import importlib.util
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from cosda.errors import CosdaError
from cosda.models.encoders import build_encoder
from cosda.models.encoders import external as module

IMAGES = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", ["timm/resnet18", "timm/mobilenetv3_small_050", "timm/test_vit"])
def test_timm(timm, name) -> None:
    encoder = build_encoder(name).eval()
    size = encoder.preprocessing.size
    features = encoder(torch.zeros(2, 3, size, size))
    assert features.shape == (2, encoder.width)


def test_timm_weights_of_a_file(timm, tmp_path) -> None:
    theirs = timm.create_model("resnet18").eval()  # with its last layer
    torch.save(theirs.state_dict(), tmp_path / "resnet18.pth")
    ours = build_encoder("timm/resnet18", weights=str(tmp_path / "resnet18.pth")).eval()
    assert ours.width == 512
    torch.testing.assert_close(theirs.fc(ours(IMAGES)), theirs(IMAGES))
    # Our own ResNet has the same names, so it takes the same file.
    built_in = build_encoder("resnet18", weights=str(tmp_path / "resnet18.pth")).eval()
    torch.testing.assert_close(built_in(IMAGES), ours(IMAGES))


def test_unknown_names(timm, torchvision) -> None:
    with pytest.raises(CosdaError, match=r"timm has no model 'resnet18x'. Did you mean"):
        build_encoder("timm/resnet18x")
    with pytest.raises(CosdaError, match=r"torchvision has no classifier 'resnet18x'. Did you mean"):
        build_encoder("torchvision/resnet18x")


@pytest.mark.parametrize(
    ("name", "width"), [("resnet18", 512), ("mobilenet_v3_small", 1024), ("shufflenet_v2_x0_5", 1024)]
)
def test_torchvision(torchvision, name, width) -> None:
    encoder = build_encoder(f"torchvision/{name}").eval()
    assert encoder.width == width
    assert encoder(IMAGES).shape == (2, width)
    assert encoder.preprocessing.mean == (0.485, 0.456, 0.406)


def test_torchvision_weights_of_a_file(torchvision, tmp_path) -> None:
    theirs = torchvision.models.get_model("resnet18").eval()
    torch.save(theirs.state_dict(), tmp_path / "resnet18.pth")
    ours = build_encoder("torchvision/resnet18", weights=str(tmp_path / "resnet18.pth")).eval()
    torch.testing.assert_close(theirs.fc(ours(IMAGES)), theirs(IMAGES))


def test_torchvision_without_a_last_linear_layer(torchvision) -> None:
    with pytest.raises(CosdaError, match="no last Linear layer"):
        build_encoder("torchvision/squeezenet1_1")


@pytest.fixture
def tiny_vit(transformers, tmp_path):
    """A checkpoint folder of a ViT classifier; like the hub's, it holds no pooler."""
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32, patch_size=8
    )
    model = transformers.ViTForImageClassification(config).eval()
    model.save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(
        '{"size": {"height": 32, "width": 32}, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.4, 0.4, 0.4]}'
    )
    return tmp_path, model


@pytest.mark.parametrize("weights", ["pretrained", "file"])
def test_transformers(tiny_vit, weights) -> None:
    folder, theirs = tiny_vit
    weights = str(folder / "model.safetensors") if weights == "file" else weights
    encoder = build_encoder(f"hf/{folder}", weights=weights).eval()
    assert encoder.width == 16
    assert encoder.preprocessing.size == 32
    assert encoder.preprocessing.std == (0.4, 0.4, 0.4)
    images = IMAGES[..., :32, :32]
    with torch.no_grad():
        # The first token, which the checkpoint's classifier was trained on, and not a random pooler.
        torch.testing.assert_close(theirs.classifier(encoder(images)), theirs(images).logits)


def test_transformers_weights_that_do_not_fit(tiny_vit) -> None:
    folder, _ = tiny_vit
    state = {key: value for key, value in load_file(folder / "model.safetensors").items() if "cls_token" not in key}
    torch.save(state, folder / "part.pth")
    with pytest.raises(CosdaError, match=r"does not fit hf/.*missing: embeddings\.cls_token"):
        build_encoder(f"hf/{folder}", weights=str(folder / "part.pth"))


def test_transformers_convolutional(transformers, tmp_path) -> None:
    transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1]).save_pretrained(tmp_path)
    encoder = build_encoder(f"hf/{tmp_path}")
    assert encoder.width == 12
    assert encoder(IMAGES).shape == (2, 12)


def test_transformers_explains_a_missing_checkpoint(transformers, tmp_path) -> None:
    with pytest.raises(CosdaError, match=r"could not read the config of .*folder with a config\.json"):
        build_encoder(f"hf/{tmp_path / 'nothing'}")


def test_a_missing_config_is_not_blamed_on_torchvision(transformers, tmp_path, monkeypatch) -> None:
    """transformers reads configs without torchvision, whose absence would be the wrong thing to mend."""
    real = module.import_library

    def broken(wanted: str, extra: str | None):
        if wanted == "torchvision":
            raise CosdaError("torchvision cannot be imported")
        return real(wanted, extra)

    monkeypatch.setattr(module, "import_library", broken)
    with pytest.raises(CosdaError, match="could not read the config"):
        build_encoder(f"hf/{tmp_path / 'nothing'}")


@pytest.mark.parametrize(
    ("name", "extra"), [("timm/resnet18", "timm"), ("torchvision/resnet18", "torchvision"), ("hf/x", "transformers")]
)
def test_absent_library_names_the_extra(monkeypatch, name, extra) -> None:
    def absent(wanted: str):
        raise ModuleNotFoundError(f"No module named '{wanted}'")

    monkeypatch.setattr(module.importlib, "import_module", absent)
    with pytest.raises(CosdaError, match=rf"pip install 'cosda\[{extra}\]'"):
        build_encoder(name)


@pytest.mark.parametrize("name", ["timm/resnet18", "torchvision/resnet18"])
def test_missing_operators_are_explained(monkeypatch, name) -> None:
    def broken(wanted: str):
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(module.importlib, "import_module", broken)
    with pytest.raises(CosdaError, match=r"compiled operators are missing \(operator torchvision::nms.*CPU build"):
        build_encoder(name)


def test_missing_operators_are_explained_for_real(tmp_path) -> None:
    """In a fresh process, where nothing has declared the operators; transformers hides the reason."""
    for package in ("torchvision", "transformers"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install 'cosda[{package}]'")
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    program = f"""
import importlib
from cosda.errors import CosdaError
from cosda.models.encoders import build_encoder
try:
    importlib.import_module("torchvision")
except RuntimeError:
    for name in ("torchvision/resnet18", "timm/resnet18", {f"hf/{tmp_path}"!r}):
        try:
            build_encoder(name)
        except CosdaError as error:
            assert "compiled operators are missing" in str(error), error
        else:
            raise AssertionError(name)
else:
    print("whole")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if "whole" in done.stdout:
        pytest.skip("this torchvision fits this torch: nothing is missing")
