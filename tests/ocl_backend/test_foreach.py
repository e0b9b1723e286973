"""The `_foreach_*` operators, over torch's own samples: lists of tensors without the CPU."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.testing._internal import common_methods_invocations as invocations
from torch.utils._pytree import tree_map

import ocl_backend  # noqa: F401  (registers the device)
from tests import torch_frames
from tests.ocl_backend.cpu_twin import assert_same, place

torch_frames.walk()

SAMPLES = 3
INFOS = {
    info.name: info
    for database in ("unary", "binary", "pointwise", "reduce", "other")
    for info in getattr(invocations, f"foreach_{database}_op_db")
    if torch.float32 in info.supported_dtypes("cpu")
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", INFOS)
def test_lists_of_tensors(device: Any, name: str) -> None:
    if device.index:
        pytest.skip("what they are made of is tried on every device elsewhere")
    info = INFOS[name]
    torch.manual_seed(0)
    torch.ocl.reset_fallbacks()
    compared = 0
    for _, sample in zip(range(SAMPLES), info.sample_inputs("cpu", torch.float32), strict=False):
        compared += agree_on(info, sample, place(device))
    assert compared
    assert torch.ocl.fallbacks() == {}


def test_a_tensor_that_is_listed_twice(device: Any) -> None:
    x = torch.zeros(5, 2, device=place(device))[:, 0]  # not dense: a launch works on copies
    torch._foreach_add_([x, x], 0.5)
    assert x.tolist() == [1.0] * 5


def names_of_launches(call: Any) -> list[str]:
    call()  # builds
    with torch.ocl.profile(file=None) as profile:
        call()
    return [command.name for command in profile.commands]


@pytest.mark.sampled(1)
def test_a_list_is_one_launch_and_its_norms_two(device: Any) -> None:
    lists = [torch.full((3, n), 2.0, device=place(device)) for n in range(1, 9)]
    assert names_of_launches(lambda: torch._foreach_mul_(lists, 1.0)) == ["pointwise_mul_list"]
    assert names_of_launches(lambda: torch._foreach_norm(lists)) == ["list_norm", "list_root"]
    copied = names_of_launches(lambda: torch.stack([x.sum() for x in lists]))
    assert copied.count("copy_list") == 1 and "copy_kernel" not in copied


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("count", [1, 70])
def test_a_list_has_the_bits_of_its_tensors(device: Any, dtype: Any, count: int) -> None:
    torch.manual_seed(0)
    sizes = [(17, 5), (), (0,), (40001,), (7,)] * 14
    lists = [torch.rand(size).to(dtype).to(place(device)) + 0.5 for size in sizes[-count:]]
    others = [x.flip(0) if x.dim() else x * 3 for x in lists]
    numbers = [0.1 * i for i in range(count)]
    one = torch.tensor(0.7, device=place(device))
    pairs = zip(lists, others, strict=True)
    expected = [
        torch.addcdiv(x * 1.5, y, x, value=n) for (x, y), n in zip(pairs, numbers, strict=True)
    ]
    made = torch._foreach_mul(lists, 1.5)
    torch._foreach_addcdiv_(made, others, lists, numbers)
    assert all(torch.equal(a, b) for a, b in zip(made, expected, strict=True))
    promoted = torch._foreach_mul(made, one)
    torch._foreach_mul_(made, one)
    for a, b, c in zip(made, expected, promoted, strict=True):
        product = b * one
        assert product.dtype is c.dtype and torch.equal(product, c)
        assert torch.equal(a, product.to(dtype))


def test_lists_that_share_memory_are_taken_in_order(device: Any) -> None:
    found = []
    for where in ("cpu", place(device)):
        x, y = (torch.full((5,), value, device=where) for value in (1.0, 2.0))
        torch._foreach_add_([x, y], [y, x])
        found.append([x.tolist(), y.tolist()])
    assert found[0] == found[1]


def test_copies_between_dtypes_and_orders(device: Any) -> None:
    torch.manual_seed(0)
    sources = [torch.randn(3, 4, 5, 6) for _ in range(3)]
    targets = [
        torch.empty(3, 4, 5, 6, dtype=torch.bfloat16, device=place(device)) for _ in range(3)
    ]
    targets[1] = targets[1].to(memory_format=torch.channels_last)
    torch._foreach_copy_(targets, [source.to(place(device)) for source in sources])
    for target, source in zip(targets, sources, strict=True):
        assert torch.equal(target.cpu(), source.bfloat16())


def test_a_list_of_none_is_refused_as_on_the_cpu(device: Any) -> None:
    x = torch.ones(2, device=place(device))
    with pytest.raises(RuntimeError, match="same number of tensors"):
        torch._foreach_add([x, x], [x])
    with pytest.raises(RuntimeError, match="0 dim"):
        torch._foreach_mul([x, x], x)


def agree_on(info: Any, sample: Any, where: Any) -> int:
    """Compare the functional and the in-place form; return how many the CPU can do."""
    compared = 0
    for form in (info.method_variant, info.inplace_variant):
        theirs = deepcopy(sample)
        try:
            result = form(theirs.input, *theirs.args, **theirs.kwargs) if form else None
        except RuntimeError:
            continue
        if form is None or result is None:
            continue
        ours = [
            tree_map(lambda x: x.to(where) if isinstance(x, torch.Tensor) else x, part)
            for part in (sample.input, sample.args, sample.kwargs)
        ]
        found = form(ours[0], *ours[1], **ours[2])
        in_place = form is info.inplace_variant
        mine, reference = (ours[0], theirs.input) if in_place else (found, result)
        assert_same(list(mine), list(reference), tolerance=1e-4)
        compared += 1
    return compared


def test_rows_that_share_memory_are_computed_one_after_the_other(device: Any) -> None:
    ours, theirs = (torch.arange(20.0, device=where) for where in (place(device), "cpu"))
    for x in (ours, theirs):
        torch._foreach_add_([x[:10], x[5:15], x[10:]], [x[10:], x[5:15], x[:10]])
    assert_same(ours, theirs)


def test_a_row_shares_no_part_of_its_memory_with_itself(device: Any) -> None:
    for where in ("cpu", place(device)):
        x = torch.arange(20.0, device=where)
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            torch._foreach_add_([x[:10], x[10:]], [x[5:15], x[10:]])
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            torch._foreach_mul_([x[:10], x[10:]], x[12])
