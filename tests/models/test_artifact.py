import hashlib
import json
import pickle
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from cosda.errors import CosdaError
from cosda.models.architecture import Architecture
from cosda.models.artifact import Model, load
from cosda.models.encoders.weights import read_metadata
from cosda.models.network import same_weights

FILES = {"model.json", "README.md", "encoder.safetensors", "head.safetensors"}


@pytest.fixture
def folder(model, tmp_path):
    return model.save(tmp_path / "models" / "one")


def edit(folder, **changes) -> None:
    description = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(description | changes))


def test_saved_and_loaded_bit_by_bit(model, folder) -> None:
    again = load(folder)
    assert same_weights(again.network, model.network)
    assert again.architecture == model.architecture
    assert again.classes == ("no", "yes")
    assert again.preprocessing == model.preprocessing
    assert again.lineage == model.lineage
    assert not again.network.training
    images = torch.randn(4, 3, 32, 32)
    assert torch.equal(again.network(images).logits, model.network.eval()(images).logits)


def test_weight_normed_classifier_is_stored_as_magnitude_and_direction(folder) -> None:
    keys = {key for key in load_file(folder / "head.safetensors") if key.startswith("classifier.")}
    assert keys == {
        "classifier.bias",
        "classifier.parametrizations.weight.original0",
        "classifier.parametrizations.weight.original1",
    }


def test_equal_models_give_equal_bytes_and_no_other_file(model, folder, tmp_path) -> None:
    other = load(folder).save(tmp_path / "models" / "two")
    assert {file.name for file in folder.iterdir()} == FILES
    assert {file.name for file in folder.parent.iterdir()} == {"one", "two"}
    for name in FILES:
        assert (folder / name).read_bytes() == (other / name).read_bytes()


def test_channels_last_weights_are_saved_alike(model, folder, tmp_path) -> None:
    model.network.to(memory_format=torch.channels_last)
    other = model.save(tmp_path / "other")
    assert (folder / "encoder.safetensors").read_bytes() == (other / "encoder.safetensors").read_bytes()


def test_a_file_that_has_not_changed_is_linked_to_if_asked_for(folder, tmp_path) -> None:
    loaded = load(folder)
    with torch.no_grad():
        loaded.network.classifier.bias.add_(1)
    linked, copied = loaded.save(tmp_path / "linked", link=True), loaded.save(tmp_path / "copied")
    assert (linked / "encoder.safetensors").samefile(folder / "encoder.safetensors")
    assert not (linked / "head.safetensors").samefile(folder / "head.safetensors")
    assert not (copied / "encoder.safetensors").samefile(folder / "encoder.safetensors")
    assert torch.equal(load(linked).network.classifier.bias, loaded.network.classifier.bias)


def test_without_the_old_folder_everything_is_written(folder, tmp_path) -> None:
    loaded = load(folder)
    shutil.rmtree(folder)
    assert load(loaded.save(tmp_path / "linked", link=True)).classes == loaded.classes


def test_loading_leaves_the_random_numbers_alone(folder) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    load(folder)
    assert torch.equal(torch.rand(2), expected)


def test_a_model_is_replaced_only_on_demand(model, folder) -> None:
    with pytest.raises(CosdaError, match="overwrite=True"):
        model.save(folder)
    with torch.no_grad():
        model.network.classifier.bias.fill_(2)
    model.save(folder, overwrite=True)
    assert load(folder).network.classifier.bias.tolist() == [2, 2]
    assert [entry.name for entry in folder.parent.iterdir()] == ["one"]


def test_a_link_to_a_model_stays_a_link(model, folder, tmp_path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder)
    model.save(link, overwrite=True)
    assert link.is_symlink()
    assert load(link).classes == model.classes


def test_what_is_not_a_model_is_never_replaced(model, folder, tmp_path) -> None:
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(CosdaError, match=r"other files.*notes\.txt"):
        model.save(folder, overwrite=True)
    assert (folder / "notes.txt").read_text() == "mine"
    file = tmp_path / "file"
    file.write_text("mine")
    for path in (tmp_path / "models", file):
        with pytest.raises(CosdaError, match="not a model"):
            model.save(path, overwrite=True)
    (tmp_path / "empty").mkdir()
    assert load(model.save(tmp_path / "empty")).classes == model.classes


def test_a_failed_save_leaves_nothing_behind(model, tmp_path, monkeypatch) -> None:
    model.save(tmp_path / "model")
    before = {file.name: file.read_bytes() for file in (tmp_path / "model").iterdir()}

    def full(_descriptor) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("cosda.models.artifact.os.fsync", full)
    with pytest.raises(CosdaError, match=r"cannot write .*model: disk full"):
        model.save(tmp_path / "model", overwrite=True)
    assert {file.name: file.read_bytes() for file in (tmp_path / "model").iterdir()} == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("name", ["encoder.safetensors", "head.safetensors"])
def test_damaged_weights(folder, name) -> None:
    weights = folder / name
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(CosdaError, match="damaged, cut short or exchanged"):
        load(folder)


def test_the_encoders_file_names_its_layout_and_a_changed_description_is_seen(tmp_path) -> None:
    """The architecture in model.json is the one thing that tells the layouts apart, and no checksum covers it."""
    architecture = Architecture("resnet50-v1", bottleneck=4, classes=2)
    network = architecture.build()
    folder = Model(network, architecture, ("no", "yes"), network.encoder.preprocessing).save(tmp_path / "model")
    assert load(folder).architecture == architecture
    assert read_metadata(folder / "encoder.safetensors") == {"layout": "stride 2 on the 1x1 convolution"}
    edit(folder, architecture=architecture.as_json() | {"encoder": "resnet50"})
    with pytest.raises(CosdaError, match=r"stride 2 on the 1x1 convolution, but this encoder has stride 2 on the 3x3"):
        load(folder)


def test_exchanged_weights(folder) -> None:
    state = load_file(folder / "head.safetensors")
    save_file({key: torch.zeros_like(value) for key, value in state.items()}, folder / "head.safetensors")
    with pytest.raises(CosdaError, match="exchanged"):
        load(folder)


def test_a_pickle_in_place_of_the_weights_is_not_opened(folder, tmp_path) -> None:
    class Trap:
        def __reduce__(self):
            return exec, (f"open({str(tmp_path / 'ran')!r}, 'w')",)

    content = pickle.dumps(Trap())
    (folder / "head.safetensors").write_bytes(content)
    kept = json.loads((folder / "model.json").read_text())["sha256"]
    edit(folder, sha256={**kept, "head.safetensors": hashlib.sha256(content).hexdigest()})
    with pytest.raises(CosdaError, match="cannot be read"):
        load(folder)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "model format 2.*update cosda"),
        ({"architecture": {"encoder": "small", "bottleneck": 9, "classes": 2}}, "do not fit the network"),
        ({"architecture": {"encoder": "small"}}, "damaged"),
        ({"architecture": None}, "damaged"),
        ({"classes": ["only one"]}, "2 classes apart, but 1 class names"),
        ({"preprocessing": {"sise": 3}}, "Did you mean 'size'"),
    ],
)
def test_wrong_descriptions(folder, changes, message) -> None:
    edit(folder, **changes)
    with pytest.raises(CosdaError, match=message):
        load(folder)


def test_unreadable_descriptions(folder, tmp_path) -> None:
    for content in ("{", "[]", "{}"):
        (folder / "model.json").write_text(content)
        with pytest.raises(CosdaError, match=r"model\.json is damaged"):
            load(folder)
    with pytest.raises(CosdaError, match="does not exist"):
        load(tmp_path / "nothing")
    with pytest.raises(CosdaError, match="is not one"):
        load(tmp_path)


def test_lineage_must_be_json(model, tmp_path) -> None:
    model.lineage.append({"value": float("nan")})
    with pytest.raises(CosdaError, match="JSON"):
        model.save(tmp_path / "model")
    model.lineage[-1] = {"value": object()}
    with pytest.raises(CosdaError, match="JSON"):
        model.save(tmp_path / "model")
    assert not any(tmp_path.iterdir())


def test_feature_models(tmp_path) -> None:
    architecture = Architecture("identity", 4, 2, input_width=6)
    network = architecture.build()
    Model(network, architecture, ("a", "b"), network.encoder.preprocessing).save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert same_weights(again.network, network)
    assert not again.preprocessing.of_images
