"""Data sets of Hugging Face's `datasets` and parquet files, made on the spot: what is read of them, and what is not."""

from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cosda
from cosda.data.benchmarks import load
from cosda.data.cache import content_key, pack, unpacked
from cosda.data.decode import Unreadable, fetch
from cosda.data.doctor import examine
from cosda.data.domain import Images
from cosda.data.inputs import load_domain
from cosda.data.rows import DatasetRows, ParquetRows
from cosda.errors import CosdaError

datasets = pytest.importorskip("datasets")
pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

CLASSES = ("cat", "dog", "eel")


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> None:
    datasets.disable_progress_bars()


def png(seed: int, side: int = 12) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def rows(count: int, first: int = 0, **more: list[Any]) -> dict[str, list[Any]]:
    images = [{"bytes": png(first + number), "path": None} for number in range(count)]
    return {"image": images, "label": [number % 3 for number in range(count)], **more}


def features(**more: Any) -> Any:
    return datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=list(CLASSES)), **more)


def made(count: int = 6, first: int = 0) -> Any:
    return datasets.Dataset.from_dict(rows(count, first), features())


def by_column(count: int = 6) -> Any:
    names = ["photo" if number % 2 else "sketch" for number in range(count)]
    return datasets.Dataset.from_dict(rows(count, domain=names), features(domain=datasets.Value("string")))


def by_split() -> Any:
    return datasets.DatasetDict(photo=made(6), sketch=made(3, first=50))


def as_folder(data: Any, folder: Path) -> Path:
    """The images of a data set as files, in the same order."""
    for number, image in enumerate(data.cast_column("image", datasets.Image(decode=False))["image"]):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:03}.png").write_bytes(image["bytes"])
    return folder


# --- One domain -------------------------------------------------------------------------------------------------------


def in_python(data: Any, folder: Path) -> Any:
    return data


def in_a_format(data: Any, folder: Path) -> Any:
    return data.with_format("numpy").with_transform(lambda batch: {"image": [None]})


def saved(data: Any, folder: Path) -> Path:
    data.save_to_disk(folder / "saved")
    return folder / "saved"


def as_parquet(data: Any, folder: Path) -> Path:
    data.to_parquet(folder / "rows.parquet", batch_size=4)
    return folder / "rows.parquet"


def as_shards(data: Any, folder: Path) -> Path:
    (folder / "repository" / "data").mkdir(parents=True)
    for number in range(2):
        data.shard(2, number, contiguous=True).to_parquet(
            folder / "repository" / "data" / f"train-{number:05}-of-00002.parquet"
        )
    return folder / "repository"


def by_pandas(data: Any, folder: Path) -> Path:
    """Without the words of `datasets`; the labels are categories."""
    plain = data.cast_column("image", datasets.Image(decode=False))
    content = [image["bytes"] for image in plain["image"]]
    labels = pyarrow.array([CLASSES[label] for label in data["label"]]).dictionary_encode()
    parquet.write_table(pyarrow.table({"picture": content, "class": labels}), folder / "rows.parquet")
    return folder / "rows.parquet"


MAKERS = [in_python, in_a_format, saved, as_parquet, as_shards, by_pandas]


@pytest.mark.parametrize("make", MAKERS)
def test_a_table_gives_what_a_folder_of_its_images_gives(make, tmp_path, cache):
    data = made()
    domain = load_domain(make(data, tmp_path), CLASSES)
    assert domain.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert domain.names == ("0", "1", "2", "3", "4", "5")
    folder = load_domain(as_folder(data, tmp_path / "folder"), labels=False)
    assert content_key(domain) == content_key(folder)  # so that both share an entry of the cache
    pixels = np.asarray(pack(folder, 8).domain.items)
    assert np.array_equal(pack(domain, 8).domain.items, pixels)
    order = np.array([5, 0, 3, 1])
    assert np.array_equal(unpacked(domain, 8).domain.items[order], pixels[order])


@pytest.mark.parametrize("make", MAKERS)
def test_labels_are_not_read_where_none_are_wanted(make, tmp_path, monkeypatch):
    read: list[str] = []
    for kind in (DatasetRows, ParquetRows):
        for name in ("column", "value"):
            before = getattr(kind, name)

            def spy(self, column, *position, before=before):
                read.append(column)
                return before(self, column, *position)

            monkeypatch.setattr(kind, name, spy)
    data = make(made(), tmp_path)
    domain = load_domain(data, labels=False)
    unpacked(domain, 8)
    assert domain.labels is None
    assert set(read) <= {"image", "picture"}
    load_domain(data)
    assert {"label", "class"} & set(read)


def test_a_file_that_was_replaced_is_read_again(tmp_path):
    path = as_parquet(made(), tmp_path)
    assert fetch(load_domain(path).items, 0) == png(0)
    as_parquet(made(first=70), tmp_path)
    assert fetch(load_domain(path).items, 0) == png(70)


def test_a_selection_of_rows_keeps_its_order():
    domain = load_domain(made().select([4, 1, 5]))
    assert domain.labels.tolist() == [1, 1, 2]
    assert fetch(domain.items, 0) == png(4)


def test_labels_of_minus_one_are_none():
    hidden = rows(4) | {"label": [-1] * 4}
    assert load_domain(datasets.Dataset.from_dict(hidden, features())).labels is None
    hidden["label"] = [0, 1, -1, 2]
    with pytest.raises(CosdaError, match="row 2 has no label, and others have"):
        load_domain(datasets.Dataset.from_dict(hidden, features()))


def test_feature_vectors(tmp_path):
    vectors = np.arange(12, dtype=np.float32).reshape(4, 3)
    data = datasets.Dataset.from_dict({"text": list("abcd"), "embedding": vectors.tolist(), "label": list("xyxy")})
    for given in (data, as_parquet(data, tmp_path), saved(data, tmp_path)):
        domain = load_domain(given)
        assert domain.kind == "features"
        assert np.array_equal(domain.items, vectors)
        assert domain.labels.tolist() == [0, 1, 0, 1]
    ragged = datasets.Dataset.from_dict({"embedding": [[1.0], [1.0, 2.0]]})
    with pytest.raises(CosdaError, match="vectors of column embedding have different lengths"):
        load_domain(ragged)


def test_paths_in_a_table_lie_in_its_folder_unless_links_may_be_followed(tmp_path, tree):
    tree(tmp_path / "site", "cat", "dog", count=1)
    table = pyarrow.table({"file_name": ["dog/0.png", "cat/0.png"], "label": ["dog", "cat"]})
    parquet.write_table(table, tmp_path / "site" / "list.parquet")
    domain = load_domain(tmp_path / "site" / "list.parquet", ("cat", "dog"))
    assert (domain.names, domain.labels.tolist()) == (("dog/0.png", "cat/0.png"), [1, 0])
    tree(tmp_path / "elsewhere", "eel", count=1)
    table = pyarrow.table({"path": ["dog/0.png", "../elsewhere/eel/0.png"]})
    parquet.write_table(table, tmp_path / "site" / "list.parquet")
    with pytest.raises(CosdaError, match=r"leads out of the data folder .* --follow-links"):
        load_domain(tmp_path / "site" / "list.parquet")
    assert len(load_domain(tmp_path / "site" / "list.parquet", follow_links=True)) == 2


def test_embedded_images_may_name_files_too_but_none_outside(tmp_path, draw):
    inside, outside = draw(tmp_path / "site" / "a.png", 1), draw(tmp_path / "b.png", 2)
    table = pyarrow.table({"image": [{"bytes": None, "path": str(path)} for path in (inside, outside)]})
    parquet.write_table(table, tmp_path / "site" / "rows.parquet")
    items = load_domain(tmp_path / "site" / "rows.parquet").items
    assert isinstance(items, Images)
    assert fetch(items, 0) == inside.read_bytes()
    with pytest.raises(CosdaError, match="leads out of the data folder"):
        fetch(items, 1)
    held = datasets.Dataset.from_dict({"image": [str(inside), str(outside)]}).cast_column("image", datasets.Image())
    assert fetch(load_domain(held).items, 1) == outside.read_bytes()  # it is the program that names them
    held = datasets.Dataset.from_dict({"image": ["https://example.org/a.png"]}).cast_column("image", datasets.Image())
    with pytest.raises(Unreadable, match="missing"):
        fetch(load_domain(held).items, 0)


# --- Several domains --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [in_python, saved, as_parquet])
def test_domains_by_column(make, tmp_path):
    data = make(by_column(), tmp_path)
    benchmark = load(data)
    assert list(benchmark.domains) == ["sketch", "photo"]
    assert benchmark.classes == CLASSES
    assert benchmark["photo"].labels.tolist() == [1, 0, 2]
    assert fetch(benchmark["photo"].items, 1) == png(3)
    with pytest.raises(CosdaError, match=r"several domains \(sketch, photo\); one is needed here.*#sketch"):
        load_domain(data)


@pytest.mark.parametrize("make", [in_python, saved])
def test_domains_by_split(make, tmp_path):
    benchmark = load(make(by_split(), tmp_path))
    assert {name: len(domain) for name, domain in benchmark.domains.items()} == {"photo": 6, "sketch": 3}
    assert benchmark.protocol == "transductive"
    assert fetch(benchmark["sketch"].items, 2) == png(52)


def test_one_domain_of_several_is_named_behind_a_hash(tmp_path):
    path = as_parquet(by_column(), tmp_path)
    assert load_domain(f"{path}#photo").name == "photo"
    with pytest.raises(CosdaError, match=r"no domain 'foto'\. Did you mean 'photo'\? It has: sketch, photo"):
        load_domain(f"{path}#foto")
    np.savez(tmp_path / "two.npz", a_images=np.zeros((2, 8, 8), np.uint8), b_images=np.ones((3, 8, 8), np.uint8))
    assert len(load_domain(f"{tmp_path}/two.npz#b")) == 3
    as_folder(made(), tmp_path / "photos")
    with pytest.raises(CosdaError, match="give the folder of one"):
        load_domain(f"{tmp_path}/photos#photo")


@pytest.mark.parametrize("make", [in_python, saved])
def test_train_and_test_are_parts_of_one_domain(make, tmp_path):
    data = datasets.DatasetDict(train=made(6), validation=made(3, 20), test=made(3, 50))
    given = make(data, tmp_path)
    domain = load_domain(given, CLASSES)
    assert (domain.train.tolist(), domain.test.tolist()) == ([0, 1, 2, 3, 4, 5], [6, 7, 8])
    assert domain.names[5:7] == ("train/5", "test/0")
    assert fetch(domain.items, 6) == png(50)
    if isinstance(given, Path):
        assert "the split validation is not read" in examine(given).notes


def test_a_split_by_column_and_part(tmp_path):
    data = datasets.DatasetDict(train=by_column(6), test=by_column(4))
    benchmark = load(data)
    assert benchmark.protocol == "inductive"
    assert {d.name: (len(d.train), len(d.test)) for d in benchmark} == {"sketch": (3, 2), "photo": (3, 2)}


def test_a_csv_has_domains_too(tmp_path, tree):
    tree(tmp_path, "cat", "dog")
    lines = [f"{kind}/{number}.png,{kind},{site}" for number, site in enumerate("ab") for kind in ("dog", "cat")]
    (tmp_path / "list.csv").write_text("\n".join(["path,label,domain", *lines]))
    benchmark = load(tmp_path / "list.csv")
    assert {domain.name: domain.names for domain in benchmark} == {
        "a": ("dog/0.png", "cat/0.png"),
        "b": ("dog/1.png", "cat/1.png"),
    }
    assert load_domain(f"{tmp_path}/list.csv#b", labels=False).names == ("dog/1.png", "cat/1.png")


def test_a_benchmark_of_a_table_is_run_from_python_and_its_domains_are_adapted_to(tmp_path):
    data = by_column(24)
    machine = cosda.Machine("cpu", cache=tmp_path / "cache")
    source = cosda.train_source(
        data, "photo", out=tmp_path / "runs", machine=machine, encoder="small", size=16, epochs=1
    )
    adapted = cosda.adapt(source.model, cosda.load_benchmark(data)["sketch"], "bn", machine=machine)
    assert adapted.model.lineage[-1]["domain"] == "sketch"
    assert len(cosda.predict(adapted.model, data.filter(lambda row: row["domain"] == "photo"), machine=machine)) == 12


# --- What the doctor says ---------------------------------------------------------------------------------------------


def test_the_doctor_says_which_column_is_what(tmp_path):
    findings = examine(as_parquet(by_column(), tmp_path))
    assert findings.ok
    assert findings.notes == ["image is the column 'image'; label is the column 'label'; domain is the column 'domain'"]
    assert [(d.name, d.images, d.classes) for d in findings.domains] == [("sketch", 3, 3), ("photo", 3, 3)]


def test_a_domain_of_a_table_may_lack_a_class(tmp_path):
    data = by_column().filter(lambda row: not (row["domain"] == "photo" and row["label"] == 0))
    findings = examine(as_parquet(data, tmp_path))
    assert findings.ok
    assert findings.warnings == ["photo: lacks the classes cat"]


def test_the_doctor_looks_at_the_one_domain_that_is_named(tmp_path):
    path = as_parquet(by_column(), tmp_path)
    assert [domain.name for domain in examine(f"{path}#photo").domains] == ["photo"]
    assert examine(f"{path}#foto").problems == [
        f"{path} has no domain 'foto'. Did you mean 'photo'? It has: sketch, photo."
    ]
    (tmp_path / "broken.parquet").write_bytes(b"nothing")
    (problem,) = examine(tmp_path / "broken.parquet").problems
    assert not problem.endswith("..")


# --- What is wrong ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"text": ["a"]},
            r"no column of images, of paths \(path, image, file, file_name\) or of feature .*text \(texts\)",
        ),
        ({"left": [b"a"], "right": [b"b"]}, "several columns of images or feature vectors: left, right. Name the one"),
        ({"image": [b"a", b"b"], "domain": ["x", None]}, "row 1 has no domain"),
        ({"image": [b"a", b"b"], "label": [0.5, 1.0]}, None),
        ({"image": [b"a"], "label": ["x" * 1001]}, "a name has more than 1000 letters"),
        ({"path": ["a.png"]}, "were not found: its first one is a.png"),
        ({"path": ["a.png", None]}, "row 1 has no path"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(tmp_path, columns, message):
    parquet.write_table(pyarrow.table(columns), tmp_path / "rows.parquet")
    if message is None:  # a column of another type is not one of labels
        assert load_domain(tmp_path / "rows.parquet").labels is None
        return
    with pytest.raises(CosdaError, match=message):
        load_domain(tmp_path / "rows.parquet")


def test_two_columns_of_classes_are_doubtful_only_where_labels_are_wanted():
    kinds = {name: datasets.ClassLabel(names=["x", "y"]) for name in ("fine", "coarse")}
    columns = {"image": [png(0)], "fine": [0], "coarse": [1]}
    data = datasets.Dataset.from_dict(columns, datasets.Features(image=datasets.Image(), **kinds))
    assert load_domain(data, labels=False).labels is None
    with pytest.raises(CosdaError, match=r"several columns of class labels: fine, coarse.*'label'"):
        load_domain(data)
    assert load_domain(data.rename_column("coarse", "label")).labels.tolist() == [1]


def test_streams_and_empty_data_sets_are_refused():
    with pytest.raises(CosdaError, match="streamed has no length"):
        load_domain(made().to_iterable_dataset())
    with pytest.raises(CosdaError, match="empty"):
        load_domain(made().select([]))
    with pytest.raises(CosdaError, match="a list is no benchmark"):
        load([1, 2])


def test_a_missing_file_of_several_is_noticed(tmp_path):
    folder = as_shards(made(), tmp_path)
    (folder / "data" / "train-00001-of-00002.parquet").unlink()
    with pytest.raises(CosdaError, match="has 1 of the 2 files of the split train"):
        load_domain(folder)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "text"])
def test_a_damaged_file_is_an_error_in_one_line(tmp_path, damage):
    path = as_parquet(made(), tmp_path)
    content = path.read_bytes()
    broken = {"cut": content[:-9], "flipped": content[:-30] + b"\xff" * 22 + content[-8:], "empty": b"", "text": b"hi"}
    path.write_bytes(broken[damage])
    with pytest.raises(CosdaError, match=r"rows\.parquet cannot be read as a parquet file: ") as caught:
        load_domain(path)
    assert "\n" not in str(caught.value)
    assert examine(path).problems


def test_no_damage_of_the_sizes_that_a_file_states_ends_the_process(tmp_path):
    """Pyarrow ends it where the statistics of a column of lists are damaged, unless the column was read before."""
    path = tmp_path / "rows.parquet"
    table = pyarrow.table({"features": [[1.0, 2.0]] * 5, "label": list("ababa")})
    parquet.write_table(table, path, store_schema=False)
    good = path.read_bytes()
    footer = int.from_bytes(good[-8:-4], "little")
    read = 0
    for place in range(len(good) - 8 - footer, len(good) - 8):
        path.write_bytes(good[:place] + bytes([good[place] ^ 16]) + good[place + 1 :])
        with suppress(CosdaError):  # nothing else may be raised
            read += len(load_domain(path)) > 0
    assert 0 < read < footer


def test_a_damaged_saved_folder_is_an_error(tmp_path):
    folder = saved(made(), tmp_path)
    (folder / "state.json").write_text('{"_data_files": [{"filename": "../../secret.arrow"}]}')
    with pytest.raises(CosdaError, match="leads out of the data folder"):
        load_domain(folder)
    (folder / "state.json").write_text("{}")
    with pytest.raises(CosdaError, match="cannot be read as a folder that save_to_disk wrote"):
        load_domain(folder)


# --- Limits -----------------------------------------------------------------------------------------------------------


def write_repeated(path: Path, content: bytes, count: int) -> Path:
    """A file in which one image is stored once and stands in many rows."""
    array = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * count, pyarrow.int32()), pyarrow.array([content]))
    parquet.write_table(pyarrow.table({"image": array}), path)
    return path


def test_an_image_that_stands_in_many_rows_is_in_memory_once(tmp_path):
    path = write_repeated(tmp_path / "rows.parquet", np.random.default_rng(0).bytes(2_000_000), 4000)  # 8 GB
    before = pyarrow.total_allocated_bytes()
    domain = load_domain(path)
    assert len(fetch(domain.items, 3999)) == 2_000_000
    assert pyarrow.total_allocated_bytes() - before < 20_000_000


def test_what_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("COSDA_MAX_UNPACKED_MIB", "1")
    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table({"features": [[0.0] * 300_000]}), path)
    with pytest.raises(CosdaError, match=r"rows\.parquet: its .* unpack to .*COSDA_MAX_UNPACKED_MIB"):
        load_domain(path)
    parquet.write_table(pyarrow.table({"image": [bytes(3_000_000)]}), path, compression="zstd")
    with pytest.raises(CosdaError, match=r"its .* unpack to"):
        fetch(load_domain(path).items, 0)


def test_more_rows_than_bytes_are_refused(tmp_path):
    array = pyarrow.nulls(1_000_000, pyarrow.binary())
    parquet.write_table(pyarrow.table({"image": array}), tmp_path / "rows.parquet")
    with pytest.raises(CosdaError, match=r"says that it has 1,000,000 rows, in 2,.* bytes"):
        load_domain(tmp_path / "rows.parquet")


def test_an_image_of_too_many_bytes_or_classes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("COSDA_MAX_MEGAPIXELS", "1")
    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table({"image": [bytes(5_000_000)], "label": [2**60]}), path, compression="none")
    with pytest.raises(CosdaError, match="classes, and the limit is"):
        load_domain(path)
    with pytest.raises(Unreadable, match="limit"):
        fetch(load_domain(path, labels=False).items, 0)


def test_a_link_in_a_saved_folder_does_not_lead_out(tmp_path):
    folder = saved(made(), tmp_path)
    [rows_file] = folder.glob("*.arrow")
    rows_file.rename(tmp_path / "elsewhere.arrow")
    rows_file.symlink_to(tmp_path / "elsewhere.arrow")
    with pytest.raises(CosdaError, match="leads out of the data folder"):
        load_domain(folder)
    assert len(load_domain(folder, follow_links=True)) == 6


def test_without_datasets_one_line_says_what_to_install(tmp_path, monkeypatch):
    path = as_parquet(made(), tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(CosdaError, match=r"pip install 'cosda\[datasets\]'"):
        load_domain(path)
