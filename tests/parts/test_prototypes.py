"""Centroid labels against loops over the formula, and by index whatever the order of the images."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch

from cosda.data.loader import Loader
from cosda.models.network import same_weights
from cosda.parts.prototypes import centroid_labels, label_images, see_all
from cosda.types import Batch
from tiny import tiny_loader, tiny_network


def cosine_distance(a: list[float], b: list[float]) -> float:
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return 1 - dot / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(y * y for y in b))


def slow_labels(features: list[list[float]], shares: list[list[float]], threshold: int, first: bool) -> list[int]:
    """§7.1 of the specification, one image and one class at a time."""
    classes = len(shares[0])
    rows = []
    for f in features:
        length = math.sqrt(sum(v * v for v in f) + 1)
        rows.append([v / length for v in [*f, 1.0]])
    labels = [row.index(max(row)) for row in shares]
    allowed = [k for k in range(classes) if labels.count(k) > threshold]
    for turn in range(2):
        if turn == 1:
            shares = [[float(k == label) for k in range(classes)] for label in labels]
            if first:
                allowed = [k for k in allowed if k in labels]
            else:
                allowed = [k for k in range(classes) if labels.count(k) > threshold]
        centroids = {}
        for k in allowed:
            total = 1e-8 + sum(share[k] for share in shares)
            centroids[k] = [
                sum(s[k] * row[j] for s, row in zip(shares, rows, strict=True)) / total for j in range(len(rows[0]))
            ]
        labels = [min(allowed, key=lambda k: cosine_distance(row, centroids[k])) for row in rows]
    return labels


@pytest.mark.parametrize("admissible_from", ["first", "second"])
@pytest.mark.parametrize("threshold", [0, 3])
@pytest.mark.parametrize("seed", range(4))
def test_labels_are_those_of_the_loops(seed: int, threshold: int, admissible_from: str) -> None:
    rng = torch.Generator().manual_seed(seed)
    features = torch.randn(25, 4, generator=rng, dtype=torch.float64)
    p = (2 * torch.randn(25, 5, generator=rng, dtype=torch.float64)).softmax(1)
    want = slow_labels(features.tolist(), p.tolist(), threshold, admissible_from == "first")
    assert centroid_labels(features, p, threshold, admissible_from).tolist() == want


def test_two_clusters_correct_a_wrong_prediction() -> None:
    features = torch.tensor([[5.0, 0], [4, 0], [5, 1], [0, 5], [0, 4], [1, 5]])
    p = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.1, 0.9], [0.1, 0.9], [0.1, 0.9]])
    assert p.argmax(1).tolist() == [0, 0, 1, 1, 1, 1]
    assert centroid_labels(features, p).tolist() == [0, 0, 0, 1, 1, 1]


def test_a_class_that_nobody_is_predicted_to_be_is_no_label() -> None:
    features = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    p = torch.zeros(12, 4)
    p[:6, 0], p[6:, 2] = 1.0, 1.0
    assert set(centroid_labels(features, p).tolist()) <= {0, 2}


def test_a_class_left_without_members_takes_nobody() -> None:
    """Class 1 is predicted once but its centroid is nobody's nearest; a cosine with it would be 0/0."""
    features = torch.tensor([[1.0, 0], [1, 0], [1, 0], [-1, 0], [-1, 0], [-1, 0], [0.99, 0.0]])
    p = torch.tensor([[0.8, 0.2, 0.0]] * 3 + [[0.0, 0.2, 0.8]] * 3 + [[0.45, 0.55, 0.0]])
    for admissible_from in ("first", "second"):
        assert centroid_labels(features, p, 0, admissible_from).tolist() == [0, 0, 0, 2, 2, 2, 0]  # type: ignore[arg-type]


@pytest.mark.parametrize("admissible_from", ["first", "second"])
def test_a_class_left_without_members_takes_not_even_who_is_far_from_all(admissible_from: str) -> None:
    """The last image points away from the centroids of 0 and 2; class 1, predicted once, has lost its only member."""
    features = torch.tensor([[6.0, -9], [9, 0], [3, -6], [9, 6], [-9, 3]], dtype=torch.float64)
    p = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.0, 0.4, 0.6], [0.1, 0.1, 0.8], [0.4, 0.2, 0.4]]
    probabilities = torch.tensor(p, dtype=torch.float64)
    assert 1 in probabilities.argmax(dim=1)
    found = centroid_labels(features, probabilities, 0, admissible_from).tolist()  # type: ignore[arg-type]
    assert found == slow_labels(features.tolist(), p, 0, admissible_from == "first") == [0, 2, 0, 2, 0]


def test_a_threshold_that_nobody_passes_is_as_none() -> None:
    features = torch.randn(9, 3, generator=torch.Generator().manual_seed(0))
    p = torch.randn(9, 3, generator=torch.Generator().manual_seed(1)).softmax(1)
    assert torch.equal(centroid_labels(features, p, threshold=100), centroid_labels(features, p, threshold=0))


class Shuffled:
    """The same images in another order, as a shuffled loader visits them."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __len__(self) -> int:
        return len(self.loader)

    def sweep(self, view: str = "test") -> Iterator[Batch]:
        batches = list(self.loader.sweep(view))
        images, index = torch.cat([b.images for b in batches]), torch.cat([b.index for b in batches])
        order = torch.randperm(len(index), generator=torch.Generator().manual_seed(1))
        for rows in order.split(5):
            yield Batch((images[rows],), index[rows])


@pytest.mark.parametrize("kind", ["batch_norm", "features"])
def test_labels_do_not_depend_on_the_order_of_the_loader(kind: str) -> None:
    """Trap B1: labels stored in visiting order and looked up by index are random."""
    network, loader = tiny_network(kind), tiny_loader(kind)
    ordered, shuffled = see_all(network, loader), see_all(network, Shuffled(loader))
    torch.testing.assert_close(shuffled.features, ordered.features)
    torch.testing.assert_close(shuffled.logits, ordered.logits)
    labels = label_images(network, loader)
    assert len(labels.unique()) > 1
    assert torch.equal(label_images(network, Shuffled(loader)), labels)


def test_looking_leaves_the_network_as_it_was_and_its_results_can_be_trained_on() -> None:
    network, twin = tiny_network(), tiny_network()
    network.train()
    network.classifier.eval()
    seen = see_all(network, tiny_loader())
    assert same_weights(network, twin)
    assert network.encoder.training
    assert not network.classifier.training
    assert not seen.features.is_inference()
    assert not label_images(network, tiny_loader()).is_inference()
