"""Products with packed weights through torch: its operators of int8 and int4, ours for GGUF."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import ocl_backend  # noqa: F401 (registers the device)
from ocl_backend.ops.linear import packed
from oclgen.measuring import packed_reference
from oclgen.packed_problem import FORMATS, Format

OCL: Any = torch.get_device_module("ocl")
pytestmark = pytest.mark.usefixtures("any_device")
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def close(got: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Say whether two results are equal to the rounding of the first one's dtype."""
    wanted = wanted.double()
    error = (got.cpu().double() - wanted).norm() / wanted.norm()
    return bool(error < TOLERANCE[got.dtype])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("m", "k"), [(1, 64), (40, 96), (3, 50)])
def test_int8_is_as_on_the_cpu(dtype: torch.dtype, m: int, k: int) -> None:
    """50 weights of a row are no whole blocks: they are multiplied as plain numbers."""
    x, scales = torch.randn(m, k).to(dtype), torch.rand(24).to(dtype) / 50
    weight = torch.randint(-128, 128, (24, k), dtype=torch.int8)
    got = torch._weight_int8pack_mm(x.to("ocl"), weight.to("ocl"), scales.to("ocl"))
    wanted = x.double() @ weight.double().t() * scales.double()
    assert got.dtype is dtype
    assert close(got, wanted)


@pytest.mark.parametrize("group", [32, 64, 128, 256])
@pytest.mark.parametrize(("m", "dtype"), [(2, torch.bfloat16), (33, torch.float32)])
def test_int4_is_what_was_packed(group: int, m: int, dtype: torch.dtype) -> None:
    n, k = 16, 512
    quants = torch.randint(0, 16, (n, k), dtype=torch.uint8)
    numbers = (torch.rand(k // group, n, 2) - 0.3).to(dtype)
    pairs = (quants[:, ::2] << 4 | quants[:, 1::2]).to("ocl")
    weight = torch.ops.aten._convert_weight_to_int4pack(pairs, 8)
    assert weight.shape == (n // 8, k // 128, 32, 4)
    x = torch.randn(m, k).to(dtype)
    got = torch.ops.aten._weight_int4pack_mm(x.to("ocl"), weight, group, numbers.to("ocl"))
    scale, zero = numbers.double().repeat_interleave(group, 0).permute(2, 1, 0)
    assert close(got, x.double() @ ((quants.double() - 8) * scale + zero).t())


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
def test_bytes_are_multiplied_exactly(turned: bool, dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    a = torch.randint(info.min, info.max + 1, (19, 70), dtype=dtype)
    b = torch.randint(-128, 128, (21, 70), dtype=torch.int8).t()
    b = b if turned else b.contiguous()
    got = torch._int_mm(a.to("ocl"), b.to("ocl"))
    assert got.dtype is torch.int32
    assert torch.equal(got.cpu(), a.int() @ b.int())


def test_products_of_bytes_are_tuned_problems_and_fill_an_out() -> None:
    a = torch.randint(-128, 128, (9, 40), dtype=torch.int8)
    b = torch.randint(-128, 128, (40, 24), dtype=torch.int8)
    wanted, given = a.int() @ b.int(), (a.to("ocl"), b.to("ocl"))
    report = OCL.explain(torch._int_mm, *given)
    assert [row.problem for row in report.rows] == ["gemm:9x24x40:int8:nn:b1:-:-:none"]
    assert torch.equal(report.result.cpu(), wanted)
    whole = torch.full((18, 24), 7, dtype=torch.int32, device="ocl")
    half = whole[:9]
    assert torch._int_mm(*given, out=half) is half
    assert torch.equal(half.cpu(), wanted)
    assert bool((whole[9:] == 7).all())
    every_other = torch._int_mm(given[0][:, ::2], given[1][::2])
    assert torch.equal(every_other.cpu(), a.int()[:, ::2] @ b.int()[::2])
    nothing = torch._int_mm(given[0][:, :0], given[1][:0])
    assert nothing.dtype is torch.int32
    assert not nothing.any()


@pytest.mark.parametrize("form", [one for one in FORMATS.values() if one.group is None])
def test_blocks_of_gguf_are_multiplied_and_unpacked(form: Format) -> None:
    blocks = packed_reference.random_weights(form, 12, 512, seed=1)
    weight = torch.from_numpy(blocks).to("ocl")
    wanted = torch.from_numpy(packed_reference.unpacked(form, blocks))
    numbers = packed.unpacked(weight, form.name, 12, 512, torch.float32)
    assert torch.equal(numbers.cpu(), wanted.float())
    x = torch.randn(3, 1024)[:, :512]
    got = packed.packed_product("linear", x.to("ocl"), weight, form.name, 12)
    assert close(got, x.double() @ wanted.t())
    some = OCL.packed_linear(x.to("ocl")[:, None], weight[5:], form.name, 7)
    assert close(some[:, 0], x.double() @ wanted[5:].t())  # another size, perhaps another variant


def test_weights_that_begin_anywhere_are_copied_to_where_wide_loads_can_begin() -> None:
    form = FORMATS["q4_0"]
    blocks = packed_reference.random_weights(form, 4, 64, seed=1)
    whole = torch.from_numpy(blocks).flatten()
    weight = torch.cat([whole.new_zeros(2), whole]).to("ocl")[2:]
    assert packed._aligned(weight).data_ptr() % 16 == 0
    wanted = torch.from_numpy(packed_reference.unpacked(form, blocks))
    assert torch.equal(packed.unpacked(weight, "q4_0", 4, 64, torch.float32).cpu(), wanted.float())


def test_weights_that_do_not_fit_are_refused() -> None:
    x, weight = torch.randn(2, 64, device="ocl"), torch.zeros(4, 36, dtype=torch.uint8).to("ocl")
    assert packed.packed_product("linear", x, weight, "q4_0", 4).shape == (2, 4)
    for form, n, message in (("q4_0", 5, "have 180 bytes"), ("q5_9", 4, "known are"),
                             ("q4_k", 4, "no multiple of 256"), ("int8", 4, "bytes")):  # fmt: skip
        with pytest.raises(RuntimeError, match=message):
            packed.packed_product("linear", x, weight, form, n)


def test_nothing_falls_back_and_explain_tells_the_problem() -> None:
    x = torch.randn(1, 256, dtype=torch.bfloat16, device="ocl")
    weight, scales = torch.ones(8, 256, dtype=torch.int8), torch.ones(8, dtype=torch.bfloat16)
    weight, scales = weight.to("ocl"), scales.to("ocl")
    OCL.reset_fallbacks()
    report = OCL.explain(torch._weight_int8pack_mm, x, weight, scales)
    assert [row.problem for row in report.rows] == ["packed:1x8x256:bf16:int8"]
    assert not OCL.fallbacks()
