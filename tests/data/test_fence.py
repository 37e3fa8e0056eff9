"""Links and lists do not lead out of the data folder, and nothing that lies in it is lost without a word."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cosda.data import readers
from cosda.data.benchmarks import load
from cosda.data.cache import pack
from cosda.data.doctor import examine
from cosda.data.inputs import load_domain
from cosda.errors import CosdaError

OUTSIDE = "leads out of the data folder .* --follow-links"


@pytest.fixture
def site(tmp_path, tree) -> Path:
    tree(tmp_path / "elsewhere", "secret", count=2)
    return tree(tmp_path / "data" / "site", "cat", "dog", count=2)


def a_file(site: Path) -> Path:
    (site / "cat/x.png").symlink_to(site.parents[1] / "elsewhere/secret/0.png")
    return site


def a_class(site: Path) -> Path:
    (site / "eel").symlink_to(site.parents[1] / "elsewhere/secret")
    return site


def a_txt(site: Path) -> Path:
    (site / "list.txt").write_text("cat/0.png 0\n../../elsewhere/secret/0.png 1\n")
    return site / "list.txt"


def a_csv(site: Path) -> Path:
    (site / "list.csv").write_text(f"path,label\ncat/0.png,cat\n{site.parents[1]}/elsewhere/secret/0.png,dog\n")
    return site / "list.csv"


def a_linked_entry(site: Path) -> Path:
    a_file(site)
    (site / "list.csv").write_text("path\ncat/0.png\ncat/x.png\n")
    return site / "list.csv"


@pytest.mark.parametrize("make", [a_file, a_class, a_txt, a_csv, a_linked_entry])
def test_what_leads_out_is_refused_unless_it_may(site, make):
    path = make(site)
    for labels in (True, False):
        with pytest.raises(CosdaError, match=OUTSIDE):
            load_domain(path, labels=labels)
        assert len(load_domain(path, labels=labels, follow_links=True)) >= 2
    assert any("--follow-links" in problem for problem in examine(path).problems)
    assert not any("--follow-links" in problem for problem in examine(path, follow_links=True).problems)


def test_a_domain_may_lie_elsewhere_only_if_the_user_says_so(site, tree):
    tree(site.parents[1] / "far", "cat", "dog")
    (site.parent / "other").symlink_to(site.parents[1] / "far")
    with pytest.raises(CosdaError, match=OUTSIDE):
        load(site.parent)
    assert set(load(site.parent, follow_links=True).domains) == {"site", "other"}  # type: ignore[comparison-overlap]


def test_lists_of_a_benchmark_stay_in_its_folder(site):
    (site.parent / "site.txt").write_text("site/cat/0.png 0\n../elsewhere/secret/0.png 1\n")
    with pytest.raises(CosdaError, match=OUTSIDE):
        load(site.parent)
    assert len(load(site.parent, follow_links=True)["site"]) == 2


def test_links_within_the_folder_are_followed(site):
    (site / "eel").symlink_to("dog")
    (site / "cat/again.png").symlink_to("0.png")
    assert len(load_domain(site)) == 7
    site.parent.with_name("link").symlink_to(site.parent)
    assert len(load(site.parent.with_name("link"))["site"]) == 7  # the folder itself may be named by a link


def test_a_link_to_the_whole_system_is_not_walked(site):
    (site / "eel").symlink_to("/")
    with pytest.raises(CosdaError, match=OUTSIDE):
        load_domain(site)


def test_a_class_that_leads_nowhere_is_an_error(site):
    (site / "eel").symlink_to(site.parents[1] / "not mounted")
    with pytest.raises(CosdaError, match=r"eel is a link to .*not mounted, which is not there"):
        load_domain(site)
    assert "not mounted" in examine(site).problems[0]
    (site.parent / "other").symlink_to("gone")
    with pytest.raises(CosdaError, match="other is a link to gone"):
        load(site.parent)


def test_a_class_folder_that_cannot_be_read_is_an_error(site, monkeypatch):
    """Its files can be listed, but none can be opened: only a user without rights meets that, and tests have them."""
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "dog" and allowed(path, mode))
    for labels in (True, False):
        with pytest.raises(CosdaError, match=r"cannot be read: Permission denied \(.*dog\)"):
            load_domain(site, labels=labels)
    assert "Permission denied" in examine(site).problems[0]


@pytest.mark.parametrize("damage", [lambda file: file.write_bytes(b"damaged"), lambda file: file.unlink()])
def test_a_class_of_which_no_image_can_be_read_stops_a_run(site, cache, damage):
    domain = load_domain(site)
    for name in ("0.png", "1.png"):
        damage(site / "dog" / name)
    with pytest.raises(CosdaError, match=r"site would lose a class: none of its 2 images can be read \(.*dog/0.png"):
        pack(domain, 16)
    assert len(pack(domain.without_labels(), 16).domain) == 2


def test_folders_without_end_are_refused(tmp_path, draw):
    folder = tmp_path
    for _ in range(80):
        folder = folder / "d"
    draw(folder / "0.png")
    with pytest.raises(CosdaError, match="64 deep"):
        load_domain(tmp_path)


def test_domains_of_one_name_do_not_hide_each_other(tmp_path, tree):
    tree(tmp_path, *(f"{name}/cat" for name in ("Art", "Clipart", "Product", "RealWorld", "Real_World")))
    with pytest.raises(CosdaError, match="more than one domain RealWorld"):
        load(tmp_path)


def test_names_that_are_no_text_can_be_shown_and_written(tmp_path, draw, cache):
    folder = os.fsencode(tmp_path) + b"/si\xffte/c\xffat"
    os.makedirs(folder)
    draw(tmp_path / "x.png")
    os.rename(tmp_path / "x.png", folder + b"/\x1b[31m\xff.png")
    (path,) = tmp_path.glob("si*")
    domain, reading = load_domain(path), readers.read_folder(path)
    assert (domain.name, domain.names, reading.classes) == (
        "si\\xffte",
        ("c\\xffat/\\x1b[31m\\xff.png",),
        ("c\\xffat",),
    )
    for text in (domain.name, *domain.names, *reading.classes, examine(path).as_text()):
        text.encode()
    assert len(pack(domain, 16).domain) == 1
    draw(tmp_path / "y.png")
    os.truncate(folder + b"/\x1b[31m\xff.png", 0)
    os.rename(tmp_path / "y.png", folder + b"/y.png")
    ((name, _),) = pack(load_domain(path), 16).skipped
    assert name == "c\\xffat/\\x1b[31m\\xff.png"


# --- lists ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cat/0.png " + "9" * 5000, "the label has 5000 digits"),
        ("cat/0.png 0\nmoth.png 123456789", "123,456,790 classes, and the limit is 5,000"),
        ("cat/0.png 0\na\0b/c.png 1", "is no path"),
        ("a\0b.png 1", "were not found"),
        ("x" * 5000 + ".png 1", "were not found"),
    ],
)
def test_a_list_that_cannot_be_is_explained(site, text, message):
    (site / "list.txt").write_text(text)
    with pytest.raises(CosdaError, match=message):
        load_domain(site / "list.txt", [str(number) for number in range(10)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,label,label\ncat/0.png,a,b", "two columns of one name"),
        ("path,label\ncat/0.png,123456", "123,457 classes"),
        (f"path,{'x' * 200_000}\ncat/0.png,1", "field larger than field limit"),
        ("path\ncat/0.png\rdog/0.png", "new-line character|not found|image"),
    ],
)
def test_a_csv_that_cannot_be_is_explained(site, text, message):
    (site / "list.csv").write_bytes(text.encode())
    with pytest.raises(CosdaError, match=message):
        load_domain(site / "list.csv")


def test_more_digits_than_a_class_has_are_a_name(site):
    (site / "list.csv").write_text(f"path,label\ncat/0.png,{'9' * 5000}\ndog/0.png,1")
    assert load_domain(site / "list.csv").labels.tolist() == [1, 0]
