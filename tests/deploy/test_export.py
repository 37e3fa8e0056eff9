"""An exported file says what the model says, in batches of any size and mixture; one that does not is not written."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import cosda
from cosda.data.views import make_view
from cosda.deploy import FORMATS, trial
from cosda.deploy import export as writing
from cosda.deploy import onnx as onnx_format
from cosda.deploy.graph import make_graph
from cosda.deploy.trial import as_input
from cosda.errors import CosdaError
from cosda.models.architecture import Architecture
from cosda.models.artifact import Model
from cosda.models.experts import DomainBank, Expert
from cosda.models.masks import add_masks
from cosda.models.network import Network
from cosda.models.router import Gauge, new_profile
from cosda.preprocessing import FEATURE_VECTORS
from tiny import CLASSES, SEEN, SIDE, WIDTH, tiny_network

ROOT = Path(__file__).parents[2]
NAMES = ("one", "two", "three")
SIZES = (1, 3, 17)


def items_of(place: int, count: int = 30, seed: int = 0, vectors: bool = False) -> Tensor:
    """Images of a domain, which its brightness and contrast tell from others; or vectors."""
    rng = np.random.default_rng((seed, place))
    if vectors:
        return torch.from_numpy(rng.normal(1.5 * place - 2, 0.4 + 0.1 * place, (count, WIDTH)).astype(np.float32))
    pixels = rng.normal(60 + 60 * place, 15 + 8 * place, (count, SIDE, SIDE, 3)).clip(0, 255)
    return torch.from_numpy(pixels.astype(np.uint8))


def view(items: Tensor) -> Tensor:
    return make_view("test", items, SEEN, torch.Generator())


def mixed_items(vectors: bool = False) -> Tensor:
    """Images of three domains in turn, some between two of them, and some that resemble none."""
    domains = torch.stack([items_of(place, 5, seed=1, vectors=vectors) for place in range(3)], dim=1).flatten(0, 1)
    if vectors:
        return torch.cat([domains, domains[:1] - 20, (domains[:3] + domains[1:4]) / 2])
    noise = torch.randint(0, 256, (2, SIDE, SIDE, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    between = ((domains[:4].float() + domains[1:5].float()) / 2).to(torch.uint8)
    return torch.cat([domains, noise, between])


def adapted(base: Network, place: int, late: bool) -> Network:
    network, rng = copy.deepcopy(base), torch.Generator().manual_seed(place)
    with torch.no_grad():
        for name, value in network.state_dict().items():
            if value.is_floating_point() and not (late and name.startswith("encoder.")):
                value.add_(0.3 * value.abs().mean() * torch.randn(value.shape, generator=rng))
    return network


def make_bank(base: Network, late: bool = False, vectors: bool = False, count: int = 3) -> DomainBank:
    def seen(place: int) -> Tensor:
        items = items_of(place, vectors=vectors)
        return items if vectors else view(items)

    gauge = Gauge(base.eval().encoder, late)
    base.profile = new_profile(NAMES[0], gauge(seen(0)), (), gauge.late)
    bank = DomainBank(base, (), late)
    for place in range(1, count):
        profile = new_profile(NAMES[place], bank.gauge(seen(place)), bank.profiles, gauge.late)
        bank = bank.with_expert(Expert.make(adapted(base, place, late), base, 4, profile))
    return bank


def model_of(network: Network, vectors: bool = False) -> Model:
    architecture = Architecture("small", 6, len(CLASSES), WIDTH if vectors else None, domains=network.domains)
    return Model(network.eval(), architecture, CLASSES, FEATURE_VECTORS if vectors else SEEN)


def masked() -> Network:
    torch.manual_seed(1)
    return add_masks(tiny_network(), 6, NAMES)


def own_model() -> Model:
    """A model of the user's own that ends with a softmax."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    return cosda.wrap(nn.Sequential(body, nn.Softmax(dim=1)), CLASSES, preprocessing=SEEN)


MODELS: dict[str, Callable[[], Model]] = {
    "network": lambda: model_of(tiny_network()),
    "vectors": lambda: model_of(tiny_network("features"), vectors=True),
    "wrapped": own_model,
    "bank": lambda: model_of(make_bank(tiny_network())),
    "bank without BatchNorm": lambda: model_of(make_bank(tiny_network("plain"))),
    "late bank": lambda: model_of(make_bank(tiny_network(), late=True)),
    "bank of vectors": lambda: model_of(make_bank(tiny_network("features"), vectors=True), vectors=True),
    "late bank of vectors": lambda: model_of(make_bank(tiny_network("features"), True, vectors=True), vectors=True),
    "bank with masks": lambda: model_of(make_bank(masked())),
}
# Other exporters than TorchScript's take seconds, and for ONNX a bank takes one export for each part.
SOME = {
    "onnx": ("wrapped", "bank without BatchNorm", "late bank of vectors"),
    "torch-export": ("wrapped", "bank", "late bank", "bank with masks"),
}
CASES = [(format, kind) for format in FORMATS for kind in SOME.get(format, MODELS)]


@pytest.mark.parametrize(("format", "kind"), CASES)
def test_an_exported_model_says_what_the_model_says(format: str, kind: str) -> None:
    if format == "onnx":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnxscript")
    model = MODELS[kind]()
    network, items = model.network, mixed_items("vectors" in kind)
    images = items if items.dim() == 2 else view(items)
    with torch.inference_mode():
        if isinstance(network, DomainBank):
            output, routing = network.explain(images)
            shares = routing.shares.max(dim=1).values
            assert {True, False} == set((shares == 1).tolist()), "some are answered by one expert, some by several"
            assert {True, False} == set(routing.unknown.tolist())
            assert bool((routing.shares > 0).any(dim=0).all()), "every expert has a part"
        else:
            output = network(images)
    graph = make_graph(model, network)
    content = FORMATS[format].write(graph, {"outputs": graph.outputs})
    assert str(ROOT).encode() not in content, "whose code it was is nobody's business"
    run = FORMATS[format].open(content)
    for size in SIZES:
        found = run(as_input(items, model.preprocessing)[:size])
        np.testing.assert_allclose(found["logits"], output.logits[:size], rtol=1e-4, atol=2e-5)
        np.testing.assert_allclose(found["probabilities"], output.logits[:size].softmax(dim=1), atol=1e-5)
        if isinstance(network, DomainBank):
            np.testing.assert_allclose(found["posteriors"], routing.posterior[:size], atol=1e-5)
            assert found["unknown"].tolist() == routing.unknown[:size].tolist()
    for row in (4, 15, len(items) - 1):  # alone, with experts that get nothing
        found = run(as_input(items, model.preprocessing)[row : row + 1])
        np.testing.assert_allclose(found["probabilities"][0], output.logits[row].softmax(dim=0), atol=1e-5)


@pytest.mark.parametrize("kind", ["bank", "late bank of vectors"])
def test_files_apart_say_together_what_the_model_says(kind: str, tmp_path: Path) -> None:
    model, vectors = MODELS[kind](), "vectors" in kind
    made = cosda.export(model, tmp_path / "apart", format="torchscript", experts="separate")
    names = {"manifest.json", "router.pt", "expert-0.pt", "expert-1.pt", "expert-2.pt"}
    assert {path.name for path in made.path.iterdir()} == names
    assert made.bytes == sum(path.stat().st_size for path in made.path.iterdir())
    manifest = json.loads((made.path / "manifest.json").read_text())
    assert manifest["input"]["name"] == ("vectors" if vectors else "images")
    assert [each["domain"] for each in manifest["experts"]] == list(NAMES)
    assert {each["input"] for each in manifest["experts"]} == {"features" if vectors else "images"}
    run = writing._open_apart(FORMATS["torchscript"], {name: (made.path / name).read_bytes() for name in names})
    items = mixed_items(vectors)
    wanted = model.network(items if vectors else view(items)).logits.softmax(dim=1).detach().numpy()
    for size in SIZES:
        np.testing.assert_allclose(run(as_input(items, SEEN)[:size])["probabilities"], wanted[:size], atol=1e-5)


def test_one_mask_and_one_expert_are_exported_by_name(tmp_path: Path) -> None:
    for model in (model_of(masked()), MODELS["bank"]()):
        made = cosda.export(model, tmp_path / "two.pt", domain="two", overwrite=True)
        assert made.untried == ()
        run, items = FORMATS["torchscript"].open(made.path.read_bytes()), mixed_items()
        wanted = model.network.for_domain("two")(view(items)).logits.detach()
        np.testing.assert_allclose(run(as_input(items, SEEN))["logits"], wanted, atol=1e-5)


def test_a_file_says_of_itself_what_is_needed_to_use_it(tmp_path: Path) -> None:
    shot = replace(SEEN, profile="shot", size=224)
    for model, rule in ((replace(MODELS["bank"](), classes=("ä", "b", "c")), SEEN), (own_model(), shot)):
        model.preprocessing = rule
        content = cosda.export(model, tmp_path / "model.pt", overwrite=True).path.read_bytes()
        (tmp_path / "copy.pt").write_bytes(content)
        said = {"cosda.json": ""}
        with pytest.warns(DeprecationWarning, match="torch.jit"):
            torch.jit.load(tmp_path / "copy.pt", _extra_files=said)
        facts = json.loads(said["cosda.json"])
        assert facts["classes"] == list(model.classes)
        assert facts["model"] == model.key
        assert facts["input"] == {"name": "images", "type": "uint8", "shape": ["batch", rule.size, rule.size, 3]}
        outputs = ["probabilities", "logits"]
        if isinstance(model.network, DomainBank):
            assert facts["domains"] == list(NAMES)
            outputs += ["posteriors", "unknown"]
        assert facts["outputs"] == outputs
        crop = {SEEN.size: [0, 0, 18, 18], 224: [16, 16, 240, 240]}[rule.size]
        assert facts["preprocessing"]["crop"] == crop
        assert facts["preprocessing"]["size"] == [rule.size, rule.size]
        assert facts["preprocessing"]["resize"] == [18, 18] if rule is SEEN else [256, 256]


# --- On trial ---------------------------------------------------------------------------------------------------------


def flawed(change: Callable[[dict[str, Any]], None]) -> Any:
    """The format, with a runtime that makes something else of each answer."""
    true = FORMATS["torchscript"]

    def open_(content: bytes) -> Any:
        run = true.open(content)

        def wrong(images: Any) -> Any:
            found = run(images)
            change(found)
            return found

        return wrong

    return replace(true, open=open_)


def move(found: dict[str, Any], by: float) -> None:
    found["probabilities"] = found["probabilities"] + by


def move_first(found: dict[str, Any], by: float) -> None:
    found["probabilities"] = found["probabilities"].copy()
    found["probabilities"][0, 0] += by


def reverse(found: dict[str, Any]) -> None:
    found["probabilities"] = np.full_like(found["probabilities"], 1 / 3) - 1e-7 * found["probabilities"]


def fail(found: dict[str, Any]) -> None:
    raise RuntimeError("no kernel\nfor that")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda found: move_first(found, 2e-4), "up to 0.0002"),
        (lambda found: move_first(found, float("nan")), "up to inf"),
        (lambda found: found.update(probabilities=found["probabilities"][:, ::-1]), "classes differ"),
        (fail, "does not run on a batch of 1: no kernel"),
    ],
)
def test_a_file_that_says_something_else_is_not_written(
    change: Callable[[dict[str, Any]], None], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FORMATS, "torchscript", flawed(change))
    before = tmp_path / "model.pt"
    before.write_bytes(b"before")
    for path in (before, tmp_path / "new.pt"):
        with pytest.raises(CosdaError, match=message):
            cosda.export(MODELS["network"](), path, overwrite=True)
    assert before.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [before]


def test_a_class_that_differs_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where all probabilities are nearly alike, so that none is far off."""
    model = MODELS["network"]()
    with torch.no_grad():
        for value in model.network.classifier.parameters():
            value.mul_(1e-6)
    assert cosda.export(model, tmp_path / "model.pt").difference < 1e-4
    monkeypatch.setitem(FORMATS, "torchscript", flawed(reverse))
    with pytest.raises(CosdaError, match=r"classes differ, and probabilities by up to .*e-0"):
        cosda.export(model, tmp_path / "other.pt")
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt"]


def test_what_rounding_does_is_borne(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, "torchscript", flawed(lambda found: move(found, 5e-5)))
    assert cosda.export(MODELS["network"](), tmp_path / "model.pt").difference == pytest.approx(5e-5, rel=0.05)


def test_a_network_that_no_exporter_can_follow_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(graph: Any, said: Any) -> bytes:
        raise RuntimeError("cannot trace this\nat all")

    monkeypatch.setitem(FORMATS, "torchscript", replace(FORMATS["torchscript"], write=write))
    with pytest.raises(CosdaError, match=r"as torchscript: cannot trace this\. Try another --format \(onnx"):
        cosda.export(MODELS["network"](), tmp_path / "model.pt")


def test_images_for_the_trial_are_those_that_are_named(tmp_path: Path) -> None:
    for number, image in enumerate(items_of(0, 7)):
        Image.fromarray(image.numpy()).save(tmp_path / f"{number}.png")
    (tmp_path / "6.png").write_bytes(b"no image")
    made = cosda.export(MODELS["bank"](), tmp_path / "model.pt", verify=tmp_path)
    assert made.images == 6
    assert made.untried == ("two", "three"), "all look like those of one"
    with pytest.raises(CosdaError, match="the model takes feature vectors, but --verify names images"):
        cosda.export(MODELS["vectors"](), tmp_path / "other.pt", verify=tmp_path)


def test_without_images_the_model_sees_real_ones_and_noise() -> None:
    images = trial._own_images()
    assert images.shape == (40, 32, 32, 3)
    assert images.dtype == np.uint8
    assert len({image.tobytes() for image in images}) == 40


# --- What cannot be ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "path", "how", "message"),
    [
        ("network", "model.onx", {}, r"names no format. Known: .onnx \(onnx\), .pt2 \(torch-export\)"),
        ("network", "model.pt", {"format": "onx"}, "no format of deployed models 'onx'. Did you mean 'onnx'"),
        ("network", "model.pt", {"format": "onnx"}, "has the ending of the format torchscript, but --format says onnx"),
        ("network", "folder", {"experts": "separate"}, "here nothing is routed"),
        ("bank", "folder", {"experts": "separate", "domain": "two"}, "here nothing is routed"),
        ("bank", "model.onnx", {"experts": "separate"}, "writes a folder"),
        ("bank", "model.pt", {"experts": "apart"}, "together or separate, not 'apart'"),
        ("bank", "model.pt", {"domain": "four"}, "no expert for a domain 'four'"),
        ("bank with masks", "model.pt", {"domain": "four"}, "no expert for a domain 'four'"),
        ("network", "", {"format": "torchscript"}, "is a folder, but one file"),
        ("network", "there.pt", {}, "exists already"),
        ("bank", "", {"experts": "separate"}, "holds other things"),
    ],
)
def test_an_impossible_request_is_an_error(
    kind: str, path: str, how: dict[str, Any], message: str, tmp_path: Path
) -> None:
    (tmp_path / "there.pt").write_bytes(b"before")
    with pytest.raises(CosdaError, match=message):
        cosda.export(MODELS[kind](), tmp_path / path if path else tmp_path, **how)
    assert [entry.name for entry in tmp_path.iterdir()] == ["there.pt"]


def test_a_model_with_masks_must_be_told(tmp_path: Path) -> None:
    with pytest.raises(CosdaError, match="--domain NAME"):
        cosda.export(model_of(masked()), tmp_path / "model.pt")


def test_a_model_that_is_a_file_already_is_not_made_into_another(tmp_path: Path) -> None:
    model = MODELS["network"]()
    model.architecture = replace(model.architecture, encoder="onnx")
    with pytest.raises(CosdaError, match=r"Deploy its file, graph\.onnx"):
        cosda.export(model, tmp_path / "model.pt")


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_format, "find_spec", lambda name: None if name == "onnxscript" else name)
    with pytest.raises(CosdaError, match=r"needs onnxscript: pip install 'cosda\[onnx\]'"):
        cosda.export(MODELS["network"](), tmp_path / "model.onnx")


def test_a_folder_is_replaced_whole_and_only_on_request(tmp_path: Path) -> None:
    bank = MODELS["bank of vectors"]()
    three = cosda.export(bank, tmp_path / "apart", format="torchscript", experts="separate").path
    with pytest.raises(CosdaError, match="say --overwrite"):
        cosda.export(bank, three, format="torchscript", experts="separate")
    fewer = bank.without("three")
    cosda.export(fewer, three, format="torchscript", experts="separate", overwrite=True)
    assert {path.name for path in three.iterdir()} == {"manifest.json", "router.pt", "expert-0.pt", "expert-1.pt"}
    (three / "notes.txt").write_text("mine")
    with pytest.raises(CosdaError, match="holds other things"):
        cosda.export(fewer, three, format="torchscript", experts="separate", overwrite=True)
    assert (three / "notes.txt").read_text() == "mine"
