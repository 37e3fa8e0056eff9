from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from cosda.data import digits
from cosda.data.benchmarks import load
from cosda.data.doctor import examine
from cosda.data.domain import Files
from cosda.data.inputs import load_domain
from cosda.data.registry import BENCHMARKS, Known, what_belongs
from cosda.errors import CosdaError


def write_list(path, entries):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name} {label}\n" for name, label in entries))


def labelled_names(domain):
    """Class position of every file, by the file's last two parts: equal for all layouts of a data set."""
    assert isinstance(domain.items, Files)
    keys = ["/".join(name.split("/")[-2:]) for name in domain.items.names]
    return dict(zip(keys, domain.labels.tolist(), strict=True))


@pytest.mark.parametrize("inner", ["", "images/"])
def test_office31(tmp_path, tree, inner):
    tree(tmp_path, *(f"{domain}/{inner}{c}" for domain in ("webcam", "amazon", "dslr") for c in ("mug", "bike")))
    found = load(tmp_path)
    assert found.name == "office31"
    assert list(found.domains) == ["amazon", "dslr", "webcam"]
    assert found.classes == ("bike", "mug")
    assert (found.protocol, found.headline) == ("transductive", "top1")
    assert found.notes == ("2 of the 31 classes of Office-31",)
    assert found["dslr"].labels.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("real", ["Real World", "Real_World", "RealWorld"])
def test_officehome_from_folders_and_from_lists_is_the_same(tmp_path, tree, real):
    domains = ("Art", "Clipart", "Product", real)
    tree(tmp_path, *(f"{domain}/{c}" for domain in domains for c in ("Alarm_Clock", "TV")))
    (tmp_path / "imagelist.txt").write_text("whatever the archive brings\n")
    folders = load(tmp_path)
    assert list(folders.domains) == ["Art", "Clipart", "Product", "RealWorld"]
    for domain in domains:  # TLLib's labels are not in alphabetical order, and it writes Real_World
        spelt = "Real_World" if domain == real else domain
        entries = [(f"{spelt}/{c}/{i}.png", n) for n, c in enumerate(("TV", "Alarm_Clock")) for i in (0, 1)]
        write_list(tmp_path / "image_list" / f"{spelt}.txt", entries)
    lists = load(tmp_path)
    assert (lists.name, lists.classes, list(lists.domains)) == (folders.name, folders.classes, list(folders.domains))
    for domain in folders:
        assert labelled_names(lists[domain.name]) == labelled_names(domain)


@pytest.mark.parametrize("lists", ["none", "inside", "tllib"])
def test_visda(tmp_path, tree, lists):
    classes = list(BENCHMARKS["visda"].classes)
    tree(tmp_path, *(f"{part}/{c}" for part in ("train", "validation") for c in classes), count=1)
    tree(tmp_path, "test/trunk00", count=1)
    for part in ("train", "validation"):
        if lists == "inside":
            write_list(tmp_path / part / "image_list.txt", [(f"{c}/0.png", i) for i, c in enumerate(classes)])
        if lists == "tllib":
            entries = [(f"{part}/{c}/0.png", i) for i, c in enumerate(classes)]
            write_list(tmp_path / "image_list" / f"{part}.txt", entries)
    found = load(tmp_path, name="VisDA-2017")
    assert found.name == "visda"
    assert list(found.domains) == ["synthetic", "real"]
    assert found.classes == tuple(
        "plane bcycl bus car horse knife mcycl person plant sktbrd train truck".split()  # noqa: SIM905
    )
    assert found.headline == "per-class"
    assert found.notes == ()
    assert found["real"].labels.tolist() == list(range(12))


def test_folders_called_train_and_validation_need_not_be_visda(tmp_path, tree):
    tree(tmp_path / "own", "train/cat", "validation/cat", "test/cat")
    found = load(tmp_path / "own")
    assert found.name == "own"
    assert list(found.domains) == ["own"]
    assert found.protocol == "inductive"


@pytest.mark.parametrize("place", ["splits", ".", "image_list"])
def test_domainnet_is_inductive(tmp_path, tree, place):
    domains = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
    tree(tmp_path, *(f"{domain}/{c}" for domain in domains for c in ("The_Mona_Lisa", "zebra")))
    for domain in domains:
        for part, i in (("train", 0), ("test", 1)):
            entries = [(f"{domain}/{c}/{i}.png", n) for n, c in enumerate(("The_Mona_Lisa", "zebra"))]
            write_list(tmp_path / place / f"{domain}_{part}.txt", entries)
    found = load(tmp_path, name="domainnet")
    assert found.protocol == "inductive"
    assert tuple(found.domains) == domains
    real = found["real"]
    assert [real.items.names[i] for i in real.train] == ["real/The_Mona_Lisa/0.png", "real/zebra/0.png"]
    assert [real.items.names[i] for i in real.test] == ["real/The_Mona_Lisa/1.png", "real/zebra/1.png"]
    (tmp_path / place / "sketch_test.txt").unlink()
    with pytest.raises(CosdaError, match=r"the list sketch_test.txt is missing"):
        load(tmp_path)


def test_domainnet_without_its_lists_says_where_they_belong(tmp_path, tree):
    tree(tmp_path, *(f"{domain}/zebra" for domain in BENCHMARKS["domainnet"].domains))
    with pytest.raises(CosdaError, match=r"Put clipart_train.txt, clipart_test.txt .* into splits/"):
        load(tmp_path)


def test_own_domain_folders_are_transductive(tmp_path, tree):
    tree(tmp_path / "plant", "line-1/good", "line-1/bad", "line-2/good", "line-2/bad")
    (tmp_path / "plant/runs").mkdir()
    found = load(tmp_path / "plant")
    assert (found.name, found.protocol, found.headline) == ("plant", "transductive", "top1")
    assert list(found.domains) == ["line-1", "line-2"]
    assert found["line-1"].train is found["line-1"].test


def test_own_domain_folders_with_train_and_test_are_inductive(tmp_path, tree):
    tree(tmp_path, *(f"line-{n}/{part}/{c}" for n in (1, 2) for part in ("train", "test") for c in ("good", "bad")))
    found = load(tmp_path)
    assert found.protocol == "inductive"
    assert not set(found["line-1"].train) & set(found["line-1"].test)
    shutil.rmtree(tmp_path / "line-2")
    tree(tmp_path, "line-2/good", "line-2/bad")
    with pytest.raises(CosdaError, match="line-1 have a train and a test part, line-2 have not"):
        load(tmp_path)


def test_a_domain_may_be_unlabelled_or_lack_a_class(tmp_path, tree, draw):
    tree(tmp_path, "a/cat", "a/dog", "a/eel", "b/dog", "b/eel")
    draw(tmp_path / "c/photo.png")
    found = load(tmp_path)
    assert found.classes == ("cat", "dog", "eel")
    assert found["b"].labels.tolist() == [1, 1, 2, 2]
    assert found["c"].labels is None
    assert found.notes == ("b has no class cat", "c has no labels")


def test_mismatched_class_lists_are_named(tmp_path, tree):
    tree(tmp_path, "a/cat", "a/dog", "b/cat", "b/dogs")
    with pytest.raises(CosdaError, match=r"mismatched class lists: b has dogs.* a has dog,.*Did you mean 'dog'"):
        load(tmp_path)


def test_arrays_of_several_domains(tmp_path):
    images = np.zeros((4, 8, 8), np.uint8)
    np.savez(tmp_path / "pair.npz", x_images=images, x_labels=[0, 1, 2, 0], y_images=images, y_labels=[0, 1, 1, 0])
    found = load(tmp_path / "pair.npz")
    assert (found.name, found.classes, list(found.domains)) == ("pair", ("0", "1", "2"), ["x", "y"])


def test_features_of_a_known_data_set_are_recognised(tmp_path):
    arrays = {f"{d}_features": np.ones((2, 3)) for d in ("webcam", "amazon", "dslr")}
    labels = {f"{d}_labels": ["mug", "pen"] for d in ("webcam", "amazon", "dslr")}
    np.savez(tmp_path / "x.npz", **arrays, **labels)
    found = load(tmp_path / "x.npz")
    assert found.name == "office31"
    assert list(found.domains) == ["amazon", "dslr", "webcam"]


def test_a_wrong_path_says_what_was_expected_and_found(tmp_path, tree):
    tree(tmp_path / "archive", "Office-31/amazon/mug", "Office-31/dslr/mug", "Office-31/webcam/mug")
    with pytest.raises(CosdaError, match=r"does not exist. Did you mean 'archive'\? Expected a folder of domain"):
        load(tmp_path / "archiv")
    with pytest.raises(CosdaError, match=r"is no benchmark.*Did you mean '.*archive/Office-31'"):
        load(tmp_path / "archive")
    with pytest.raises(CosdaError, match=r"looks like one domain with 1 classes \(mug\); give the folder above"):
        load(tmp_path / "archive/Office-31/dslr")
    with pytest.raises(CosdaError, match=r"Found 0 folders, 2 images and 0 other files"):
        load(tmp_path / "archive/Office-31/dslr/mug")
    with pytest.raises(CosdaError, match=r"is a single file"):
        load(tmp_path / "archive/Office-31/dslr/mug/0.png")
    with pytest.raises(CosdaError, match=r"is not Office-Home. Expected .* art, clipart.* Found the domains amazon"):
        load(tmp_path / "archive/Office-31", name="officehome")
    with pytest.raises(CosdaError, match=r"there is no benchmark 'ofice31'. Did you mean 'office31'"):
        load(tmp_path, name="ofice31")


def test_a_known_domain_without_images_is_an_error(tmp_path, tree):
    tree(tmp_path, "amazon/mug", "dslr/mug")
    (tmp_path / "webcam").mkdir()
    with pytest.raises(CosdaError, match="webcam has no class folders"):
        load(tmp_path)


def test_the_embedded_benchmark_is_found_by_its_name():
    assert load("digits") is digits.load()
    assert list(load("digits").domains.values()) == list(digits.load())
    assert tuple(load("digits").domains) == tuple(BENCHMARKS["digits"].domains.values())


# --- A benchmark of one's own -----------------------------------------------------------------------------------------


@pytest.fixture
def pets(tmp_path, tree, monkeypatch):
    """A benchmark that a program outside registers in one line, and its folder."""
    classes = {"felis": "cat", "dog": "dog", "eel": "eel"}
    known = Known("pets", "Pets-2", {"night": "dark", "day": "bright"}, 3, "per-class", classes=classes)
    monkeypatch.setitem(BENCHMARKS, "pets", known)
    return tree(tmp_path / "archive", "day/felis", "day/dog", "Night/felis", "Night/dog", "more/felis")


def test_a_benchmark_from_outside_is_recognised(pets):
    found = load(pets)
    assert (found.name, found.headline, found.classes) == ("pets", "per-class", ("dog", "cat"))
    assert list(found.domains) == ["dark", "bright"]
    assert found.notes == ("2 of the 3 classes of Pets-2",)
    assert load(pets, name="pets 2").name == "pets"
    assert load_domain(pets / "day", ("dog", "cat")).labels.tolist() == [0, 0, 1, 1]
    with pytest.raises(CosdaError, match=r"is not Office-31"):
        load(pets, name="office31")
    with pytest.raises(CosdaError, match=r"does not exist. Expected the folder of Pets-2, with night, day in it"):
        load(pets / "nothing", name="pets")


def test_a_benchmark_from_outside_may_be_embedded(monkeypatch):
    made = replace(digits.load(), name="two")
    monkeypatch.setitem(BENCHMARKS, "two", Known("two", "Two", {}, 10, make=lambda: made))
    assert load("two") is made
    assert examine("two").benchmark == "two"


def test_help_texts_and_errors_name_all_benchmarks(pets):
    assert "pets: Pets-2" in BENCHMARKS.described()
    assert "DomainNet, Pets-2 or your own" in what_belongs()
    assert "the name 'digits'" in what_belongs()


def test_the_command_lines_help_names_a_benchmark_from_outside():
    code = """
import cosda.data.registry as registry
registry.BENCHMARKS["pets"] = registry.Known("pets", "Pets-2", {}, 2)
from cosda.__main__ import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "--help"],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert "DomainNet, Pets-2 or your own" in " ".join(done.stdout.split())
