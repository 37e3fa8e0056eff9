"""A model folder becomes a file that runs without cosda; of a domain bank, if wanted, a folder of such files.

A folder holds the router, the experts, and how they belong together:

    manifest.json  router.onnx  expert-0.onnx  expert-1.onnx  ...
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cosda import __version__
from cosda.data.inputs import DataLike
from cosda.data.views import central_box
from cosda.deploy import FORMATS, Format
from cosda.deploy.format import Array, Description, Run
from cosda.deploy.graph import Graph, make_graph
from cosda.deploy.trial import TOLERANCE, Trial, images_for_trial, try_out
from cosda.errors import CosdaError
from cosda.files import check_file, check_folder, read_json, real_path, write_atomically
from cosda.models.artifact import Model
from cosda.models.encoders.weights import first_line
from cosda.models.experts import DomainBank
from cosda.models.network import Network
from cosda.run.machine import Machine
from cosda.run.prepare import MARGIN
from cosda.watch import Watcher

FORMAT = 1
MANIFEST = "manifest.json"
EXPERTS = ("together", "separate")
RULE = "probabilities of an image = sum over experts of its share times the expert's probabilities; share 0: leave out"


@dataclass(frozen=True)
class Exported:
    """What was written, and how it did on trial."""

    path: Path
    format: str
    bytes: int
    images: int  # on which it was run
    difference: float  # of a probability from the model's, at most
    untried: tuple[str, ...]  # experts of a domain bank that none of these images reached


def export(
    model: Model,
    to: Path,
    format: str | None,
    domain: str | None,
    experts: str,
    verify: DataLike | None,
    overwrite: bool,
    machine: Machine,
    watcher: Watcher | None,
) -> Exported:
    """`cosda.export`."""
    model.check_module()
    network = model.network.for_domain(domain)
    if experts not in EXPERTS:
        raise CosdaError(f"--experts is {' or '.join(EXPERTS)}, not '{experts}'.")
    apart = experts == "separate"
    if apart and not isinstance(network, DomainBank):
        raise CosdaError(
            "--experts separate writes router and experts of a domain bank apart, but here nothing is routed: the "
            "model is no domain bank, or --domain names one expert. Leave it out."
        )
    name = _format_of(to, format, apart)
    kind = FORMATS.find(name)
    kind.check()
    _check_free(to, overwrite, apart)
    with images_for_trial(model, verify, machine, watcher) as items:
        said = _describe(model, network, domain)
        try:
            graph = make_graph(model, network)
            files = _write_apart(kind, graph, said) if apart else {"": _write(kind, graph, said)}
        except CosdaError:
            raise
        except Exception as error:  # what an exporter raises of a network that it cannot follow
            other = ", ".join(other for other in FORMATS if other != name)
            raise CosdaError(
                f"the network cannot be written as {name}: {first_line(error)}. Try another --format ({other})."
            ) from error
        run = _open_apart(kind, files) if apart else kind.open(files[""])
        trial = try_out(network, run, items, model.preprocessing)
    _check_passed(trial, name)
    write_atomically(to, (lambda folder: _fill(folder, files)) if apart else files[""])
    size = sum(map(len, files.values()))
    return Exported(real_path(to), name, size, trial.images, trial.difference, trial.untried)


def _format_of(path: Path, name: str | None, apart: bool) -> str:
    """The format that is asked for, by name or by the ending of the file."""
    by_ending = {kind.ending: known for known, kind in FORMATS.items()}
    meant = by_ending.get(path.suffix)
    if apart and meant:
        raise CosdaError(f"--experts separate writes a folder, but {path} has the ending of a file.")
    if name is None:
        if apart:
            return next(iter(FORMATS))
        if meant is None:
            endings = ", ".join(f"{ending} ({known})" for ending, known in by_ending.items())
            raise CosdaError(f"the ending of {path} names no format. Known: {endings}. Or say --format NAME.")
        return meant
    FORMATS.find(name)
    if meant not in (None, name):
        raise CosdaError(f"{path} has the ending of the format {meant}, but --format says {name}.")
    return name


def _check_free(path: Path, overwrite: bool, apart: bool) -> None:
    """Refuse to write where that cannot be done, or over anything but such a file or folder that may be replaced."""
    check_folder(real_path(path).parent) if apart or path.is_dir() else check_file(path)
    if not path.exists() or (apart and path.is_dir() and not any(path.iterdir())):
        return
    if apart:
        listed = _listed(path)
        if not listed or {entry.name for entry in path.iterdir()} - listed:
            raise CosdaError(f"{path} exists and holds other things than an exported model; choose another path.")
    elif path.is_dir():
        raise CosdaError(f"{path} is a folder, but one file is to be written; choose another path.")
    if not overwrite:
        raise CosdaError(f"{path} exists already; choose another path, or say --overwrite (in Python overwrite=True).")


def _listed(path: Path) -> set[str]:
    """The files of an exported folder by its manifest; none where it has none."""
    try:
        manifest = read_json(path / MANIFEST)
        return {MANIFEST, manifest["router"], *(expert["file"] for expert in manifest["experts"])}
    except (CosdaError, KeyError, TypeError):
        return set()


def _check_passed(trial: Trial, name: str) -> None:
    if not trial.passed:
        raise CosdaError(
            f"the exported model does not say what the model says: on {trial.images} images {trial.classes} classes "
            f"differ, and probabilities by up to {trial.difference:.2g}, where {TOLERANCE:g} is borne. Nothing was "
            f"written. Try another --format than {name}."
        )


# --- What a file says of itself ---------------------------------------------------------------------------------------


def _describe(model: Model, network: Network, domain: str | None) -> Description:
    """For whoever opens the file: what goes in, what comes out, and whose it is."""
    said: Description = {
        "format": FORMAT,
        "cosda": __version__,
        "model": model.key,
        "classes": list(model.classes),
    }
    if model.preprocessing.of_images:
        stored = round(model.preprocessing.size * MARGIN)
        top, left, tall, wide = central_box(stored, stored, model.preprocessing)
        said["preprocessing"] = {
            "colours": "RGB",
            "filter": "bilinear, antialiased",
            "resize": [stored, stored],
            "crop": [left, top, left + wide, top + tall],
            "size": [model.preprocessing.size, model.preprocessing.size],
        }
    if isinstance(network, DomainBank):
        said["domains"] = list(network.known)
    elif domain is not None:
        said["domain"] = domain
    return said


def _with_ends(said: Description, graph: Graph) -> Description:
    """The same with the input and the outputs of one file."""
    shape = ["batch", *graph.example.shape[1:]]
    kind = str(graph.example.dtype).removeprefix("torch.")
    return said | {"input": {"name": graph.input, "type": kind, "shape": shape}, "outputs": list(graph.outputs)}


# --- One file, or one for each part -----------------------------------------------------------------------------------


def _write(kind: Format, graph: Graph, said: Description) -> bytes:
    return kind.write(graph, _with_ends(said, graph))


def _write_apart(kind: Format, graph: Graph, said: Description) -> dict[str, bytes]:
    """The content of each file of the folder."""
    router, *experts = graph.parts
    names = [f"expert-{number}{kind.ending}" for number in range(len(experts))]
    files = {f"router{kind.ending}": _write(kind, router, said)}
    listed = []
    for name, domain, expert in zip(names, said["domains"], experts, strict=True):
        own = {key: value for key, value in said.items() if key != "domains"} | {"domain": domain}
        if expert.input != router.input:
            own.pop("preprocessing", None)
        files[name] = _write(kind, expert, own)
        listed.append({"domain": domain, "file": name, "input": expert.input})
    manifest = _with_ends(said, router) | {"router": next(iter(files)), "experts": listed, "rule": RULE}
    text = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
    return {MANIFEST: text.encode(), **files}


def _open_apart(kind: Format, files: Mapping[str, bytes]) -> Run:
    """Such a folder, ready to run by its rule."""
    manifest = json.loads(files[MANIFEST])
    router = kind.open(files[manifest["router"]])
    inputs: Sequence[str] = [expert["input"] for expert in manifest["experts"]]
    experts = [kind.open(files[expert["file"]]) for expert in manifest["experts"]]

    def run(images: Array) -> dict[str, Array]:
        said = {manifest["input"]["name"]: images, **router(images)}
        total = np.zeros((len(images), len(manifest["classes"])), np.float32)
        for place, (expert, name) in enumerate(zip(experts, inputs, strict=True)):
            rows = said["shares"][:, place].nonzero()[0]
            if len(rows):
                total[rows] += said["shares"][rows, place, None] * expert(said[name][rows])["probabilities"]
        return {**said, "probabilities": total}

    return run


def _fill(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
