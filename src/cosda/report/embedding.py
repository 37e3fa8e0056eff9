"""Stored features -> points in the plane (t-SNE), the same ones each time."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass

import numpy as np

from cosda.records.run import Run

# More points or steps would take long (a report may hold a hundred images) and show little more.
MOST_POINTS = 100  # of each domain
STEPS = 500
FEWEST_POINTS = 8


@dataclass(frozen=True)
class Embedding:
    """A sample of features with the domain of each."""

    features: np.ndarray  # (n, d)
    domains: tuple[int, ...]  # (n,)

    @property
    def digest(self) -> str:
        """Equal for equal features, so that no image is computed or shown twice."""
        data = np.ascontiguousarray(self.features).tobytes()
        return hashlib.blake2b(data + repr(self.domains).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Projection:
    """Points in the plane with the domain of each."""

    points: tuple[tuple[float, float], ...]
    domains: tuple[int, ...]


def read(run: Run, stage: int) -> Embedding | str:
    """Features stored after a stage, or the reason why there are none."""
    path = run.path / "embedding" / f"stage-{stage}.npz"
    # The records decide: a run seen under another selection rule has no features of the model that the rule chooses.
    if not any(run.of("embedding", stage=stage)) or not path.is_file():
        return "no features were stored"
    try:
        with np.load(path) as stored:  # never unpickles
            features, owners = stored["features"], stored["domain"]
        if features.ndim != 2 or features.shape[1] < 2 or owners.shape != features.shape[:1]:
            raise ValueError("its arrays do not fit each other")
        if not np.isfinite(features).all():
            raise ValueError("its features are not finite")
        if owners.size and not (owners.min() >= 0 and owners.max() < len(run.domains)):
            raise ValueError("it names domains that the chain does not have")
    except (KeyError, OSError, TypeError, ValueError, zipfile.BadZipFile) as error:
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
