"""Graphs in files, ONNX and torch.export's: they answer as the network did, and nothing in them is ever run as code."""

from __future__ import annotations

import functools
import io
import json
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import cosda
from cosda.errors import CosdaError
from cosda.models.artifact import Model, load
from cosda.models.contents import read_contents
from cosda.models.graphs import FORMATS, pt2
from cosda.models.importing import import_model
from cosda.models.network import Network
from tiny import CLASSES, SIDE, tiny_domain

KINDS = list(FORMATS)


def images(count: int = 5) -> Tensor:
    return torch.randn(count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(3))


ENDS: dict[str, Callable[[], list[nn.Module]]] = {
    "linear": lambda: [nn.Linear(24, 3)],
    "softmax": lambda: [nn.Linear(24, 3), nn.Softmax(dim=1)],
    "logsoftmax": lambda: [nn.Linear(24, 3, bias=False), nn.LogSoftmax(dim=1)],
    "tanh": lambda: [nn.Linear(24, 3), nn.Tanh()],
    "probabilities": lambda: [nn.Linear(24, 3), nn.Sigmoid(), nn.Softmax(dim=1)],
    "unflattened": lambda: [nn.Linear(24, 3), nn.Unflatten(1, (3, 1))],
    "large": lambda: [nn.Linear(24, 600), nn.Linear(600, 3)],
}


def net(end: str = "linear") -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 6, 5, 2), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Dropout(), *ENDS[end]()).eval()


@functools.cache
def exported(kind: str, end: str, batch: int | None, beside: bool) -> dict[str, bytes]:
    """The files of a graph; to write them takes seconds."""
    shapes = ({0: torch.export.Dim("batch")},) if batch is None else None
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # of torch's exporters, about themselves
        program = torch.export.export(net(end), (images(batch or 2),), dynamic_shapes=shapes)
        path = Path(folder, f"net.{kind}")
        if kind == "pt2":
            torch.export.save(program, path)
        else:
            pytest.importorskip("onnxruntime")
            pytest.importorskip("onnxscript")
            torch.onnx.export(program, f=str(path), dynamo=True, verbose=False, external_data=beside)
        return {file.name: file.read_bytes() for file in Path(folder).iterdir()}


def export(folder: Path, kind: str, end: str = "linear", batch: int | None = None, beside: bool = False) -> Path:
    """Write the graph of a network, for one size of batches or for any; its weights may lie in a file beside it."""
    folder.mkdir(exist_ok=True)
    for name, content in exported(kind, end, batch, beside).items():
        (folder / name).write_bytes(content)
    return folder / f"net.{kind}"


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "onnx":
        pytest.importorskip("onnxruntime")
    return str(request.param)


def imported(path: Path, **options: Any) -> Model:
    return import_model(path, classes=CLASSES, **options)


@pytest.mark.parametrize("batch", [None, 1, 4])
def test_a_graph_answers_as_its_network_and_is_cut_before_its_last_layer(kind, batch, tmp_path) -> None:
    theirs = net()
    model = imported(export(tmp_path, kind, batch=batch), mean=[0.5] * 3)
    assert (model.preprocessing.size, model.preprocessing.mean) == (SIDE, (0.5,) * 3)  # the graph knows its size
    assert model.architecture.batch == batch
    again = load(model.save(tmp_path / "model"))
    for network in (model.network, again.network):
        output = network(images())
        torch.testing.assert_close(output.logits, theirs(images()), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(output.features, theirs[:-1](images()), rtol=1e-4, atol=1e-5)
        assert network(images(0)).logits.shape == (0, 3) or batch is None
    assert (tmp_path / "model" / f"graph.{kind}").read_bytes() == (tmp_path / f"net.{kind}").read_bytes()
    assert again.key == model.key


@pytest.mark.parametrize(
    ("end", "width"),
    [("softmax", 24), ("logsoftmax", 24), ("tanh", 3), ("probabilities", 3)],  # behind tanh nothing is known
)
def test_what_follows_the_last_layer(kind, end, width, tmp_path) -> None:
    theirs = net(end)
    model = imported(export(tmp_path, kind, end))
    output = load(model.save(tmp_path / "model")).network(images())
    assert output.features.shape == (5, width)
    given = theirs(images())
    wanted = given if isinstance(theirs[-1], nn.Softmax) else given.softmax(dim=1)
    torch.testing.assert_close(output.logits.softmax(dim=1), wanted, rtol=1e-4, atol=1e-5)


def test_what_a_graph_is_good_for(kind, tmp_path) -> None:
    folder = imported(export(tmp_path, kind)).save(tmp_path / "model")
    domain = tiny_domain("office", 30)
    probabilities = np.stack([one.probabilities for one in cosda.predict(folder, domain)])
    assert probabilities.shape == (30, 3)
    assert cosda.evaluate(folder, domain).images == [3, 3, 4]
    cosda.profile(folder, domain).save(folder, overwrite=True)
    held = read_contents(folder).domains[0]
    assert (held.domain, held.images, held.late, held.method) == ("office", 20, True, "import")
    assert held.bytes > (tmp_path / f"net.{kind}").stat().st_size
    predictor = cosda.Predictor(folder)
    np.testing.assert_allclose(predictor.probabilities(domain), probabilities, rtol=1e-5)


def test_a_graph_cannot_be_trained(kind, tmp_path) -> None:
    model = imported(export(tmp_path, kind))
    for options in ({}, {"carry": "bank"}, {"freeze_encoder": True}):
        with pytest.raises(CosdaError, match=rf"graph \(graph.{kind}\), which cannot be trained.*cosda import WEIGHTS"):
            cosda.adapt(model, tiny_domain("site", 30), "aad", **options)
    with pytest.raises(CosdaError, match=f"Deploy its file, graph.{kind}"):
        model.module()
    with pytest.raises(CosdaError, match=f"needs no export. Deploy its file, graph.{kind}"):
        cosda.export(model, tmp_path / "out.onnx")


def test_two_graphs_are_two_networks(tmp_path) -> None:
    """Stored features must not be taken for those of another graph whose last layer is the same."""
    one = imported(export(tmp_path / "one", "pt2", "tanh"))
    other = imported(export(tmp_path / "other", "pt2", "probabilities"))
    key = cosda.models.artifact.weights_key
    assert key(one.network.encoder) != key(other.network.encoder)


def test_an_exchanged_graph_is_seen(kind, tmp_path) -> None:
    folder = imported(export(tmp_path, kind)).save(tmp_path / "model")
    file = folder / f"graph.{kind}"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(CosdaError, match=r"is not the file that its model.json was written with"):
        load(folder)


@pytest.mark.parametrize(
    ("end", "options", "message"),
    [
        ("linear", {"classes": ["a", "b"]}, "tells 3 classes apart, but 2 class names"),
        ("linear", {"size": 32}, "takes images of 16 pixels alone"),
        ("linear", {"build": "a:b"}, "is a whole graph. Leave --build"),
        ("unflattened", {}, r"it gives \(2, 3, 1\) for 2 images"),
    ],
)
def test_wrong_graphs_are_explained(kind, end, options, message, tmp_path) -> None:
    path = export(tmp_path, kind, end)
    with pytest.raises(CosdaError, match=message):
        import_model(path, **{"classes": CLASSES, **options})


def test_files_that_are_no_graphs(kind, tmp_path) -> None:
    (tmp_path / f"net.{kind}").write_bytes(b"not a graph")
    with pytest.raises(CosdaError, match=r"is no ONNX file|this is no file of torch.export"):
        imported(tmp_path / f"net.{kind}")
    with pytest.raises(CosdaError, match="does not exist"):
        imported(tmp_path / f"none.{kind}")


# --- ONNX -------------------------------------------------------------------------------------------------------------


def test_weights_in_a_file_beside_are_taken_along(tmp_path) -> None:
    theirs = net("large")  # small tensors stay within
    path = export(tmp_path, "onnx", "large", beside=True)
    assert (tmp_path / "net.onnx.data").is_file()
    folder = imported(path).save(tmp_path / "model")
    (tmp_path / "net.onnx.data").unlink()
    torch.testing.assert_close(load(folder).network(images()).logits, theirs(images()), rtol=1e-4, atol=1e-5)
    with pytest.raises(CosdaError, match="weights in other files, which cannot be read"):
        imported(path)


def test_a_last_layer_of_matmul_and_add(tmp_path) -> None:
    """As TensorFlow's exporters write it; the graph takes any batch by its own words, but its reshape only one."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=(3 * 64, 3)).astype(np.float32) / 9, rng.normal(size=3).astype(np.float32)
    make = onnx.helper
    nodes = [
        make.make_node("Reshape", ["in", "shape"], ["flat"]),
        make.make_node("MatMul", ["flat", "w"], ["product"]),
        make.make_node("Add", ["product", "b"], ["sum"]),
        make.make_node("Softmax", ["sum"], ["out"]),
    ]
    stored = {"shape": np.array([1, 192]), "w": weight, "b": bias}
    graph = make.make_graph(
        nodes,
        "g",
        [make.make_tensor_value_info("in", onnx.TensorProto.FLOAT, ["n", 3, 8, 8])],
        [make.make_tensor_value_info("out", onnx.TensorProto.FLOAT, ["n", 3])],
        [onnx.numpy_helper.from_array(value, name) for name, value in stored.items()],
    )
    content = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "net.onnx").write_bytes(content.SerializeToString())
    model = imported(tmp_path / "net.onnx")
    assert model.architecture.batch == 1
    assert model.architecture.bottleneck == 192
    batch = torch.randn(4, 3, 8, 8)
    torch.testing.assert_close(
        model.network(batch).logits, batch.flatten(1) @ torch.tensor(weight) + torch.tensor(bias), rtol=1e-4, atol=1e-5
    )


def test_onnx_without_onnxruntime_names_the_extra(tmp_path, monkeypatch) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(f"No module named '{name}'")

    (tmp_path / "net.onnx").write_bytes(b"")
    monkeypatch.setattr("cosda.models.encoders.external.importlib.import_module", absent)
    with pytest.raises(CosdaError, match=r"pip install 'cosda\[onnx\]'"):
        imported(tmp_path / "net.onnx")


# --- What could be code in a file of torch.export ---------------------------------------------------------------------


class Trap:
    """What it is pickled as makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.mkdir, (str(self.folder),)


def pickled(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def rewritten(path: Path, change: Callable[[dict[str, bytes]], object]) -> Path:
    """The same archive with other contents."""
    with zipfile.ZipFile(path) as archive:
        names = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
        root = archive.namelist()[0].partition("/")[0]
    change(names)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in names.items():
            archive.writestr(f"{root}/{name}", content)
    return path


def edited(files: dict[str, bytes], change: Callable[[Any], object], name: str = pt2.PROGRAM) -> None:
    described = json.loads(files[name])
    change(described)
    files[name] = json.dumps(described).encode()


def in_weights(trap: Trap) -> Callable[[dict[str, bytes]], object]:
    def change(files: dict[str, bytes]) -> None:
        files["data/weights/weight_0"] = pickled(trap)
        edited(files, lambda config: config["config"]["0.weight"].update(use_pickle=True), pt2.CONFIGS[0])

    return change


def in_node(key: str, text: str) -> Callable[[Trap], Callable[[dict[str, bytes]], object]]:
    """A text in the first node of the graph."""

    def change(described: Any) -> None:
        described["graph_module"]["graph"]["nodes"][0][key] = text

    return lambda trap: lambda files: edited(files, change)


def sizes(text: str) -> Callable[[Trap], Callable[[dict[str, bytes]], object]]:
    def replaced(value: Any) -> None:
        if isinstance(value, dict):
            if "expr_str" in value:
                value["expr_str"] = text
            for each in value.values():
                replaced(each)
        elif isinstance(value, list):
            for each in value:
                replaced(each)

    return lambda trap: lambda files: edited(files, replaced)


def tree(text: str) -> Callable[[Trap], Callable[[dict[str, bytes]], object]]:
    def change(described: Any) -> None:
        described["graph_module"]["module_call_graph"][0]["signature"]["out_spec"] = text

    return lambda trap: lambda files: edited(files, change)


CALL = "__import__('os').mkdir('trapped')"
DEFAULTS = {"default_factory_module": "os", "default_factory_name": "getcwd", "dict_context": []}
DEFAULTDICT = {"type": "collections.defaultdict", "context": json.dumps(DEFAULTS), "children_spec": []}


@pytest.mark.parametrize(
    "change",
    [
        in_weights,
        lambda trap: lambda files: files.update({pt2.INPUTS: pickled(trap)}),
        lambda trap: lambda files: files.update({"data/weights/model.pt": pickled(trap)}),
        lambda trap: lambda files: files.update({"data/constants/custom_obj_0": pickled(trap)}),
        lambda trap: lambda files: files.update({"data/constants/opaque_obj_0": pickled(trap)}),
        lambda trap: lambda files: files.update({"data/aotinductor/model/x.so": b"\x7fELF"}),
        lambda trap: lambda files: files.update({"models/other.json": files[pt2.PROGRAM]}),
        in_node("target", "torch.hub.load"),
        in_node("target", "math.sqrt"),
        in_node("target", "_operator.attrgetter"),
        in_node("target", "torch.ops.aten.from_file.default"),
        in_node("name", "x):\n    import os; os.mkdir('trapped')\n    def f("),
        sizes(CALL),
        tree(json.dumps([1, DEFAULTDICT])),
        tree(json.dumps([1, {"type": "builtins.dict", "context": '[{"__enum__": 1}]', "children_spec": []}])),
    ],
)
def test_a_file_of_torch_export_that_could_be_code_is_refused(change, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = rewritten(export(tmp_path, "pt2"), change(Trap(tmp_path / "trapped")))
    with pytest.raises(CosdaError, match=r"is refused: it holds .*that can be code"):
        imported(path)
    assert not (tmp_path / "trapped").exists()


def test_a_rewritten_file_that_says_the_same_is_taken(tmp_path) -> None:
    """So that what is refused above is refused for what was put into it."""
    assert isinstance(imported(rewritten(export(tmp_path, "pt2"), lambda files: None)).network, Network)


def test_the_guards_of_a_file_are_never_run(tmp_path, monkeypatch) -> None:
    """They are Python by nature, and only check the input."""
    monkeypatch.chdir(tmp_path)
    path = export(tmp_path, "pt2")
    imported(rewritten(path, lambda files: edited(files, lambda described: described.update(guards_code=[CALL]))))
    assert not (tmp_path / "trapped").exists()
