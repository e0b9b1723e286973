"""Connectionist temporal classification: the loss, alpha and the gradient, as torch's CPU has them.

Torch's CPU leaves alpha behind a sample's end as memory was, so it is compared before that.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional

from ocl_backend.ops.training import ctc
from tests.ocl_backend.cpu_twin import agree, assert_same, ocl, place, refuse_alike

aten = torch.ops.aten
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}


def drawn(seed: int, dtype: Any, most_labels: int = 12) -> tuple[Any, ...]:
    """Log-probabilities, targets, lengths and blank; some targets are empty, some too long."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    steps, batch, classes = rng.randint(1, 30), rng.randint(1, 9), rng.randint(2, 30)
    blank = rng.randrange(classes)
    x = torch.randn(batch, steps, classes, dtype=dtype).log_softmax(-1).transpose(0, 1)
    x = x if seed % 3 else x.contiguous()
    if seed % 4 == 1:
        x[rng.randrange(steps), :, rng.randrange(classes)] = -torch.inf
    labels = [rng.randint(0, most_labels) for _ in range(batch)]
    lengths = [rng.randint(seed % 2, steps) for _ in range(batch)]
    shape = (sum(labels),) if seed % 2 else (batch, max(labels) + seed % 3)
    targets = torch.randint(0, classes - 1, shape)
    targets = targets + (targets >= blank)
    return x, targets.int() if seed % 5 == 0 else targets, lengths, labels, blank


def compare(device: Any, drawing: tuple[Any, ...], zero_infinity: bool) -> None:
    x, targets, lengths, labels, blank = drawing
    where, tolerance = place(device), TOLERANCE[x.dtype]
    grad = torch.randn(x.shape[1], dtype=x.dtype)
    given = lengths, labels, blank, zero_infinity
    loss, alpha = aten._ctc_loss(x, targets, *given)
    slope = aten._ctc_loss_backward(grad, x, targets, *given[:2], loss, alpha, *given[2:])
    ocl.reset_fallbacks()
    home, there, scale = x.to(where), targets.to(where), grad.to(where)
    our_loss, our_alpha = aten._ctc_loss(home, there, *given)
    our_slope = aten._ctc_loss_backward(
        scale, home, there, *given[:2], our_loss, our_alpha, *given[2:]
    )
    assert ocl.fallbacks() == {}
    assert_same(our_loss, loss, tolerance)
    assert our_alpha.shape == alpha.shape
    for i, (steps, count) in enumerate(zip(lengths, labels, strict=True)):
        inside = i, slice(steps), slice(2 * count + 1)
        assert_same(our_alpha[inside], alpha[inside], tolerance)
        assert bool((our_alpha[i, steps:] == -torch.inf).all())
        assert bool((our_alpha[i, :, 2 * count + 1 :] == -torch.inf).all())
    assert_same(our_slope, slope, tolerance)


@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("seed", range(10))
def test_drawn_batches(device: Any, seed: int, dtype: Any, zero_infinity: bool) -> None:
    compare(device, drawn(seed, dtype), zero_infinity)


@pytest.mark.sampled(1)
def test_states_that_local_memory_has_no_room_for(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = ctc._room
    ctc._recursion.cache_clear()
    monkeypatch.setattr(ctc, "_room", lambda case: (room(case)[0], False))
    compare(device, drawn(1, torch.float32, 40), False)
    ctc._recursion.cache_clear()


@pytest.mark.sampled(1)
def test_loads_ahead(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What GPUs do: several steps' loads at once, in one or two places of a work-item."""
    for seed in (1, 2, 8):
        ctc._recursion.cache_clear()
        monkeypatch.setattr(ctc, "_ahead", lambda *_: 3)
        compare(device, drawn(seed, torch.float32), False)
    ctc._recursion.cache_clear()


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("place_of_lengths", ["lists", "cpu", "device"])
def test_the_layer_with_gradients(device: Any, place_of_lengths: str, reduction: str) -> None:
    """Several calls: the third of like calls is repeated without Python, with other lengths not."""
    x, targets = torch.randn(12, 4, 7), torch.randint(1, 7, (4, 5))
    for labels in [(5, 3, 0, 4)] * 4 + [(1, 2, 5, 5)] * 2:
        lengths: list[Any] = [(12, 11, 5, 2), labels]
        results = []
        for where in ("cpu", place(device)):
            given = [*lengths]
            if place_of_lengths != "lists":
                there = where if place_of_lengths == "device" else "cpu"
                given = [torch.tensor(length, device=there) for length in lengths]
            leaf = x.clone().to(where).requires_grad_()
            loss = functional.ctc_loss(
                leaf.log_softmax(-1), targets.to(where), given[0], given[1],
                reduction=reduction, zero_infinity=True,
            )  # fmt: skip
            loss.sum().backward()
            results.append((loss, leaf.grad))
        ours, theirs = results[1], results[0]
        assert_same(ours, theirs, 1e-4)


def test_lengths_that_are_tensors(device: Any) -> None:
    x, targets = torch.randn(6, 3, 5).log_softmax(-1), torch.randint(1, 5, (6,))
    lengths = torch.tensor([6, 5, 6]), torch.tensor([1, 2, 3])
    agree(device, lambda x, *given: aten._ctc_loss.Tensor(x, *given)[0], x, targets, *lengths)


def test_one_sequence_without_a_batch(device: Any) -> None:
    x, target = torch.randn(6, 5).log_softmax(-1), torch.tensor([1, 2, 2])
    lengths = torch.tensor(6), torch.tensor(3)
    agree(device, functional.ctc_loss, x, target, *lengths)


def test_equal_calls_give_equal_bits(device: Any) -> None:
    x = torch.randn(20, 3, 6).log_softmax(-1).to(place(device))
    targets = torch.randint(1, 6, (3, 8), device=x.device)
    torch.use_deterministic_algorithms(True)
    try:
        slopes = []
        for _ in range(3):
            leaf = x.clone().requires_grad_()
            lengths = torch.tensor((20, 19, 18)), torch.tensor((8, 7, 1))
            functional.ctc_loss(leaf, targets, *lengths).backward()
            assert leaf.grad is not None
            slopes.append(leaf.grad)
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(slopes[0], slopes[1]) and torch.equal(slopes[1], slopes[2])


WRONG: dict[str, Any] = {
    "no samples": (lambda x, t: aten._ctc_loss(x[:, :0], t[:0], [], []),),
    "no steps": (lambda x, t: aten._ctc_loss(x[:0], t, [0, 0], [1, 1]),),
    "a blank that is no class": (lambda x, t: aten._ctc_loss(x, t, [4, 4], [1, 1], 3),),
    "lengths of another batch": (lambda x, t: aten._ctc_loss(x, t, [4], [1, 1]),),
    "too many steps": (lambda x, t: aten._ctc_loss(x, t, [4, 5], [1, 1]),),
    "too many labels": (lambda x, t: aten._ctc_loss(x, t, [4, 4], [1, 3]),),
    "labels that are left": (lambda x, t: aten._ctc_loss(x, t[0], [4, 4], [1, 0]),),
    "half": (lambda x, t: aten._ctc_loss(x.half(), t, [4, 4], [1, 1]),),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls(device: Any, name: str) -> None:
    x, targets = torch.randn(4, 2, 3).log_softmax(-1), torch.ones(2, 2, dtype=torch.long)
    refuse_alike(device, *WRONG[name], x, targets)
