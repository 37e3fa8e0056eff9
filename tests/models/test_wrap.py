import copy
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cosda.api import adapt
from cosda.errors import CosdaError
from cosda.models.artifact import load
from cosda.models.encoders.base import FEATURE_VECTORS, Preprocessing
from cosda.models.wrap import wrap
from cosda.run.machine import Machine
from tiny import read, tiny_domain

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
    with pytest.raises(CosdaError, match=r"no Linear layer or 1x1 convolution called 'top.2'. Did you mean 'top.1'"):
        wrap(own_classifier, CLASSES, classifier="top.2", preprocessing=SMALL)
    with pytest.raises(CosdaError, match="not that of its layer 'middle'"):
        wrap(own_classifier, CLASSES, classifier="middle", preprocessing=SMALL)


def test_model_of_feature_vectors() -> None:
    own = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    model = wrap(own, CLASSES, preprocessing=FEATURE_VECTORS, example=torch.randn(2, 5))
    assert model.architecture.input_width == 5
    with pytest.raises(CosdaError, match="give wrap an example"):
        wrap(own, CLASSES, preprocessing=FEATURE_VECTORS)
    assert wrap(own, CLASSES, example=torch.randn(2, 5)).preprocessing == FEATURE_VECTORS
    with pytest.raises(CosdaError, match=r"for a model of feature vectors example=vectors\[:2\]"):
        wrap(own, CLASSES)


class Twice(nn.Module):
    """Uses its last layer in the middle, too."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        nn.init.constant_(self.layer.weight, 0.7)  # else the ReLU may leave nothing, and both calls give the bias

    def forward(self, images):
        return self.layer(self.layer(images.mean(dim=(2, 3))).relu())


class Uncopyable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, images):
        return self.layer(images.mean(dim=(2, 3)))

    def __deepcopy__(self, memo):
        raise RuntimeError("this one is unique")


POOL = (nn.AdaptiveAvgPool2d(1), nn.Flatten())


@dataclass
class Record:
    """What Hugging Face models and their like return."""

    logits: Tensor
    loss: Tensor | None = None


class Returning(nn.Module):
    """A classifier whose output is made by a function of its logits."""

    def __init__(self, end) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), *POOL)
        self.layer = nn.Linear(4, 3)
        self.end = end

    def forward(self, images):
        return self.end(self.layer(self.features(images)))


def opposed() -> nn.Conv2d:
    """A 1x1 convolution whose outputs are positive and negative on any image."""
    layer = nn.Conv2d(3, 3, 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([1.0, -1.0, 0.5]).view(3, 1, 1, 1).expand_as(layer.weight))
    return layer


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (nn.Sequential(nn.Conv2d(3, 3, 3), *POOL), "uses no Linear layer and no 1x1 convolution"),
        (nn.Sequential(*POOL, nn.Linear(3, 3), nn.Sigmoid()), "not that of its layer '2', nor a softmax of it"),
        (nn.Sequential(opposed(), nn.ReLU(inplace=True), *POOL), "such as a ReLU behind a 1x1 convolution"),
        (nn.Sequential(*POOL, nn.Linear(3, 4)), "tells 4 classes apart, but 3 class names"),
        (nn.Sequential(nn.Linear(16, 3)), r"gives a tensor \(2, 3, 16, 3\) for a batch of 2"),
        (nn.Sequential(*POOL, nn.Linear(7, 3)), r"does not take a batch of shape \(2, 3, 16, 16\)"),
        (Twice(), "may use the layer twice"),
        (
            Returning(lambda logits: (logits, None)),
            "gives a tuple for a batch of 2.*an object or dictionary with 'logits'",
        ),
        (Returning(lambda logits: Record(logits[0])), r"gives a Record with logits \(3,\) for a batch of 2"),
        (Uncopyable(), "cannot be copied.*this one is unique"),
        (lambda images: images, "takes a trained torch.nn.Module, not a function"),
    ],
)
def test_unsuitable_models_are_explained(own, message) -> None:
    with pytest.raises(CosdaError, match=message):
        wrap(own, CLASSES, preprocessing=SMALL)


@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")
@pytest.mark.parametrize("make", [torch.jit.script, lambda own: torch.jit.trace(own, IMAGES)])
def test_torchscript_is_told_what_to_do_and_that_works(own_classifier, make) -> None:
    compiled = make(own_classifier.eval())
    with pytest.raises(CosdaError, match=r"TorchScript module cannot be cut.*load_state_dict\(script.state_dict\(\)\)"):
        wrap(compiled, CLASSES, preprocessing=SMALL)
    module = type(own_classifier)()
    module.load_state_dict(compiled.state_dict())
    model = wrap(module, CLASSES, preprocessing=SMALL)
    torch.testing.assert_close(model.network.eval()(IMAGES).logits, compiled(IMAGES))


# --- What a model may return, and what may stand at its end -----------------------------------------------------------

ENDS = {
    "tensor": lambda logits: logits,
    "object": Record,
    "dictionary": lambda logits: {"logits": logits},
    "softmax": lambda logits: logits.softmax(dim=1),
    "log-softmax": lambda logits: F.log_softmax(logits, dim=1),
    "softmax in a dictionary": lambda logits: {"logits": logits.softmax(dim=1)},
    "shape": lambda logits: logits.view(-1, 3),  # which features of another width do not bear
}


def values(output) -> Tensor:
    if isinstance(output, Record):
        return output.logits
    return output["logits"] if isinstance(output, dict) else output


@pytest.mark.parametrize("end", ENDS)
def test_whatever_a_model_returns_its_network_gives_logits_and_its_module_what_it_returned(end, tmp_path) -> None:
    torch.manual_seed(0)
    own = Returning(ENDS[end]).eval()
    model = wrap(own, CLASSES, preprocessing=SMALL)
    wanted = own.layer(own.features(IMAGES))
    output = model.network.eval()(IMAGES)
    torch.testing.assert_close(output.logits, wanted)
    torch.testing.assert_close(output.features, own.features(IMAGES))
    assert model.architecture.tail == ("softmax" in end or end == "shape")
    again = load(model.save(tmp_path / "model"), build=lambda: Returning(ENDS[end]))
    for module in (model.module(), again.module()):
        returned = module(IMAGES)
        assert type(module) is Returning
        assert type(returned) is type(own(IMAGES))
        assert torch.equal(values(returned), values(own(IMAGES)))


@pytest.mark.parametrize(
    ("own", "path"),
    [
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 3, 1), *POOL), "1"),
        (nn.Sequential(nn.Conv2d(3, 4, 3), POOL[0], nn.Conv2d(4, 3, 1, bias=False), nn.Flatten()), "2"),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 3, 1), *POOL, nn.Softmax(dim=1)), "1"),
    ],
)
def test_a_pointwise_convolution_is_a_classifier_beside_a_global_average(own, path, tmp_path) -> None:
    model = wrap(own, CLASSES, preprocessing=SMALL)
    assert model.architecture.classifier == path
    assert isinstance(model.network.classifier, nn.Linear)
    logits = model.network.eval()(IMAGES).logits
    wanted = own.eval()(IMAGES)
    torch.testing.assert_close(logits.softmax(dim=1) if model.architecture.tail else logits, wanted)
    with torch.no_grad():
        model.network.classifier.weight.mul_(2)
    again = load(model.save(tmp_path / "model"), build=lambda: copy.deepcopy(own)).module()
    assert again.state_dict().keys() == own.state_dict().keys()
    layer = again.get_submodule(path)
    assert isinstance(layer, nn.Conv2d)
    assert torch.equal(layer.weight, 2 * own.get_submodule(path).weight)
    assert not torch.allclose(again(IMAGES), wanted)


# --- The way back -----------------------------------------------------------------------------------------------------


def test_the_module_is_a_copy_of_the_users_own_with_other_weights(own_classifier) -> None:
    model = wrap(own_classifier.train(), CLASSES, preprocessing=SMALL)
    with torch.no_grad():
        for tensor in [*model.network.parameters(), *model.network.buffers()]:
            tensor.add_(1)
    module = model.module()
    assert type(module) is type(own_classifier)
    assert not module.training
    assert list(module.state_dict()) == list(own_classifier.state_dict())
    assert all(torch.equal(module.state_dict()[key], value + 1) for key, value in own_classifier.state_dict().items())
    assert torch.equal(module(IMAGES), model.network.eval()(IMAGES).logits)
    with torch.no_grad():
        module.middle.weight.zero_()
    assert not torch.equal(model.module().middle.weight, module.middle.weight)
    own_classifier.load_state_dict(model.module().state_dict())


def test_weights_that_two_layers_share_are_shared_again() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)
            self.last.weight = self.first.weight

        def forward(self, images):
            return self.last(self.first(images.mean(dim=(2, 3))).relu())

    module = wrap(Tied(), CLASSES, preprocessing=SMALL).module()
    assert module.last.weight is module.first.weight


def adapted(model):
    """A target of tiny images learnt by CoSDA, in one epoch."""
    changes = ["epochs=1", "batch_size=8", "lr=0.05"]
    return adapt(model, tiny_domain(), "cosda", settings=read(changes), machine=Machine(device="cpu", threads=1)).model


@pytest.mark.parametrize("end", ["object", "log-softmax"])
def test_an_adapted_model_comes_back_as_the_users_own_module(end) -> None:
    torch.manual_seed(0)
    own = Returning(ENDS[end]).eval()
    before = copy.deepcopy(own.state_dict())
    model = adapted(wrap(own, CLASSES, preprocessing=SMALL))
    assert all(torch.equal(own.state_dict()[key], value) for key, value in before.items())
    module = model.module()
    assert module.state_dict().keys() == before.keys()
    assert not torch.equal(module.layer.weight, before["layer.weight"])
    assert not torch.equal(module.features[1].running_mean, before["features.1.running_mean"])
    logits = model.network(IMAGES).logits
    torch.testing.assert_close(values(module(IMAGES)), logits if end == "object" else logits.log_softmax(dim=1))


@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")
@pytest.mark.parametrize("end", ["tensor", "softmax"])
def test_a_wrapped_network_is_traced_and_exported_for_any_batch(end) -> None:
    network = wrap(Returning(ENDS[end]), CLASSES, preprocessing=SMALL).network.eval()
    traced = torch.jit.trace(network, IMAGES[:2])
    exported = torch.export.export(network, (IMAGES[:2],), dynamic_shapes=({0: torch.export.Dim("batch")},)).module()
    for count in (1, 3):
        wanted = network(IMAGES[:count]).logits
        torch.testing.assert_close(traced(IMAGES[:count])[1], wanted)
        torch.testing.assert_close(exported(IMAGES[:count]).logits, wanted)


def test_random_numbers_are_left_alone() -> None:
    class Restless(nn.Module):
        """Draws random numbers in evaluation mode, too, and does nothing with them."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(3, 3, 1)

        def forward(self, images):
            return self.layer(images + 0 * torch.rand(1)).mean(dim=(2, 3))

    own = Restless()
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    model = wrap(own, CLASSES, preprocessing=SMALL)
    model.module()
    assert torch.equal(torch.rand(2), expected)


def test_saved_and_loaded_with_the_users_own_code(own_classifier, tmp_path) -> None:
    model = wrap(own_classifier, CLASSES, preprocessing=SMALL)
    model.save(tmp_path / "model")
    with pytest.raises(CosdaError, match=r"build=function"):
        load(tmp_path / "model")
    again = load(tmp_path / "model", build=type(own_classifier))
    assert torch.equal(again.network(IMAGES).logits, model.network.eval()(IMAGES).logits)
    assert again.architecture == model.architecture
    with pytest.raises(CosdaError, match=r"no Linear layer or 1x1 convolution called 'top.1'"):
        load(tmp_path / "model", build=lambda: Returning(Record))
    with pytest.raises(CosdaError, match=r"build= must return a torch.nn.Module.*returned a str"):
        load(tmp_path / "model", build=lambda: "module")

    def wider():
        made = type(own_classifier)()
        made.middle = nn.Linear(4, 6, bias=False)
        return made

    with pytest.raises(CosdaError, match=r"do not fit the network that build= makes: Unexpected key.*middle\.bias"):
        load(tmp_path / "model", build=wider)
    with pytest.raises(KeyError):  # an error of the user's own function is not the model's
        load(tmp_path / "model", build=lambda: {}["absent"])


def test_torchvisions_classifier(torchvision) -> None:
    theirs = torchvision.models.mobilenet_v3_small(num_classes=3).eval()
    model = wrap(theirs, CLASSES, preprocessing=Preprocessing(size=32))
    images = torch.randn(2, 3, 32, 32)
    assert model.architecture.classifier == "classifier.3"
    assert torch.equal(model.network.eval()(images).logits, theirs(images))


def test_squeezenet_says_why_not_and_goes_without_its_last_relu(torchvision) -> None:
    torch.manual_seed(0)
    theirs = torchvision.models.squeezenet1_1(num_classes=3).eval()
    with pytest.raises(CosdaError, match="such as a ReLU behind a 1x1 convolution"):
        wrap(theirs, CLASSES, preprocessing=Preprocessing(size=32))
    theirs.classifier[2] = nn.Identity()
    model = wrap(theirs, CLASSES, preprocessing=Preprocessing(size=32))
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(model.network.eval()(images).logits, theirs(images))
    torch.testing.assert_close(model.module()(images), theirs(images))


def test_timms_resnet_is_adapted_and_comes_back(timm) -> None:
    theirs = timm.create_model("resnet18", num_classes=3).eval()
    model = wrap(theirs, CLASSES, preprocessing=Preprocessing(size=32))
    assert model.architecture.classifier == "fc"
    module = adapted(model).module()
    assert type(module) is type(theirs)
    assert module.state_dict().keys() == theirs.state_dict().keys()
    assert not torch.equal(module.fc.weight, theirs.fc.weight)


def test_a_vit_of_transformers_is_adapted_and_comes_back(transformers) -> None:
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=32,
        patch_size=8,
        num_labels=3,
    )
    theirs = transformers.ViTForImageClassification(config).eval()
    images = torch.randn(2, 3, 32, 32)
    model = wrap(theirs, CLASSES, preprocessing=Preprocessing(size=32))
    assert model.architecture.classifier == "classifier"
    assert not model.architecture.tail
    torch.testing.assert_close(model.network.eval()(images).logits, theirs(images).logits)
    result = adapted(model)
    module = result.module()
    assert type(module) is type(theirs)
    assert module.state_dict().keys() == theirs.state_dict().keys()
    assert not torch.equal(module.classifier.weight, theirs.classifier.weight)
    output = module(images)
    assert type(output) is type(theirs(images))
    torch.testing.assert_close(output.logits, result.network(images).logits)
