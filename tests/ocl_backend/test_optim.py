"""Optimiser steps: the formulas against the CPU, many tensors in few launches, chosen unasked."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.optim import (
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    NAdam,
    RAdam,
    RMSprop,
    Rprop,
)
from torch.optim.swa_utils import AveragedModel

from ocl_backend.fusion import recall
from ocl_backend.ops.tensor import copies
from tests.ocl_backend.cpu_twin import assert_same, place, relative

SIZES = [(3,), (4, 3, 7, 7), (1,), (17, 33), (40000,), (), (0, 3), *[(5,)] * 20]

OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": lambda p: SGD(p, lr=0.1),
    "momentum": lambda p: SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-2),
    "nesterov": lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True, maximize=True),
    "dampening": lambda p: SGD(p, lr=0.1, momentum=0.9, dampening=0.2),
    "adam": lambda p: Adam(p, lr=0.1),
    "amsgrad": lambda p: Adam(p, lr=0.1, weight_decay=0.1, amsgrad=True),
    "adamw": lambda p: AdamW(p, lr=0.1, weight_decay=0.1),
    "lr is a tensor": lambda p: AdamW(p, lr=torch.tensor(0.1)),
    "foreach": lambda p: Adam(p, lr=0.1, foreach=True),
}


OTHERS: dict[str, Callable[..., Any]] = {
    "rmsprop": lambda p: RMSprop(p, lr=0.01, weight_decay=0.1),
    "rmsprop, centered": lambda p: RMSprop(p, lr=0.01, momentum=0.9, centered=True, maximize=True),
    "adagrad": lambda p: Adagrad(p, lr=0.1, lr_decay=0.1, weight_decay=0.1),
    "adadelta": lambda p: Adadelta(p, lr=0.5, weight_decay=0.1, maximize=True),
    "adamax": lambda p: Adamax(p, lr=0.01, weight_decay=0.1),
    "nadam": lambda p: NAdam(p, lr=0.01, weight_decay=0.1, decoupled_weight_decay=True),
    "nadam, one by one": lambda p: NAdam(p, lr=0.01, weight_decay=0.1, foreach=False),
    "radam": lambda p: RAdam(p, lr=0.01, betas=(0.9, 0.9), weight_decay=0.1),
    "rprop": lambda p: Rprop(p, lr=0.01),
    "adam, not fused": lambda p: Adam(p, lr=0.01, amsgrad=True, weight_decay=0.1, fused=False),
    "adamw, one by one": lambda p: AdamW(p, lr=0.01, foreach=False),
    "nesterov, not fused": lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True, foreach=True),
    "sgd, not fused": lambda p: SGD(p, lr=0.1, weight_decay=0.1, fused=False),
}
"""Optimizers whose functions are replaced."""


def twins(device: Any, sizes: list[tuple[int, ...]]) -> tuple[list[Any], list[Any]]:
    torch.manual_seed(0)  # single items may come near zero by chance
    theirs = [torch.randn(size).requires_grad_() for size in sizes]
    return theirs, [t.detach().to(place(device)).requires_grad_() for t in theirs]


def give_gradients(theirs: list[Any], ours: list[Any]) -> None:
    for their, our in zip(theirs, ours, strict=True):
        their.grad = torch.randn(their.shape)
        our.grad = their.grad.to(our.device)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_four_steps_follow_the_cpu(device: Any, name: str) -> None:
    torch.ocl.reset_fallbacks()
    theirs, ours = twins(device, SIZES)
    their_optimizer, our_optimizer = OPTIMIZERS[name](theirs), OPTIMIZERS[name](ours)
    for _ in range(4):
        give_gradients(theirs, ours)
        their_optimizer.step()
        our_optimizer.step()
    for their, our in zip(theirs, ours, strict=True):
        assert relative(our, their) <= 3e-6
    assert torch.ocl.fallbacks() == {}
    assert our_optimizer.param_groups[0]["fused"] is (None if name == "foreach" else True)


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name != "lr is a tensor"])
def test_steps_in_float64_use_numbers_in_float64(device: Any, name: str) -> None:
    theirs = [torch.randn(5, dtype=torch.float64).requires_grad_()]
    ours = [theirs[0].detach().to(place(device)).requires_grad_()]
    their_optimizer, our_optimizer = OPTIMIZERS[name](theirs), OPTIMIZERS[name](ours)
    for _ in range(3):
        theirs[0].grad = torch.randn(5, dtype=torch.float64)
        ours[0].grad = theirs[0].grad.to(place(device))
        their_optimizer.step()
        our_optimizer.step()
    assert torch.allclose(ours[0].detach().cpu(), theirs[0].detach(), rtol=1e-12, atol=1e-13)


def test_numbers_are_added_to_lists_in_float64(device: Any) -> None:
    lists = [torch.zeros(3, dtype=torch.float64, device=place(device)) for _ in range(2)]
    torch._foreach_add_(lists, 0.1)
    assert [x.tolist() for x in lists] == [[0.1] * 3] * 2


def test_the_cpu_keeps_its_own_choice() -> None:
    optimizer = Adam([torch.zeros(2, requires_grad=True)])
    optimizer.step()
    assert optimizer.param_groups[0]["fused"] is None


def test_a_state_saved_on_the_cpu_goes_on_here(device: Any) -> None:
    theirs, ours = twins(device, [(5, 3)])
    their_optimizer, our_optimizer = Adam(theirs), Adam(ours)
    give_gradients(theirs, ours)
    their_optimizer.step()
    ours[0].data.copy_(theirs[0].data)
    our_optimizer.load_state_dict(deepcopy(their_optimizer.state_dict()))
    give_gradients(theirs, ours)
    their_optimizer.step()
    our_optimizer.step()
    assert relative(ours[0], theirs[0]) <= 3e-6


def test_parameters_that_are_not_dense(device: Any) -> None:
    x = torch.randn(4, 5, 6, 7).to(memory_format=torch.channels_last)
    theirs, ours = [x.clone().requires_grad_()], [x.to(place(device)).requires_grad_()]
    their_optimizer, our_optimizer = Adam(theirs, lr=0.1), Adam(ours, lr=0.1)
    for _ in range(2):
        give_gradients(theirs, ours)
        their_optimizer.step()
        our_optimizer.step()
    assert ours[0].stride() == theirs[0].stride()
    assert relative(ours[0], theirs[0]) <= 3e-6


def test_parameters_in_channels_last_are_advanced_where_they_lie(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(4, 5, 6, 7).to(memory_format=torch.channels_last)
    ours = [x.to(place(device)).requires_grad_()]
    ours[0].grad, optimizer = ours[0].detach().clone(), Adam(ours, lr=0.1)
    optimizer.step()
    copied: list[object] = []
    recall.forget()
    plain = copies._run

    def counted(*like: Any) -> Any:
        copied.append(like)
        return plain(*like)

    monkeypatch.setattr(copies, "_run", counted)
    optimizer.step()
    assert not copied
    ours[0].grad = ours[0].grad.contiguous()
    copied.clear()
    recall.forget()
    optimizer.step()
    assert len(copied) == 1, "a gradient that lies otherwise is arranged, and not copied back"


def test_a_scaled_gradient_is_unscaled_and_an_infinite_one_skipped(device: Any) -> None:
    scale, none, found = (torch.tensor(v, device=place(device)) for v in (4.0, 0.0, 1.0))
    p, grad = torch.ones(3, device=place(device)), torch.full((3,), 8.0, device=place(device))
    numbers = {
        "weight_decay": 0.0, "momentum": 0.0, "lr": 0.5, "dampening": 0.0, "nesterov": False,
        "maximize": False, "is_first_step": False, "grad_scale": scale,
    }  # fmt: skip
    torch._fused_sgd_([p], [grad], [], **numbers, found_inf=found)
    assert p.tolist() == [1.0, 1.0, 1.0]
    torch._fused_sgd_([p], [grad], [], **numbers, found_inf=none)
    assert p.tolist() == [0.0, 0.0, 0.0]
    assert grad.tolist() == [2.0, 2.0, 2.0], "torch leaves the unscaled gradient behind"


@pytest.mark.parametrize("kind", [SGD, Adam, AdamW])
def test_gradients_that_were_clipped_before_the_step_are_skipped_if_infinite(
    device: Any, kind: Any
) -> None:
    p = torch.ones(3, device=place(device), requires_grad=True)
    optimizer, scaler = kind([p], lr=0.5, fused=True), torch.amp.GradScaler("ocl", init_scale=4.0)
    for factor, is_skipped in ((1.0, False), (torch.inf, True)):
        before = p.tolist()
        optimizer.zero_grad()
        scaler.scale((p * factor).sum()).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_([p], 1.0)
        scaler.step(optimizer)
        scaler.update()
        assert (p.tolist() == before) is is_skipped


def test_a_first_step_that_is_skipped_leaves_no_garbage_in_the_momentum(device: Any) -> None:
    """torch makes the momentum of new memory, which a first step without infinities fills."""
    p = torch.ones(1000, device=place(device), requires_grad=True)
    optimizer = SGD([p], lr=0.5, momentum=0.9, fused=True)
    scaler = torch.amp.GradScaler("ocl", init_scale=4.0)
    for factor in (torch.inf, 1.0):
        optimizer.zero_grad()
        scaler.scale((p * factor).sum()).backward()
        new = [torch.full_like(p, torch.nan) for _ in range(4)]
        del new  # the next tensors get this memory
        scaler.step(optimizer)
        scaler.update()
    assert torch.equal(p.detach().cpu(), torch.full((1000,), 0.5))


def test_a_scaled_gradient_of_another_layout_is_unscaled_where_it_lies(device: Any) -> None:
    scale, none = (torch.tensor(v, device=place(device)) for v in (4.0, 0.0))
    p = torch.ones(2, 3, device=place(device))
    grad = torch.full((3, 2), 8.0, device=place(device)).t()
    torch._fused_sgd_(
        [p], [grad], [], weight_decay=0.0, momentum=0.0, lr=0.5, dampening=0.0, nesterov=False,
        maximize=False, is_first_step=False, grad_scale=scale, found_inf=none,
    )  # fmt: skip
    assert (p == 0).all()
    assert (grad == 2).all()


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_replaced_steps_follow_the_cpu_by_one_launch(device: Any, name: str, dtype: Any) -> None:
    theirs, ours = twins(device, SIZES[:7])
    theirs = [t.detach().double().requires_grad_() for t in theirs]
    ours = [t.detach().to(dtype).requires_grad_() for t in ours]
    optimizers = OTHERS[name](theirs), OTHERS[name](ours)
    for _ in range(8):
        for their, our in zip(theirs, ours, strict=True):
            their.grad = torch.randn(their.shape).double()
            our.grad = their.grad.to(our)
        before = ours[0]._version
        with torch.ocl.profile(file=None) as profile:
            for optimizer in optimizers:
                optimizer.step()
    assert len(profile.commands) == 1
    assert ours[0]._version > before
    for their, our in zip(theirs, ours, strict=True):
        assert relative(our.double(), their) <= (2e-5 if dtype is torch.float32 else 1e-12)
        for role, state in optimizers[1].state[our].items():
            if state is not None:
                assert relative(state.double(), optimizers[0].state[their][role].double()) <= 2e-5


def test_parameters_that_missed_a_step_count_their_own(device: Any) -> None:
    theirs, ours = twins(device, [(5,), (9, 4)])
    optimizers = RAdam(theirs, lr=0.01), RAdam(ours, lr=0.01)
    for turn in range(6):
        give_gradients(theirs, ours)
        if turn == 2:
            theirs[0].grad = ours[0].grad = None
        for optimizer in optimizers:
            optimizer.step()
    for their, our in zip(theirs, ours, strict=True):
        assert relative(our, their) <= 3e-6


def test_operators_of_lists_count_versions(device: Any) -> None:
    x = [torch.ones(3, device=place(device))]
    torch._foreach_add_(x, 1.0)
    torch._foreach_copy_(x, [torch.zeros(3, device=place(device))])
    assert x[0]._version == 2


@pytest.mark.parametrize("dampening", [0.0, 0.3])
def test_momentum_may_begin_later_for_some_parameters(device: Any, dampening: float) -> None:
    values, gradients = torch.randn(3, 5), torch.randn(5, 3, 5)
    found = []
    for where in (torch.device("cpu"), place(device)):
        params = [torch.nn.Parameter(row.clone().to(where)) for row in values]
        optimizer = SGD(params, lr=0.1, momentum=0.9, weight_decay=0.1, dampening=dampening)
        for step, rows in enumerate(gradients):
            for index, (param, row) in enumerate(zip(params, rows, strict=True)):
                param.grad = row.to(where) if index <= step else None
            optimizer.step()
        found.append(torch.stack([param.detach().cpu() for param in params]))
    assert relative(found[1], found[0]) < 1e-6
    assert optimizer.param_groups[0]["fused"] is (dampening == 0)


def test_an_average_of_a_model_takes_its_integers(device: Any) -> None:
    """Counts of batches, and integers that fall, whose mean is rounded to zero."""

    def run(where: Any) -> list[Any]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.BatchNorm1d(4)).to(where)
        model.register_buffer("whole", torch.tensor([7, -3], device=where))
        average = AveragedModel(model, use_buffers=True)
        for turn in range(4):
            model(torch.full((5, 6), float(turn), device=where))
            model.whole.add_(-turn)
            average.update_parameters(model)
        return [*average.state_dict().values()]

    assert_same(run(place(device)), run("cpu"))
