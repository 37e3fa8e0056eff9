"""Stored features of source and targets as points in the plane (t-SNE), the same ones each time."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cosda.records.arrays import read_arrays
from cosda.records.run import Run
from cosda.report.figures.base import Figure, FigureKind, Panel, shown_run
from cosda.report.figures.style import SOURCE_COLOUR, TARGET_COLOUR, Palette, Plot, label
from cosda.report.model.groups import Section

# More points or steps would take long (a report may hold a hundred plots) and show little more.
MOST_POINTS = 100  # of each domain
STEPS = 500
FEWEST_POINTS = 8
TARGET_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x", "star")


def features(section: Section, colours: Palette) -> Figure | None:
    """The source model's features once, and those after the last stage of each method."""
    before: dict[str, tuple[Embedding, list[str]]] = {}
    after: list[tuple[str, Embedding]] = []
    notes: list[str] = []
    for group in section.groups:
        run = shown_run(group)
        start, end = read_features(run, 0), read_features(run, len(section.domains) - 1)
        if isinstance(start, Embedding):
            before.setdefault(start.digest, (start, []))[1].append(group.name)
        else:
            notes.append(f"{group.name}, before: {start}.")
        if isinstance(end, Embedding):
            after.append((group.name, end))
        else:
            notes.append(f"{group.name}, after: {end}.")
    titled = [
        ("Before: source model" + (f" of {', '.join(names)}" if len(before) > 1 else ""), embedding, "")
        for embedding, names in before.values()
    ] + [(f"After: {name}", embedding, name) for name, embedding in after]
    known: dict[str, Projection] = {}
    for _, embedding, _ in titled:
        if embedding.digest not in known:
            known[embedding.digest] = project(embedding)
    return Figure(
        "Features of source and targets",
        "t-SNE of the network's features before adaptation and after the last stage; the lowest seed of each "
        "method. Clusters that the source (red) and the targets (blue) share are aligned classes; "
        "distances between clusters have no meaning.",
        tuple(
            Panel(title, feature_map(known[embedding.digest], section.domains), group=name)
            for title, embedding, name in titled
        ),
        size="small",
        # A report of runs that store no features at all does not need a list of them.
        notes=tuple(notes) if titled or any("damaged" in note for note in notes) else (),
    )


@dataclass(frozen=True)
class Embedding:
    """Some of the stored features, with the domain of each."""

    features: np.ndarray  # (n, d)
    domains: tuple[int, ...]  # (n,)

    @property
    def digest(self) -> str:
        """Equal for equal features, so that no plot is computed or shown twice."""
        data = np.ascontiguousarray(self.features).tobytes()
        return hashlib.blake2b(data + repr(self.domains).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Projection:
    """Points in the plane with the domain of each."""

    points: tuple[tuple[float, float], ...]
    domains: tuple[int, ...]


def read_features(run: Run, stage: int) -> Embedding | str:
    """Features stored after a stage, or the reason why there are none."""
    path = run.path / "embedding" / f"stage-{stage}.npz"
    # The records decide: a run shown under another selection rule has no features of the model that the rule chooses.
    if not any(run.of("embedding", stage=stage)) or not path.is_file():
        return "no features were stored"
    try:
        stored = read_arrays(path, ("features", "domain"))
        features, owners = stored["features"], stored["domain"]
        if features.ndim != 2 or features.shape[1] < 2 or owners.shape != features.shape[:1]:
            raise ValueError("its arrays do not fit each other")
        if owners.size and not (owners.min() >= 0 and owners.max() < len(run.domains)):
            raise ValueError("it names domains that the chain does not have")
    except (KeyError, ValueError) as error:
        return f"{path.name} is damaged: {error}"
    if len(np.unique(features, axis=0)) < FEWEST_POINTS:
        return f"{path.name} holds fewer than {FEWEST_POINTS} different points"
    # Evenly spaced, so that each domain keeps its share.
    kept = np.unique(np.linspace(0, len(features) - 1, MOST_POINTS * len(run.domains)).astype(int))
    return Embedding(features[kept].astype(np.float64), tuple(int(d) for d in owners[kept]))


def project(embedding: Embedding) -> Projection:
    """t-SNE from a fixed start, on one thread: several would add in any order, and t-SNE amplifies it."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    perplexity = min(30.0, (len(embedding.domains) - 1) / 3)
    with threadpool_limits(limits=1):
        tsne = TSNE(init="pca", perplexity=perplexity, max_iter=STEPS, random_state=0, n_jobs=1)
        plane = tsne.fit_transform(embedding.features)
    return Projection(tuple((round(float(x), 2), round(float(y), 2)) for x, y in plane), embedding.domains)


def feature_map(projection: Projection, domains: Sequence[str]) -> Plot:
    """Points of all domains: the source red and the targets blue as in the paper, a symbol for each target."""
    traces = []
    # The source is drawn last: it has the fewest points wherever there are several targets.
    for domain in sorted(set(projection.domains), key=lambda domain: (domain == 0, domain)):
        chosen = [i for i, other in enumerate(projection.domains) if other == domain]
        symbol = "circle" if domain == 0 else TARGET_SYMBOLS[(domain - 1) % len(TARGET_SYMBOLS)]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": label(domains[domain]) + (" (source)" if domain == 0 else ""),
                "legendrank": domain + 1,
                "x": [projection.points[i][0] for i in chosen],
                "y": [projection.points[i][1] for i in chosen],
                "marker": {
                    "color": SOURCE_COLOUR if domain == 0 else TARGET_COLOUR,
                    "symbol": symbol,
                    "size": 5,
                    "opacity": 0.75,
                },
                "hoverinfo": "name",
            }
        )
    hidden = {"showticklabels": False, "showgrid": False, "zeroline": False, "showline": False, "ticks": ""}
    return {
        "data": traces,
        "layout": {
            "height": 320,
            "margin": {"l": 4, "r": 4, "t": 4, "b": 4},
            "showlegend": True,
            "legend": {"orientation": "h", "y": -0.02, "yanchor": "top"},
            "xaxis": hidden,
            "yaxis": hidden,
        },
    }


FEATURES = FigureKind("t-SNE of the features before and after adaptation", features)
