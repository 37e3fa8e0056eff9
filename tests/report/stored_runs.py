"""Run folders made by hand: numbers small enough to check on paper, names that try to break out."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cosda.files import write_json
from cosda.records.verdict import FOLDER, Checked, Counted, Estimate, JudgedImage, Said, Verdict

WriteRun = Callable[..., Path]
Correct = int | list[int | None]  # out of 100 images of two classes; or of each class out of 20, None: no images
Epoch = tuple[int, int, dict[str, float]]  # correct on the target and on the source, and the validators' scores

CHAIN = ["print", "colour", "hand"]
SCRIPT = "<script>alert(1)</script>"
AMPERSAND = 'a&b"c'
IMAGE = "<img src=x onerror=alert(2)>"

# Correct out of 100 images, a line for each stage: [print, colour, hand].
SOURCE = {
    0: [[98, 60, 50], [98, 60, 50], [98, 60, 50]],
    1: [[96, 62, 52], [96, 62, 52], [96, 62, 52]],
}
BN = {
    0: [[98, 60, 50], [90, 70, 51], [80, 66, 60]],
    1: [[96, 62, 52], [88, 72, 53], [78, 64, 64]],
}
COSDA = {
    0: [[98, 60, 50], [97, 80, 56], [96, 79, 74]],
    1: [[96, 62, 52], [96, 84, 60], [95, 85, 76]],
    2: [[97, 61, 51], [97, 82, 58]],  # interrupted in its last stage
}
NO_DUAL_SPEED = {
    0: [[98, 60, 50], [85, 78, 54], [62, 70, 72]],
    1: [[96, 62, 52], [83, 80, 56], [66, 68, 74]],
}
BANK = {
    0: [[98, 60, 50], [98, 80, 48], [97, 81, 74]],
    1: [[96, 62, 52], [96, 84, 50], [96, 83, 78]],
}
BANK_EXPERTS = {0: [80, 76], 1: [84, 78]}  # colour and hand
# A line for each stage, for each domain: images sent to each expert, mixed and unknown.
BANK_ROUTING = {
    0: [
        [([98, 2], 4, 0), ([1, 99], 2, 0), ([70, 30], 60, 95)],
        [([90, 8, 2], 12, 1), ([3, 97, 0], 6, 0), ([0, 1, 99], 0, 2)],
    ],
    1: [
        [([100, 0], 2, 0), ([3, 97], 2, 0), ([80, 20], 50, 91)],
        [([94, 6, 0], 10, 1), ([5, 95, 0], 8, 0), ([0, 0, 100], 0, 0)],
    ],
}
HOSTILE = {0: [[90, 40], [70, 65]]}

# Benchmarks of the paper, with made-up numbers of ours.
OFFICE = ("amazon", "dslr", "webcam")
# Of each seed: correct on the target after adapting and on the source, for the pairs a-d, a-w, d-a, d-w, w-a, w-d.
OFFICE_RUNS: dict[str, dict[int, list[tuple[int, int] | None]]] = {
    "source": {
        0: [(78, 95), (72, 95), (57, 97), (94, 97), (61, 98), (99, 98)],
        1: [(77, 94), (74, 94), (56, 98), (95, 98), (60, 97), (98, 97)],
    },
    "nrc": {
        0: [(92, 85), (91, 86), (75, 86), (98, 97), (74, 90), (100, 98)],
        1: [(93, 84), (92, 85), (74, 88), (97, 98), None, (99, 97)],  # None: interrupted
    },
    "cosda": {
        0: [(87, 94), (89, 93), (74, 93), (98, 97), (73, 96), (100, 98)],
        1: [(86, 92), (90, 92), (75, 95), (99, 98), (75, 95), (99, 97)],
    },
    "cosda (no-mi)": {
        0: [(84, 94), (86, 94), (70, 97), (97, 97), (68, 98), (99, 98)],
        1: [(85, 93), (85, 93), (71, 97), (98, 98), (69, 97), (98, 97)],
    },
    "cosda+nrc": {0: [(90, 93), (91, 92), (75, 95), (98, 97), (74, 94)]},  # nobody has run webcam to dslr
}
OFFICE_PAIRS = [(a, b) for a in OFFICE for b in OFFICE if a != b]
OFFICE_SOURCE = {  # correct on the source before adapting, by seed
    0: {"amazon": 95, "dslr": 97, "webcam": 98},
    1: {"amazon": 94, "dslr": 98, "webcam": 97},
}

VISDA_CLASSES = ["plane", "bcycl", "bus"]
VISDA_RUNS: dict[str, dict[int, list[list[Correct]]]] = {  # stage, domain, class; no bus is in the target
    "source": {0: [[[19, 18, 20], [13, 3, None]]] * 2, 1: [[[20, 18, 19], [12, 4, None]]] * 2},
    "cosda": {
        0: [[[19, 18, 20], [13, 3, None]], [[19, 18, 15], [19, 17, None]]],
        1: [[[20, 18, 19], [12, 4, None]], [[19, 18, 14], [18, 18, None]]],
    },
    "cosda (no-teacher)": {0: [[[19, 18, 20], [13, 3, None]], [[18, 1, 3], [18, 15, None]]]},
}
HOME_CHAIN = ["Art", "Clipart", "Product", "Real World"]
HOME_COSDA = [[95, 50, 65, 75], [93, 58, 66, 76], [92, 57, 76, 77], [92, 56, 75, 80]]


def write_paper_runs(runs: Path) -> Path:
    """All pairs of Office-31 with scores after each epoch, VisDA class by class, a chain of Office-Home."""
    network = {"network": {"encoder": "lite0", "freeze_encoder": True}}
    for label, seeds in OFFICE_RUNS.items():
        for seed, found in seeds.items():
            for (source, target), numbers in zip(OFFICE_PAIRS, found, strict=False):
                before = [
                    OFFICE_SOURCE[seed][source],
                    OFFICE_RUNS["source"][seed][OFFICE_PAIRS.index((source, target))][0],
                ]  # type: ignore[index]
                name = f"office31-{label.replace(' ', '-')}-{source[0]}2{target[0]}-s{seed}"
                write_run(
                    runs / name,
                    [before] + ([[numbers[1], numbers[0]]] if numbers else []),
                    label=label,
                    seed=seed,
                    domains=[source, target],
                    finished=numbers is not None,
                    epochs=office_epochs(*numbers, place=seed) if numbers and label != "source" else (),
                    benchmark="office31",
                    protocol="transductive",
                    fingerprint=f"{source[0]}{target[0]}77",
                    settings=network,
                )
    for label, of_seed in VISDA_RUNS.items():
        for seed, matrix in of_seed.items():
            write_run(
                runs / f"visda-{label.replace(' ', '-')}-s{seed}",
                matrix,
                label=label,
                seed=seed,
                domains=["synthetic", "real"],
                benchmark="visda",
                headline="per-class",
                classes=VISDA_CLASSES,
                settings=network,
            )
    place = {"benchmark": "officehome", "settings": network, "protocol": "transductive"}
    write_run(runs / "officehome-cosda-s0", HOME_COSDA, label="cosda", domains=HOME_CHAIN, **place)
    return runs


def office_epochs(target: int, source: int, place: int = 0) -> list[Epoch]:
    """Three epochs, the last as given; the second is one point better on the target, which only `snd` knows.

    `entropy` is the wrong way round, `agreement` never changes.
    """
    best = min(100, target + 1)
    accuracies = [(target - 3, min(100, source + 1)), (best, source), (target, source)]
    scores = [(0.1, 0.3, 0.5, 0.9), (0.3, 0.9, 0.4 + place, 0.5), (0.4, 0.6, 0.6 + place, 0.7)]
    names = ("information", "snd", "nuclear_norm", "entropy")
    return [
        (t, s, dict(zip(names, row, strict=True)) | {"agreement": 0.8})
        for (t, s), row in zip(accuracies, scores, strict=True)
    ]


def write_run(
    folder: Path,
    matrix: list[list[Correct]],
    *,
    label: str,
    seed: int = 0,
    domains: list[str] = CHAIN,
    finished: bool = True,
    features: int = 0,
    epochs: Sequence[Epoch] = (),
    **config: Any,
) -> Path:
    """A run folder as the runner writes it.

    `features` is how many are stored of each domain; `epochs` are those of stage 1, instead of made-up ones.
    """
    method = label.split()[0]
    ablation = label.partition("(")[2].removesuffix(")") or None
    folder.mkdir(parents=True)
    write_json(
        folder / "config.json",
        {
            "kind": "adapt",
            "label": label,
            "benchmark": "digits",
            "fingerprint": "3f9a1c",
            "protocol": "inductive",
            "headline": "top1",
            "domains": domains,
            "classes": ["0", "1"],
            "method": method,
            "variant": "paper" if method == "cosda" else None,
            "ablation": ablation,
            "model": None,
            "seed": seed,
            "select": "last",
            "settings": {
                "data": {"root": "/home/somebody/data", "batch_size": 64},
                "adapt": {"lr": 0.002, "epochs": 3},
                "method": {"temperature": 0.07} if method == "cosda" else {},
            },
            "origins": {"adapt.lr": "preset digits", "data.root": "--data"},
            **config,
        },
    )
    write_json(folder / "environment.json", {"cosda": "0.1.0", "python": "3.11.7", "machine": {"cores": 2}})
    records: list[dict[str, Any]] = []
    for stage, line in enumerate(matrix):
        records += _epochs(epochs, domains) if stage == 1 else []
        made_up = 3 if stage and method != "source" and not epochs and isinstance(line[stage], int) else 0
        for epoch in range(made_up):
            terms = {"consistency": 1.0 / (epoch + stage), "information": -0.2 * epoch}
            records.append({"kind": "loss", "stage": stage, "epoch": epoch, "steps": 4, "terms": terms})
            records.append(_accuracy(stage, epoch, domains[stage], line[stage] - 2 + epoch))
        if stage and not (stage == 1 and epochs):
            last = made_up - 1 if made_up else None
            records.append({"kind": "chosen", "stage": stage, "rule": "last", "epoch": last})
        records += [_accuracy(stage, None, d, c) for d, c in zip(domains, line, strict=True)]
        if features and stage in (0, len(domains) - 1):
            _write_features(folder, stage, len(domains), features, shift=3.0 / (1 + stage))
            records.append({"kind": "embedding", "stage": stage, "file": f"embedding/stage-{stage}.npz"})
    if not finished:
        losses = {"kind": "loss", "stage": len(matrix), "epoch": 0, "steps": 4, "terms": {"consistency": 0.5}}
        records.append(losses)
    lines = "".join(json.dumps(record) + "\n" for record in records)
    half_a_line = "" if finished else '{"kind":"accu'  # a process that was killed
    (folder / "records.jsonl").write_text(lines + half_a_line, encoding="utf-8")
    if finished:
        write_json(folder / "done.json", {"stages": len(matrix)})
    return folder


def _epochs(epochs: Sequence[Epoch], domains: list[str]) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    for epoch, (target, source, scores) in enumerate(epochs):
        records.append({"kind": "loss", "stage": 1, "epoch": epoch, "steps": 4, "terms": {"consistency": 0.5}})
        records += [_accuracy(1, epoch, domains[1], target), _accuracy(1, epoch, domains[0], source)]
        records.append({"kind": "validation", "stage": 1, "epoch": epoch, "images": 100, "scores": scores})
    if epochs:
        records.append({"kind": "chosen", "stage": 1, "rule": "last", "epoch": len(epochs) - 1})
    return records


def _accuracy(stage: int, epoch: int | None, domain: str, correct: Correct) -> dict[str, Any]:
    if isinstance(correct, list):
        counts = {"images": [20 * (c is not None) for c in correct], "correct": [c or 0 for c in correct]}
    else:
        counts = {"images": [50, 50], "correct": [min(50, correct), max(0, correct - 50)]}
    return {"kind": "accuracy", "stage": stage, "epoch": epoch, "domain": domain, "split": "test", **counts}


def write_bank_run(folder: Path, seed: int = 0, **config: Any) -> Path:
    """The run of a domain bank along CHAIN."""
    write_run(folder, BANK[seed], label="aad (carry bank)", seed=seed, ablation=None, **config)
    records = []
    for stage, of_stage in enumerate(BANK_ROUTING[seed], start=1):
        for domain, (sent, mixed, unknown) in zip(CHAIN, of_stage, strict=True):
            facts = {"known": CHAIN[: stage + 1], "sent": sent, "mixed": mixed, "unknown": unknown}
            facts["crossfitted"] = config.get("protocol") == "transductive" and domain in CHAIN[1 : stage + 1]
            records.append({"kind": "routing", "stage": stage, "domain": domain, **facts})
        correct = BANK_EXPERTS[seed][stage - 1]
        records.append({**_accuracy(stage, None, CHAIN[stage], correct), "kind": "expert"})
    add_records(folder, records)
    return folder


def add_records(folder: Path, records: Sequence[dict[str, Any]]) -> None:
    """Write more records."""
    with (folder / "records.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def add_confusions(folder: Path, stage: int, of_domains: Sequence[Any]) -> None:
    """Confusion matrices after a stage, one a domain of the chain."""
    (folder / "confusion").mkdir(exist_ok=True)
    arrays = {f"d{i}": np.array(counts, np.int32) for i, counts in enumerate(of_domains)}
    np.savez_compressed(folder / "confusion" / f"stage-{stage}.npz", allow_pickle=False, **arrays)
    add_records(folder, [{"kind": "confusion", "stage": stage, "file": f"confusion/stage-{stage}.npz"}])


def add_timing(folder: Path, epochs: int, stage: int = 1) -> None:
    """Seconds and memory of the epochs of a stage, the first of which was repeated after a crash."""
    lines = [(0, 9.0), *((epoch, 0.5 + 0.25 * epoch) for epoch in range(epochs))] if epochs else []
    facts = [{"stage": stage, "epoch": e, "seconds": s, "images": 100, "peak_bytes": 3 * 2**20} for e, s in lines]
    (folder / "timing.jsonl").write_text("".join(json.dumps(fact) + "\n" for fact in facts), encoding="utf-8")


def _write_features(folder: Path, stage: int, domains: int, each: int, shift: float) -> None:
    """Two classes as two clouds; every further domain lies `shift` away from the one before."""
    random = np.random.default_rng(stage)
    domain = np.repeat(np.arange(domains), each)
    label = np.tile([0, 1], domains * each)[: domains * each]
    centres = np.stack([8.0 * label, shift * domain, *np.zeros((4, len(label)))], axis=1)
    (folder / "embedding").mkdir(exist_ok=True)
    np.savez(
        folder / "embedding" / f"stage-{stage}.npz",
        features=(centres + random.normal(size=centres.shape)).astype(np.float16),
        domain=domain,
        label=label,
    )


# What `cosda adapt` leaves: no labels, a verdict.
SCORES = {"information": [1.0, 1.2], "agreement": [0.9, 0.8]}


def said(accuracy: float, confidence: float, classes: tuple[int, ...], **scores: float) -> Said:
    """What a model says of 20 images, in three classes; two estimators."""
    bins = (*([0] * 12), 5, *([0] * 4), 10, 0, 5)
    estimate = Estimate(accuracy, accuracy - 0.07, accuracy + 0.06, {"threshold": accuracy + 0.02, "views": 0.5})
    return Said(classes, confidence, bins, estimate, scores)


ACCEPTED = Verdict(
    verdict="accepted",
    reasons=("The estimated accuracy rises.", "Little is forgotten."),
    decided_by="estimates",
    domain="hand",
    images=20,
    classes=("0", "1", SCRIPT),
    method="aad",
    select="last",
    before=said(0.61, 0.64, (10, 8, 2), information=0.7, agreement=1.0),
    after=said(0.78, 0.81, (7, 8, 5)),
    changed=0.25,
    agreement={"hand": 0.75, "print": 0.99, "colour": 0.98},
    risk=0.03,
    evidence={"threshold, after": 0.8},
)
REJECTED = replace(
    ACCEPTED,
    verdict="rejected",
    reasons=("The check found harm.",),
    decided_by="check",
    check=Checked(Counted(17, 20, 0.621, 0.968), Counted(12, 20, 0.361, 0.809), 1, 6, 0.125),
)
STOPPED = replace(
    ACCEPTED,
    verdict="rejected",
    reasons=("All images are copies of one.",),
    decided_by="guard",
    before=None,
    after=None,
    changed=None,
    agreement={},
    risk=None,
    evidence={},
)
LOOKED_AT = (
    JudgedImage("new/a.png", "0", 0.41, SCRIPT, 0.82, why="changed", thumbnail="0.jpg"),
    JudgedImage("new/b.png", "1", 0.5, "1", 0.34, why="unsure", thumbnail=None),
)
PICTURE = b"\xff\xd8\xff\xe0 a thumbnail"
EARLIER = [
    {"step": "source", "domain": "print", "date": "2026-01-02"},
    {"step": "adapt", "domain": "colour", "method": "aad", "carry": "bank", "date": "2026-02-03"}
    | {"verdict": {"verdict": "doubtful", "reasons": [], "before": None, "after": None}},
]


def write_adaptation(
    folder: Path,
    verdict: Verdict = ACCEPTED,
    images: Sequence[JudgedImage] = LOOKED_AT,
    bank: bool = True,
) -> Path:
    """The run of one adaptation without labels, with its verdict."""
    name = "aad (carry bank)" if bank else "aad"
    config = {"benchmark": "own", "protocol": "transductive", "classes": list(verdict.classes), "ablation": None}
    write_run(folder, [], label=name, domains=["source", verdict.domain], **config)
    (folder / "records.jsonl").unlink()
    for epoch in (0, 1):
        place = {"stage": 1, "epoch": epoch}
        scores = {score: values[epoch] for score, values in SCORES.items()}
        add_records(folder, [{"kind": "loss", **place, "steps": 4, "terms": {"attraction": -1.0 - epoch}}])
        add_records(folder, [{"kind": "validation", **place, "images": 20, "scores": scores}])
    add_records(folder, [{"kind": "chosen", "stage": 1, "rule": "last", "epoch": 1}])
    if bank:
        facts = {"known": ["print", "colour", "hand"], "sent": [1, 0, 19], "mixed": 2, "unknown": 0}
        add_records(folder, [{"kind": "routing", "stage": 1, "domain": verdict.domain, "crossfitted": True, **facts}])
    this = {"step": "adapt", "domain": verdict.domain, "method": "aad", "carry": "bank", "date": "2026-03-04"}
    for stage, lineage in ((0, EARLIER), (1, [*EARLIER, this])):
        if stage == 0 or verdict.after is not None:
            (folder / "models" / f"stage-{stage}").mkdir(parents=True)
            write_json(folder / "models" / f"stage-{stage}" / "model.json", {"lineage": lineage})
    (folder / FOLDER).mkdir()
    write_json(folder / FOLDER / "verdict.json", verdict.as_json())
    write_json(folder / FOLDER / "images.json", [image.as_json() for image in images])  # type: ignore[arg-type]
    (folder / FOLDER / "0.jpg").write_bytes(PICTURE)
    return folder
