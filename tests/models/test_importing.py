"""Models from elsewhere: who builds them, whose weights they get, what is known of their images and classes."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import cosda
from cosda.errors import CosdaError
from cosda.models.artifact import load
from cosda.models.contents import read_contents
from cosda.models.importing import import_model, read_classes
from cosda.models.network import same_weights
from tiny import CLASSES, SIDE, tiny_domain

CODE = """
from pathlib import Path
import torch
from torch import nn

Path("ran.txt").touch()

class Net(nn.Module):
    def __init__(self, outputs=3):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 6, 5, 2), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
        self.head = nn.Linear(24, outputs)

    def forward(self, images):
        return self.head(self.body(images).flatten(1))

make = Net
def four():
    return Net(4)
def text():
    return "no network"
def failing():
    raise ValueError("out of luck")
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's in the folder in which he works; a file tells whether it was imported."""
    monkeypatch.chdir(tmp_path)
    name = f"code_of_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(CODE)
    yield name
    sys.modules.pop(name, None)


def ran() -> bool:
    return Path("ran.txt").exists()


@pytest.fixture
def trained(code: str) -> nn.Module:
    """His network; making it is his own doing."""
    namespace: dict[str, type[nn.Module]] = {"__name__": "elsewhere"}
    exec(CODE, namespace)
    os.remove("ran.txt")
    torch.manual_seed(1)
    return namespace["Net"]().eval()


def images() -> torch.Tensor:
    return torch.randn(4, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(3))


@pytest.fixture
def weights(trained: nn.Module, tmp_path: Path) -> Path:
    torch.save(trained.state_dict(), tmp_path / "trained.pth")
    return tmp_path / "trained.pth"


# --- A function of the user's own -------------------------------------------------------------------------------------


def test_a_function_builds_it_and_its_name_is_remembered(code, trained, weights, tmp_path) -> None:
    path_before = list(sys.path)
    model = import_model(weights, build=f"{code}:make", classes=CLASSES, size=SIDE, mean=[0.5] * 3, flip=False)
    assert sys.path == path_before
    torch.testing.assert_close(model.network(images()).logits, trained(images()))
    assert (model.preprocessing.size, model.preprocessing.mean, model.preprocessing.flip) == (SIDE, (0.5,) * 3, False)
    assert model.preprocessing.std == (0.229, 0.224, 0.225)  # ImageNet's, for what nobody said
    [step] = model.lineage
    assert (step["step"], step["network"], step["weights"]) == ("import", f"{code}:make", "trained.pth")
    described = json.loads((model.save(tmp_path / "model") / "model.json").read_text())
    assert described["architecture"]["build"] == f"{code}:make"
    card = (tmp_path / "model" / "README.md").read_text()
    assert f"encoder built by `{code}:make`" in card
    assert f'cosda.load("this-folder", build="{code}:make")' in card
    again = load(tmp_path / "model", build=f"{code}:make")
    assert same_weights(again.network, model.network)
    assert again.architecture == model.architecture


def test_the_users_code_is_never_run_unasked(code, weights, tmp_path) -> None:
    folder = import_model(weights, build=f"{code}:make", classes=CLASSES, size=SIDE).save(tmp_path / "model")
    os.remove("ran.txt")
    del sys.modules[code]
    with pytest.raises(CosdaError, match=rf"never run unasked.*--build {code}:make"):
        load(folder)
    with pytest.raises(CosdaError, match=rf"--build {code}:make"):
        cosda.predict(folder, [np.zeros((SIDE, SIDE, 3), np.uint8)])
    read_contents(folder)
    assert not ran()
    load(folder, build=f"{code}:make")
    assert ran()


def test_an_adapted_model_remembers_its_builder_too(code, weights, tmp_path) -> None:
    model = import_model(weights, build=f"{code}:make", classes=CLASSES, size=SIDE)
    result = cosda.adapt(model, tiny_domain("site", 60), "aad", carry="bank=8", epochs=1, batch_size=8)
    result.model.save(tmp_path / "bank")
    with pytest.raises(CosdaError, match=rf"--build {code}:make"):
        load(tmp_path / "bank")
    assert load(tmp_path / "bank", build=f"{code}:make").domains == ("source", "site")


def test_a_wrapped_model_remembers_the_name_with_which_it_was_opened(code, trained, tmp_path) -> None:
    seen = cosda.Preprocessing(size=SIDE)
    folder = cosda.wrap(trained, CLASSES, preprocessing=seen).save(tmp_path / "model")
    assert load(folder, build=lambda: trained).architecture.builder is None
    assert load(folder, build=f"{code}:make").architecture.builder == f"{code}:make"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        ("{}:nothing", "has no function 'nothing'"),
        ("no_such_module:make", "'no_such_module' cannot be imported: ModuleNotFoundError"),
        ("{}", "write MODULE:FUNCTION"),
        ("{}:text", "must return a torch.nn.Module.*returned a str"),
        ("{}:failing", "the function failed: ValueError: out of luck"),
        ("{}:four", r"of another shape: head.weight is \(3, 24\), needs \(4, 24\)"),
    ],
)
def test_wrong_builders_are_explained(code, weights, build, message) -> None:
    with pytest.raises(CosdaError, match=message):
        import_model(weights, build=build.format(code), classes=CLASSES, size=SIDE)


# --- Files of weights -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "nest",
    [
        lambda state: state,
        lambda state: {"epoch": 3, "state_dict": state, "optimizer": {"state": {}, "param_groups": [1]}},
        lambda state: {"model": state, "other": {key: value + 1 for key, value in state.items()}},
        lambda state: {"net": state, "best": 0.5},
        lambda state: {f"module.{key}": value for key, value in state.items()},
        lambda state: {"state_dict": {f"model.{key}": value for key, value in state.items()}},
        lambda state: {f"_orig_mod.module.{key}": value for key, value in state.items()},
    ],
)
def test_usual_nestings_are_taken_off(code, trained, tmp_path, nest) -> None:
    torch.save(nest(dict(trained.state_dict())), tmp_path / "nested.pt")
    model = import_model(tmp_path / "nested.pt", build=f"{code}:make", classes=CLASSES, size=SIDE)
    torch.testing.assert_close(model.network(images()).logits, trained(images()))


def test_safetensors(code, trained, tmp_path) -> None:
    save_file(trained.state_dict(), tmp_path / "trained.safetensors")
    model = import_model(tmp_path / "trained.safetensors", build=f"{code}:make", classes=CLASSES, size=SIDE)
    torch.testing.assert_close(model.network(images()).logits, trained(images()))


def test_two_state_dicts_are_one_too_many(code, trained, tmp_path) -> None:
    torch.save({"net": dict(trained.state_dict()), "ema": dict(trained.state_dict())}, tmp_path / "two.pt")
    with pytest.raises(CosdaError, match=r"several state dicts \(net, ema\)"):
        import_model(tmp_path / "two.pt", build=f"{code}:make", classes=CLASSES, size=SIDE)


def test_misfits_name_some_keys(code, trained, tmp_path) -> None:
    state = dict(trained.state_dict())
    state["more"] = state.pop("head.bias")
    torch.save(state, tmp_path / "other.pth")
    with pytest.raises(CosdaError, match=r"missing: head.bias; not known: more"):
        import_model(tmp_path / "other.pth", build=f"{code}:make", classes=CLASSES, size=SIDE)


class Trap:
    """What it is pickled as makes a folder when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("trapped",)


@pytest.mark.parametrize("content", [Trap(), {"state_dict": {"head.weight": Trap()}}], ids=["whole", "inside"])
@pytest.mark.parametrize("name", ["whole.pth", "whole.pt", "whole.pt2", "whole.onnx", "whole.safetensors"])
def test_a_pickle_is_refused_and_never_run(code, tmp_path, content, name) -> None:
    torch.save(content, tmp_path / name)
    if name in ("whole.pt2", "whole.onnx"):
        pytest.importorskip("onnx")
        with pytest.raises(CosdaError, match=r"is no|refused"):
            import_model(tmp_path / name, classes=CLASSES)
    else:
        with pytest.raises(CosdaError, match=r"a pickle that wants to run posix.mkdir|cannot be read as weights"):
            import_model(tmp_path / name, build=f"{code}:make", classes=CLASSES)
    assert not (tmp_path / "trapped").exists()
    assert not ran(), "nothing is run for a file that cannot be read"


def test_a_whole_model_is_a_pickle(code, trained, tmp_path) -> None:
    torch.save(nn.Sequential(nn.Linear(2, 2)), tmp_path / "whole.pt")
    with pytest.raises(CosdaError, match=r"as torch.save makes of a whole model.*model.state_dict\(\)"):
        import_model(tmp_path / "whole.pt", build=f"{code}:make", classes=CLASSES)


# --- Classes and requests ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("classes.txt", "a\n\n  b \nc"),
        ("classes.json", '["a", "b", "c"]'),
        ("classes.json", '{"0": "a", "2": "c", "1": "b"}'),
        ("classes.json", '{"c": 2, "a": 0, "b": 1}'),
    ],
)
def test_classes_of_a_file(tmp_path, name, text) -> None:
    (tmp_path / name).write_text("\ufeff" + text, encoding="utf-8")
    assert read_classes(tmp_path / name) == CLASSES


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"0": "a", "2": "c"}', "2 classes, but none with the number 1"),
        ("[1, 2]", "must hold a list of names"),
        ("{", "cannot be read"),
        ('"a"', "must hold a list of names"),
    ],
)
def test_wrong_files_of_classes(tmp_path, text, message) -> None:
    (tmp_path / "classes.json").write_text(text)
    with pytest.raises(CosdaError, match=message):
        read_classes(tmp_path / "classes.json")


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (None, "the classes have no names: --classes"),
        (("a", "b"), "tells 3 classes apart, but 2 class names were given"),
        (("a", "b", "a"), "two classes have the same name: 'a'"),
        (("a",), "at least two classes"),
        ("none.txt", "none.txt does not exist"),
    ],
)
def test_wrong_classes(code, weights, classes, message) -> None:
    with pytest.raises(CosdaError, match=message):
        import_model(weights, build=f"{code}:make", classes=classes, size=SIDE)


def test_requests_that_do_not_go_together(code, weights) -> None:
    with pytest.raises(CosdaError, match="Say which function of yours makes it: --build"):
        import_model(weights, classes=CLASSES)
    with pytest.raises(CosdaError, match="--weights goes with the name of a library's network"):
        import_model("trained", weights, classes=CLASSES)
    with pytest.raises(CosdaError, match="built by its library"):
        import_model("timm/resnet18", weights, build=f"{code}:make", classes=CLASSES)
    with pytest.raises(CosdaError, match="needs trained weights: --weights FILE"):
        import_model("timm/resnet18", classes=CLASSES)
    with pytest.raises(CosdaError, match=r"the weights file .*none.pth does not exist"):
        import_model("none.pth", build=f"{code}:make", classes=CLASSES)
    with pytest.raises(CosdaError, match="preprocessing profile 'centre' is unknown"):
        import_model(weights, build=f"{code}:make", classes=CLASSES, profile="centre")  # type: ignore[arg-type]
    assert not ran()


# --- Libraries --------------------------------------------------------------------------------------------------------


def test_a_classifier_of_timm_opens_without_help(timm, tmp_path) -> None:
    theirs = timm.create_model("test_resnet", num_classes=3).eval()
    torch.save(theirs.state_dict(), tmp_path / "trained.pth")
    model = import_model("timm/test_resnet", tmp_path / "trained.pth", classes=CLASSES)
    config = timm.data.resolve_model_data_config(theirs)
    assert (model.preprocessing.size, model.preprocessing.mean) == (config["input_size"][-1], config["mean"])
    again = load(model.save(tmp_path / "model"))
    batch = torch.randn(2, 3, model.preprocessing.size, model.preprocessing.size)
    torch.testing.assert_close(again.network(batch).logits, theirs(batch))
    assert again.architecture.builder == "timm/test_resnet"
    assert 'cosda.load("this-folder")' in (tmp_path / "model" / "README.md").read_text()
    with pytest.raises(CosdaError, match=r"of another shape: fc.weight is \(3, "):
        import_model("timm/test_resnet", tmp_path / "trained.pth", classes=["a", "b"])
    with pytest.raises(CosdaError, match=r"fc.weight is \(3, .*Classes of its own are named by --classes FILE\."):
        import_model("timm/test_resnet", tmp_path / "trained.pth")


def test_what_timm_knows_of_imagenet(timm, tmp_path) -> None:
    theirs = timm.create_model("resnet18")
    torch.save(theirs.state_dict(), tmp_path / "imagenet.pth")
    model = import_model("timm/resnet18", tmp_path / "imagenet.pth")
    assert len(set(model.classes)) == 1000
    assert model.classes[0].startswith("tench")


def test_a_classifier_of_torchvision_opens_without_help(torchvision, tmp_path) -> None:
    theirs = torchvision.models.get_model("mobilenet_v3_small", num_classes=3).eval()
    torch.save({"model": theirs.state_dict()}, tmp_path / "trained.pth")
    model = import_model("torchvision/mobilenet_v3_small", tmp_path / "trained.pth", classes=CLASSES, size=64)
    assert model.preprocessing == replace(cosda.Preprocessing(), size=64, profile="shot")  # 224 of 256 pixels
    again = load(model.save(tmp_path / "model"))
    batch = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(again.network(batch).logits, theirs(batch), rtol=1e-4, atol=1e-5)
    assert again.module().state_dict().keys() == theirs.state_dict().keys()


def test_what_torchvision_fetches_is_read_as_plain_tensors(torchvision, monkeypatch) -> None:
    theirs = torchvision.models.get_model("resnet18").eval()
    asked = {}

    def fetched(self, **options):
        asked.update(options)
        return theirs.state_dict()

    monkeypatch.setattr(torchvision.models.ResNet18_Weights, "get_state_dict", fetched)
    model = import_model("torchvision/resnet18", "pretrained")
    assert asked["weights_only"] is True
    assert (model.classes[134], model.classes[517]) == ("crane bird", "crane")
    assert model.lineage[0]["weights"] == "pretrained"


@pytest.fixture
def hub(transformers, tmp_path: Path) -> Path:
    """A folder of transformers with a classifier of three classes and its image processor."""
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32, patch_size=8
    )
    config.id2label = {0: "a", 1: "b", 2: "c"}
    torch.manual_seed(0)
    transformers.ViTForImageClassification(config).eval().save_pretrained(tmp_path / "hub")
    (tmp_path / "hub" / "preprocessor_config.json").write_text(
        '{"size": {"height": 32, "width": 32}, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.4, 0.4, 0.4]}'
    )
    return tmp_path / "hub"


def test_a_classifier_of_transformers_opens_without_its_folder(transformers, hub, tmp_path) -> None:
    theirs = transformers.ViTForImageClassification.from_pretrained(hub).eval()
    model = import_model(f"hf/{hub}", "pretrained")
    assert model.classes == CLASSES
    assert (model.preprocessing.size, model.preprocessing.std, model.preprocessing.profile) == (32, (0.4,) * 3, "cosda")
    model.save(tmp_path / "model")
    hub.rename(tmp_path / "gone")
    again = load(tmp_path / "model")
    batch = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(again.network(batch).logits, theirs(batch).logits)
    assert json.loads((tmp_path / "model" / "model.json").read_text())["architecture"]["config"]["model_type"] == "vit"


def test_weights_of_a_file_for_a_classifier_of_transformers(transformers, hub, tmp_path) -> None:
    config = transformers.AutoConfig.from_pretrained(hub, num_labels=2)
    torch.manual_seed(5)
    theirs = transformers.ViTForImageClassification(config).eval()
    torch.save(theirs.state_dict(), tmp_path / "two.pth")
    model = import_model(f"hf/{hub}", tmp_path / "two.pth", classes=["no", "yes"])
    batch = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(model.network(batch).logits, theirs(batch).logits)
    with pytest.raises(CosdaError, match=r"of another shape: classifier.bias is \(2,\), needs \(3,\)"):
        import_model(f"hf/{hub}", tmp_path / "two.pth", classes=CLASSES)
    state = {key: value for key, value in theirs.state_dict().items() if not key.startswith("classifier")}
    torch.save(state, tmp_path / "headless.pth")
    with pytest.raises(CosdaError, match=r"missing: classifier.bias, classifier.weight"):
        import_model(f"hf/{hub}", tmp_path / "headless.pth", classes=["no", "yes"])


def test_names_that_nobody_gave_are_no_names(transformers, tmp_path) -> None:
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1], num_labels=3)
    transformers.ResNetForImageClassification(config).save_pretrained(tmp_path / "hub")
    with pytest.raises(CosdaError, match="does not know the names of its classes: --classes"):
        import_model(f"hf/{tmp_path / 'hub'}", "pretrained")
    assert import_model(f"hf/{tmp_path / 'hub'}", "pretrained", classes=CLASSES).classes == CLASSES
