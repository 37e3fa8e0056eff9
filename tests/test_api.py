"""What a program may rely on: labels are not read, the program around is left alone, data may come in many forms."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

import cosda
from cosda.run.memory import keep_freed_memory
from tiny import read, tiny_benchmark

SMALL = ("network.encoder=small", "network.bottleneck=8", "data.size=16", "data.flip=false", "source.batch_size=8")
QUICK: cosda.Options = {"epochs": 1, "batch_size": 8}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> cosda.Model:
    out = tmp_path_factory.mktemp("source")
    return cosda.train_source(tiny_benchmark(), "one", settings=read(SMALL), epochs=1, out=out).model


def write(folder: Path, images: Any, names: Any) -> Path:
    for number, (image, name) in enumerate(zip(images, names, strict=True)):
        path = folder / name / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.asarray(image)).save(path)
    return folder


def weights(model: cosda.Model) -> dict[str, Tensor]:
    return model.network.state_dict()


def same(left: cosda.Model, right: cosda.Model) -> bool:
    return all(torch.equal(value, weights(right)[key]) for key, value in weights(left).items())


# --- Labels -----------------------------------------------------------------------------------------------------------


def test_folder_names_of_a_target_mean_nothing(model: cosda.Model, tmp_path: Path) -> None:
    """Known classes, unknown ones, or none: the same run, by name and by bits, with no accuracy in its records."""
    images = tiny_benchmark()["two"].items
    results = []
    for number, folder in enumerate(("", "a", "zebra")):
        place = write(tmp_path / str(number) / "site", images, [folder] * len(images))  # type: ignore[arg-type]
        results.append(cosda.adapt(model, place, "nrc", out=tmp_path / str(number), **QUICK))
    assert len({result.run.path.name for result in results}) == 1
    assert same(results[0].model, results[1].model)
    assert same(results[0].model, results[2].model)
    assert not list(results[1].run.of("accuracy"))


def test_the_labels_of_a_domain_change_nothing(model: cosda.Model, tmp_path: Path) -> None:
    target = tiny_benchmark()["two"]
    shuffled = target.with_labels_shuffled(3)
    assert target.labels is not None
    assert shuffled.labels is not None
    assert not np.array_equal(target.labels, shuffled.labels)
    one, other = (cosda.adapt(model, domain, "shot", out=tmp_path, **QUICK) for domain in (target, shuffled))
    assert one.run.path == other.run.path


def test_who_wants_to_measure_says_so(model: cosda.Model, tmp_path: Path) -> None:
    target = tiny_benchmark()["two"]
    result = cosda.adapt(model, target, "nrc", check=target, **QUICK)
    assert result.check is not None
    assert result.check.before == cosda.evaluate(model, target)
    assert result.check.after == cosda.evaluate(result.model, target)
    assert same(result.model, cosda.adapt(model, target, "nrc", **QUICK).model), "what is measured decides nothing"


# --- The program around -----------------------------------------------------------------------------------------------


def test_the_program_around_is_left_as_it_was(
    model: cosda.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {key: value.clone() for key, value in weights(model).items()}
    keep_freed_memory.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", lambda *_: pytest.fail("the C library belongs to the program"))
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()
    machine, benchmark = cosda.Machine(device="cpu", threads=threads + 1), tiny_benchmark()
    cosda.adapt(model, benchmark["two"], "cosda", machine=machine, **QUICK)
    cosda.train_source(benchmark, "one", settings=read(SMALL), epochs=1, out=tmp_path, machine=machine)
    cosda.predict(model, benchmark["two"], machine=machine)
    cosda.evaluate(model, benchmark["two"], machine=machine)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(value, weights(model)[key]) for key, value in before.items())


def test_an_error_leaves_it_as_it_was_too(model: cosda.Model, tmp_path: Path) -> None:
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()
    machine = cosda.Machine(device="cpu", threads=threads + 1)
    with pytest.raises(cosda.CosdaError, match="learning rate"):
        cosda.run_chain(
            tiny_benchmark(),
            model=model,
            out=tmp_path,
            machine=machine,
            settings={"lr": 1e30, "lr_end": 1e30},
            epochs=2,
        )
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.random.get_rng_state(), state)


# --- Data -------------------------------------------------------------------------------------------------------------


class Photos(Dataset[tuple[Image.Image, int]]):
    """Somebody's torch Dataset of images and labels."""

    def __init__(self, images: Any) -> None:
        self.images = [Image.fromarray(np.asarray(image)) for image in images]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, position: int) -> tuple[Image.Image, int]:
        return self.images[position], position % 3


def test_equal_images_adapt_equally_in_whatever_form_they_come(model: cosda.Model, tmp_path: Path) -> None:
    images = tiny_benchmark()["two"].items
    site = write(tmp_path / "site", images, [""] * len(images))  # type: ignore[arg-type]
    paths = sorted(site.glob("*.png"))
    (tmp_path / "list.csv").write_text("path,label\n" + "".join(f"{path},a\n" for path in paths))
    forms = [site, paths, [str(path) for path in paths], tmp_path / "list.csv", Photos(images), Photos(images).images]
    adapted = [cosda.adapt(model, form, "nrc", domain="site", **QUICK).model for form in forms]
    for other in adapted[1:]:
        assert same(adapted[0], other)


def test_predictions_keep_the_order_of_the_input(model: cosda.Model, tmp_path: Path) -> None:
    images = tiny_benchmark()["two"].items
    site = write(tmp_path / "site", images, [""] * len(images))  # type: ignore[arg-type]
    (site / "00.png").write_bytes(b"no image")
    paths = sorted(site.glob("*.png"))
    there, back = cosda.predict(model, paths), cosda.predict(model, paths[::-1])
    assert [one.class_name for one in back] == [one.class_name for one in there][::-1]
    assert [Path(one.image).name for one in there] == [path.name for path in paths]
    assert there[0].skipped
    assert (there[0].class_name, there[0].probability, there[0].top(2)) == ("", None, [])
    best = there[1].top(3)
    assert [p for _, p in best] == sorted((p for _, p in best), reverse=True)
    assert sum(p for _, p in best) == pytest.approx(1, abs=1e-5)


def test_what_is_no_data_is_told_what_is(model: cosda.Model) -> None:
    with pytest.raises(cosda.CosdaError, match="Accepted are a folder of images"):
        cosda.adapt(model, 7)  # type: ignore[arg-type]


# --- The domain bank --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def banks(model: cosda.Model) -> list[cosda.Model]:
    """The model, with an expert for two, and with one for three beside it."""
    found = [model]
    for name in ("two", "three"):
        found.append(cosda.adapt(found[-1], images_of(name), "aad", domain=name, carry="bank", **QUICK).model)
    return found


def images_of(name: str) -> Any:
    return tiny_benchmark()[name].items


def bits(model: cosda.Model, data: Any, **options: Any) -> Any:
    return np.stack([one.probabilities for one in cosda.predict(model, data, **options)])  # type: ignore[misc]


def test_a_bank_names_its_domains(banks: list[cosda.Model]) -> None:
    assert [one.domains for one in banks] == [(), ("one", "two"), ("one", "two", "three")]


def test_what_is_explained_is_what_is_predicted(banks: list[cosda.Model]) -> None:
    bank, data = banks[-1], np.concatenate([images_of(name) for name in ("three", "one", "two")])
    explained = cosda.predict(bank, data, explain=True)
    for one, plain in zip(explained, cosda.predict(bank, data), strict=True):
        assert plain.route is None
        assert one.route is not None
        assert np.array_equal(one.probabilities, plain.probabilities)  # type: ignore[arg-type]
        assert list(one.route.posteriors) == list(bank.domains)
        assert one.route.posterior == max(one.route.posteriors.values()) == one.route.posteriors[one.route.domain]
    # An image that is sent to one expert alone has the answer of that expert.
    for place, name in enumerate(bank.domains):
        alone = bits(bank, data, domain=name)
        sure = [n for n, one in enumerate(explained) if one.route and one.route.domain == name]
        sure = [n for n in sure if explained[n].route.posterior > 0.9 and not explained[n].route.unknown]  # type: ignore[union-attr]
        assert sure or place
        for n in sure:
            np.testing.assert_allclose(explained[n].probabilities, alone[n], rtol=1e-4, atol=1e-6)  # type: ignore[arg-type]


def test_predictors_explain_too_and_keep_as_many_experts_as_they_are_told(banks: list[cosda.Model]) -> None:
    bank, data = banks[-1], np.concatenate([images_of(name) for name in ("two", "one", "three")])
    wanted = cosda.predict(bank, data, explain=True)
    predictor = cosda.Predictor(bank, device="cpu", experts_in_memory=1)
    assert predictor.predict(data, explain=True) == wanted
    assert predictor.predict(data) != wanted
    assert cosda.predict(bank, data, explain=True, experts_in_memory=1) == wanted
    with pytest.raises(cosda.CosdaError, match="at least one expert must be in memory, not 0"):
        cosda.Predictor(bank, experts_in_memory=0)
    for other in (cosda.Predictor(banks[0]), cosda.Predictor(bank, domain="two")):
        with pytest.raises(cosda.CosdaError, match="nothing is routed"):
            other.predict(data, explain=True)


def test_an_expert_that_is_taken_out_leaves_no_trace(banks: list[cosda.Model], tmp_path: Path) -> None:
    source, first, second = banks
    before, lineage = second.key, list(second.lineage)
    assert second.without("three").key == first.key
    assert second.without("three").without("two").key == source.key
    assert (second.key, second.lineage, second.domains) == (before, lineage, ("one", "two", "three"))
    again = cosda.adapt(second.without("three"), images_of("three"), "aad", domain="three", carry="bank", **QUICK)
    assert again.model.key == second.key
    with pytest.raises(cosda.CosdaError, match="no domain bank"):
        source.without("two")


def test_a_folder_may_be_written_anew_by_the_model_that_came_from_it(banks: list[cosda.Model], tmp_path: Path) -> None:
    """Its experts are numbered, so that of three is in another file afterwards."""
    place = banks[-1].save(tmp_path / "model")
    wanted = bits(banks[-1], images_of("three"), domain="three")
    left = cosda.load(place).without("two")
    left.save(place, overwrite=True)
    assert np.array_equal(bits(left, images_of("three"), domain="three"), wanted)
    assert np.array_equal(bits(cosda.load(place), images_of("three"), domain="three"), wanted)


def test_profiles_are_made_of_images_and_leave_the_given_model_alone(banks: list[cosda.Model]) -> None:
    bank, domain = banks[-1], tiny_benchmark()["one"]
    before = bank.key
    shown = cosda.profile(bank, domain)
    old, new = bank.network.base.profile, shown.network.base.profile
    assert bank.key == before
    assert old is not None
    assert new is not None
    assert torch.equal(old.mean, new.mean), "source training looked at the same images"
    assert new.temperature is not None, "beside its experts there is something to compare with"
    assert shown.lineage[-1]["step"] == "profile"
    assert cosda.profile(banks[0], domain).key == cosda.profile(banks[0], domain).key
    labelled, shuffled = (cosda.profile(bank, one).key for one in (domain, domain.with_labels_shuffled(3)))
    assert labelled == shuffled


def test_a_profile_of_features_is_for_a_frozen_encoder(model: cosda.Model, banks: list[cosda.Model]) -> None:
    seen = cosda.profile(model, tiny_benchmark()["one"], freeze_encoder=True)
    made = seen.network.profile
    assert made is not None
    assert made.late
    bank = cosda.adapt(seen, images_of("two"), "aad", domain="two", carry="bank", freeze_encoder=True, **QUICK).model
    assert bank.domains == ("one", "two")
    routed = [one.route for one in cosda.predict(bank, images_of("one"), explain=True)]
    assert sum(route is not None and route.domain == "one" for route in routed) > len(routed) / 2
    with pytest.raises(cosda.CosdaError, match="another network than this one's, or at another place"):
        banks[-1].with_profile(made)
    with pytest.raises(cosda.CosdaError, match="Leave --freeze-encoder out"):
        cosda.profile(banks[-1], tiny_benchmark()["one"], freeze_encoder=True)


def test_a_bank_is_checked_as_it_is_used(banks: list[cosda.Model]) -> None:
    """Under the name of a new domain, of which the bank has no expert before; and routed, not told the name."""
    target = tiny_benchmark()["three"]
    result = cosda.adapt(banks[1], target, "aad", domain="three", check=target, carry="bank", **QUICK)
    assert result.check is not None
    assert result.check.before.correct == cosda.evaluate(banks[1], target).correct
    assert result.check.after.correct == cosda.evaluate(result.model, target).correct
