"""Quarter turns, the head that tells them apart, and that the best head is a copy."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from cosda.errors import CosdaError
from cosda.models.network import same_weights
from cosda.parts import rotation
from cosda.parts.rotation import draw_turns, new_head, rotate, rotation_loss, train_head
from cosda.randomness import stream
from tiny import CPU, tiny_loader, tiny_network


def inputs(count: int = 4, side: int = 5) -> Tensor:
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(0))


def test_each_image_turns_by_its_own_number_as_rot90() -> None:
    images = inputs()
    turned = rotate(images, torch.tensor([0, 1, 2, 3]))
    for k in range(4):
        assert torch.equal(turned[k], torch.rot90(images[k], k, (1, 2)))


def test_the_convention_is_that_of_the_original() -> None:
    """1: flip the width, then transpose; 2: flip both; 3: transpose, then flip the width."""
    images = inputs(1)
    one, two, three = (rotate(images, torch.tensor([k])) for k in (1, 2, 3))
    assert torch.equal(one, images.flip(3).transpose(2, 3))
    assert torch.equal(two, images.flip(2).flip(3))
    assert torch.equal(three, images.transpose(2, 3).flip(3))


def test_four_quarter_turns_are_none_and_the_images_stay_as_they_were() -> None:
    images = inputs()
    before, turned, ones = images.clone(), images, torch.ones(4, dtype=torch.long)
    for _ in range(4):
        turned = rotate(turned, ones)
    assert torch.equal(turned, images)
    assert torch.equal(rotate(rotate(images, ones), 3 * ones), images)
    assert torch.equal(images, before)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 12)])
def test_what_is_not_square_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(CosdaError, match="square"):
        rotate(torch.zeros(shape), torch.zeros(2, dtype=torch.long))


def test_all_four_turns_are_drawn_from_the_stream_that_is_given() -> None:
    turns = draw_turns(200, stream(0, "a"), CPU)
    assert set(turns.tolist()) == {0, 1, 2, 3}
    assert torch.equal(turns, draw_turns(200, stream(0, "a"), CPU))


@pytest.mark.parametrize("weight_normed", [False, True])
def test_a_new_head_is_the_same_each_time_and_draws_nothing_global(weight_normed: bool) -> None:
    state = torch.get_rng_state()
    one, two = new_head(6, weight_normed, CPU), new_head(6, weight_normed, CPU)
    assert torch.equal(torch.get_rng_state(), state)
    assert same_weights(one, two)
    assert one(torch.zeros(1, 12)).shape == (1, 4)


def test_the_loss_is_cross_entropy_of_both_features_side_by_side() -> None:
    head, rng = new_head(3, False, CPU), torch.Generator().manual_seed(0)
    upright, turned, turns = torch.randn(5, 3, generator=rng), torch.randn(5, 3, generator=rng), torch.arange(5) % 4
    want = 0.0
    for a, b, k in zip(upright, turned, turns, strict=True):
        want -= float(head(torch.cat([a, b])).log_softmax(0)[k].detach()) / 5
    assert float(rotation_loss(head, upright, turned, turns).detach()) == pytest.approx(want, rel=1e-5)


def test_training_the_head_leaves_the_network_alone_and_is_the_same_twice() -> None:
    network, twin = tiny_network().train(), tiny_network()
    heads = []
    for _ in range(2):
        head = new_head(6, False, CPU)
        train_head(head, network, tiny_loader(), 3, 0.01, stream(0, "head"))
        heads.append(head)
    assert same_weights(network, twin)
    assert network.training
    assert all(p.grad is None for p in network.parameters())
    assert same_weights(*heads)
    assert not same_weights(heads[0], new_head(6, False, CPU))


class Corner(nn.Module):
    """Features that say where the bright corner of an image is."""

    def forward(self, images: Tensor) -> Tensor:
        return torch.stack([images[:, 0, i, j] for i in (0, -1) for j in (0, -1)], dim=1)


def test_the_head_learns_a_task_that_can_be_learnt() -> None:
    from cosda.models.network import Network
    from cosda.types import Batch

    class Bright:
        def __len__(self) -> int:
            return 8

        def sweep(self, view: str = "test"):  # type: ignore[no-untyped-def]
            images = torch.zeros(8, 3, 4, 4)
            images[:, :, 0, 0] = 1
            yield Batch((images,), torch.arange(8))

    network = Network(Corner(), nn.Identity(), nn.Linear(4, 3))
    assert train_head(new_head(4, False, CPU), network, Bright(), 60, 0.1, stream(0, "head")) == 1.0


def test_the_best_head_is_kept_and_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap B16: a state kept by reference goes on changing, and is the last one."""
    seen: list[Tensor] = []
    accuracies = iter([0.3, 0.9, 0.9, 0.2])

    def scripted(head: nn.Module, features: Tensor) -> float:
        seen.append(head.weight.detach().clone())  # type: ignore[operator]
        return next(accuracies)

    monkeypatch.setattr(rotation, "_accuracy", scripted)
    head = new_head(6, False, CPU)
    assert train_head(head, tiny_network(), tiny_loader(), 4, 0.1, stream(0, "head")) == 0.9
    assert torch.equal(head.weight, seen[1])  # type: ignore[arg-type]
    assert not torch.equal(seen[1], seen[3])


@pytest.mark.parametrize("rate", [0.3, 0.05])
def test_the_heads_training_is_the_originals_sgd_step_by_step(rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nesterov momentum 0.9, weight decay 1e-3, and a rate of rate·(1 + 10·t/T)^-0.75 in step t of T."""
    network, loader, epochs = tiny_network(), tiny_loader(count=100, batch_size=100), 2  # steps of 64 and 36 images
    ever_better = iter(range(epochs))
    monkeypatch.setattr(rotation, "_accuracy", lambda head, features: float(next(ever_better)))
    head = new_head(6, False, CPU)
    train_head(head, network, loader, epochs, rate, stream(0, "head"))

    slow, rng = new_head(6, False, CPU), stream(0, "head")
    network.eval()
    with torch.no_grad():
        images = next(iter(loader.sweep("weak"))).images
        features = [network(torch.rot90(images, k, (2, 3))).features.half().float() for k in range(4)]
    velocity = [torch.zeros_like(parameter) for parameter in slow.parameters()]
    for step in range(4):
        if step % 2 == 0:
            order = torch.randperm(100, generator=rng)
        rows = order[:64] if step % 2 == 0 else order[64:]
        turns = draw_turns(len(rows), rng, CPU)
        turned = torch.stack([features[k][row] for row, k in zip(rows.tolist(), turns.tolist(), strict=True)])
        slow.zero_grad()
        rotation_loss(slow, features[0][rows], turned, turns).backward()  # type: ignore[no-untyped-call]
        size = rate * (1 + 10 * step / 4) ** -0.75
        with torch.no_grad():
            for number, parameter in enumerate(slow.parameters()):
                gradient = parameter.grad + 1e-3 * parameter  # type: ignore[operator]
                velocity[number] = 0.9 * velocity[number] + gradient
                parameter -= size * (gradient + 0.9 * velocity[number])
    for one, other in zip(head.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=5e-4)  # features are stored with half the digits


def test_accuracy_counts_all_images_in_all_directions() -> None:
    head = nn.Linear(4, 4)
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.tensor([1.0, 0, 0, 0]))
    assert rotation._accuracy(head, torch.randn(70, 4, 2).half()) == 0.25
