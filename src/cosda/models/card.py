"""The model card: what a model is, what it knows and how it came about, for whoever finds its folder.

It is the `README.md` of the folder, with the front matter that the Hugging Face hub reads. It follows from the model
alone: equal models give equal bytes, and nothing in it tells on which machine it was made.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from cosda.markdown import code, plain, table
from cosda.models.architecture import WRAPPED
from cosda.models.builders import function_for
from cosda.models.experts import SOURCE, DomainBank
from cosda.records.lineage import Step, read_lineage

if TYPE_CHECKING:
    from cosda.models.artifact import Model

LISTED = 20  # classes that are named
EMPTY = "–"


def card(model: Model) -> str:
    """The card as Markdown.

    Raises:
        CosdaError: the model's lineage is not as cosda writes it.
    """
    steps = read_lineage(model.lineage, "the model's lineage cannot be read")
    parts = [
        _front_matter(model),
        [f"# A classifier of {len(model.classes)} classes"],
        [
            "It was made with cosda, which adapts a trained classifier to the images of new places, without labels and "
            "without the old images."
        ],
        _what_it_is(model),
        ["## What it knows", "", *_domains(model)],
        _chain(steps),
        _last_verdict(steps),
        ["## Limits", "", *_limits(model, steps)],
        ["## How to use it", "", *_use(model)],
    ]
    return "\n\n".join("\n".join(lines) for lines in map(list, parts) if lines) + "\n"


def _front_matter(model: Model) -> Iterator[str]:
    task = "image-classification" if model.preprocessing.of_images else "tabular-classification"
    tags = ("cosda", task, "domain-adaptation", "source-free-domain-adaptation", "continual-learning")
    yield from ("---", "library_name: cosda", f"pipeline_tag: {task}", "tags:", *(f"- {tag}" for tag in tags), "---")


def _what_it_is(model: Model) -> Iterator[str]:
    more = f" and {len(model.classes) - LISTED} more in `model.json`" if len(model.classes) > LISTED else ""
    yield f"* **Classes**: {', '.join(map(plain, model.classes[:LISTED]))}{more}."
    shape = model.architecture
    weights = sum(parameter.numel() for parameter in model.network.base.parameters())
    own = f"built by {code(shape.builder)}" if shape.builder else "of its owner's code"
    encoder = own if shape.encoder == WRAPPED else code(shape.encoder)
    yield f"* **Network**: encoder {encoder}, {weights:,} weights."
    seen = model.preprocessing
    if seen.of_images:
        mean, std = (", ".join(f"{value:g}" for value in values) for values in (seen.mean, seen.std))
        yield (
            f"* **Input**: RGB images, resized to {seen.size} × {seen.size} pixels without keeping their aspect; "
            f"values from 0 to 1, minus the mean ({mean}), divided by the deviation ({std})."
        )
    else:
        yield f"* **Input**: feature vectors of {model.architecture.input_width} numbers."


def _domains(model: Model) -> Iterator[str]:
    """What the base was trained on, and each domain that has an expert or a mask."""
    base = model.network.base.profile
    rows = [(SOURCE if base is None else base.name, None if base is None else base.images, "the network itself")]
    if isinstance(model.network, DomainBank):
        rows += [(one.domain, one.profile.images, f"an expert of {one.bits} bits") for one in model.network.experts]
    rows += [(name, None, "a mask") for name in model.architecture.domains]
    header = ("domain", "answered by", "images of its profile")
    yield from table(header, [(plain(name), how, _count(images)) for name, images, how in rows], names=2)
    known = None if base is None else base.calibration
    if base is not None and known is not None:
        apart = " that it was not trained on" if known.held_out else ""
        yield (
            f"\nBefore any adaptation, it classified {known.accuracy:.1%} of {known.images:,} labelled images of "
            f"{plain(base.name)}{apart} correctly."
        )


def _count(images: int | None) -> str:
    """0 stands for a profile that was made of BatchNorm statistics."""
    return EMPTY if images is None else f"{images:,}" if images else "none, BatchNorm statistics"


def _chain(steps: Iterable[Step]) -> Iterator[str]:
    rows = [
        (
            *(plain(text or EMPTY) for text in (step.date, step.step, step.domain, step.made_by, step.verdict)),
            EMPTY if step.images is None else f"{step.images:,}",
            step.change or EMPTY,
        )
        for step in steps
    ]
    if rows:
        yield from ("## How it came about", "")
        header = ("date", "step", "domain", "made by", "verdict", "images", "estimated accuracy")
        yield from table(header, rows, names=5)


def _last_verdict(steps: Iterable[Step]) -> Iterator[str]:
    judged = [step for step in steps if step.verdict is not None]
    if not judged:
        return
    last = judged[-1]
    yield from ("## The last verdict", "", f"The adaptation to {plain(last.domain or EMPTY)} was **{last.verdict}**.")
    for name, estimate in (("before", last.before), ("after", last.after)):
        if estimate is not None:
            yield f"Estimated accuracy {name}: {estimate.text}."
    if last.reasons:
        yield from ("", *(f"* {plain(reason)}" for reason in last.reasons))


def _limits(model: Model, steps: Iterable[Step]) -> Iterator[str]:
    if any(step.after is not None for step in steps):
        yield (
            "* Estimated accuracies are estimates: they were made without labels. In one of ten cases the true "
            "accuracy lies outside the interval."
        )
    yield "* Adaptation sees no labels. What the model is confident of and wrong about, it may keep."
    if isinstance(model.network, DomainBank):
        yield "* An image that resembles none of the domains is answered by the base for one half."
    else:
        yield "* Nothing here says how good it is on images from other places."
    yield "* `cosda evaluate` measures it on labelled images; a few hundred of them say more than this page."


def _use(model: Model) -> Iterator[str]:
    """Five lines of Python, and the line for the shell."""
    function = function_for(model.architecture)
    build = f', build="{function}"' if function else ""
    known = f", domain={json.dumps(model.architecture.domains[-1])}" if model.network.needs_domain else ""
    data = "photos" if model.preprocessing.of_images else "features.npz"
    yield from (
        "```python",
        "import cosda",
        "",
        f'model = cosda.load("this-folder"{build})',
        f'for one in cosda.predict(model, "{data}"{known}):',
        "    print(one.image, one.class_name, one.probability)",
        "```",
        "",
        "From the shell:",
        "",
        f"    cosda predict this-folder {data} --output classes.csv"
        + (f" --build {function}" if function else "")
        + (" --domain DOMAIN" if known else ""),
    )
    if build:
        yield from ("", "The function is code of the model's owner that builds a network of the same shape.")
