"""Fourier transforms against the CPU: lengths of every kind, real and complex, along any dims."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import ocl_backend  # noqa: F401 (registers the device)
from ocl_backend.ops.linear import fft_groups, fft_plans, fft_registers, fft_tables
from ocl_backend.ops.linear.fft_butterflies import butterfly
from ocl_backend.runtime.tables import KeptTables
from tests.ocl_backend.cpu_twin import place

LENGTHS = [1, 30, 64, 127, 200, 1004, 1018, 2053, 4880, 6144]
"""One; products; a prime that still is; split; and with a prime that goes through a convolution.
On processors: short ones, the last with their largest prime; convolutions in a launch and in
several; and long ones."""


def close(ours: Any, theirs: Any) -> None:
    scale = theirs.abs().max().item()
    torch.testing.assert_close(ours.cpu(), theirs, rtol=0, atol=3e-6 * scale)


@pytest.mark.parametrize("length", LENGTHS)
def test_every_length(device: Any, length: int) -> None:
    torch.manual_seed(length)
    place = torch.device("ocl", device.index)
    real, numbers = torch.randn(3, length), torch.randn(3, length, dtype=torch.complex64)
    torch.ocl.reset_fallbacks()
    close(torch.fft.fft(numbers.to(place)), torch.fft.fft(numbers))
    close(torch.fft.ifft(numbers.to(place)), torch.fft.ifft(numbers))
    close(torch.fft.rfft(real.to(place)), torch.fft.rfft(real))
    half = numbers[:, : length // 2 + 1]
    close(torch.fft.irfft(half.to(place), n=length), torch.fft.irfft(half, n=length))
    assert torch.ocl.fallbacks() == {}


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_dims_and_norms_with_gradients(device: Any, norm: str) -> None:
    place = torch.device("ocl", device.index)
    x = torch.randn(4, 6, 5, requires_grad=True)
    ours = x.detach().to(place).requires_grad_()
    for given in (x, ours):
        spectrum = torch.fft.rfftn(given, dim=(2, 0), norm=norm)
        torch.fft.irfftn(spectrum * spectrum, dim=(2, 0), norm=norm).abs().sum().backward()
    close(ours.grad, x.grad)


@pytest.mark.parametrize("length", [7, 96, 179, 1004, 1040, 3072, 4096, 263, 1511])
def test_short_rows_of_processors_are_one_launch(device: Any, length: int) -> None:
    if device.limits.kind != "cpu":
        pytest.skip("GPUs have rows in local memory")
    place = torch.device("ocl", device.index)
    x = torch.randn(19, length, 3)
    there = x.to(place).transpose(0, 2)
    calls = [
        lambda x: torch.fft.rfft(x, dim=1, norm="ortho"),
        lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=1), n=length, dim=1),
        lambda x: torch.fft.fft(torch.view_as_complex(x[..., :2].contiguous()), dim=0),
    ]
    for call, launches in zip(calls, (1, 2, 2), strict=True):
        call(there)  # copies its table
        with torch.ocl.profile(file=None) as seen:
            ours = call(there)
        assert len(seen.commands) == launches
        close(ours, call(x.transpose(0, 2)))


class Pair(complex):
    """OpenCL C's vector of two, with what butterflies need of it."""

    @property
    def x(self) -> float:
        return self.real

    @property
    def y(self) -> float:
        return self.imag


@pytest.mark.parametrize("size", [*range(1, 17), 17, 19, 23, 29, 31])
def test_texts_of_butterflies_are_transforms(size: int) -> None:
    numbers = torch.randn(size, dtype=torch.complex128)
    names: dict[str, Any] = {f"v{i}": Pair(one) for i, one in enumerate(numbers.tolist())}
    statements, results = butterfly(list(names), "")
    names["pair"] = lambda x, y: Pair(complex(x, y))
    for statement in statements:
        name, text = statement.removeprefix("const pair ").removesuffix(";").split(" = ")
        names[name] = Pair(eval(text.replace("(pair)(", "pair("), names))
    ours = torch.tensor([complex(names[one]) for one in results], dtype=torch.complex128)
    torch.testing.assert_close(ours, torch.fft.fft(numbers))


@pytest.mark.parametrize(
    ("n", "radices"),
    [(1, ()), (13, (13,)), (32, (8, 4)), (62, (31, 2)), (1000, (10, 10, 10)), (1024, (16, 8, 8)),
     (74, None), (4096, (16, 16, 16))],
)  # fmt: skip
def test_lengths_have_the_fewest_and_smallest_radices(
    n: int, radices: tuple[int, ...] | None
) -> None:
    assert fft_plans.fewest_radices(n) == radices
    if radices:
        split = fft_plans.split(radices, 64)
        assert split.length == n
        assert split.work_items <= 64
        assert [one.done * one.radix * one.apart for one in split.passes] == [
            n * one.done for one in split.passes
        ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kernel", ["fft_registers", "fft_groups"])
@pytest.mark.parametrize("length", [1, 13, 31, 80, 127, 491, 720, 982, 1024, 1031, 3072])
def test_rows_on_gpus(
    as_gpu: Any, length: int, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Powers of 2 and other factors; chirps; lines that begin behind the start of their memory."""
    if kernel == "fft_groups":
        monkeypatch.setattr(fft_registers, "MOST_LENGTHS", 0)
        monkeypatch.setattr(fft_registers, "_lengths", set())
    torch.manual_seed(length)
    numbers, real = torch.randn(70, length + 2, dtype=torch.complex64), torch.randn(70, length + 3)
    there, lines = numbers.to(place(as_gpu))[1:, 1:-1], real.to(place(as_gpu))[1:, 2:-1]
    numbers, real = numbers[1:, 1:-1], real[1:, 2:-1]
    close(torch.fft.fft(there), torch.fft.fft(numbers))
    close(torch.fft.ifft(there[:3].conj()), torch.fft.ifft(numbers[:3].conj()))
    close(torch.fft.rfft(lines, norm="ortho"), torch.fft.rfft(real, norm="ortho"))
    half = numbers[:, : length // 2 + 1]
    close(torch.fft.irfft(half.to(place(as_gpu)), n=length), torch.fft.irfft(half, n=length))
    close(torch.fft.fft(there.mT, dim=0), torch.fft.fft(numbers.mT, dim=0))
    close(torch.fft.rfftn(lines, dim=(1, 0)), torch.fft.rfftn(real, dim=(1, 0)))


@pytest.mark.parametrize(("length", "launches"), [(80, 1), (491, 1), (1024, 1), (4096, 2)])
def test_launches_of_rows_on_gpus(as_gpu: Any, length: int, launches: int) -> None:
    x = torch.randn(5, length, dtype=torch.complex64, device=place(as_gpu))
    torch.fft.fft(x)  # copies its tables
    with torch.ocl.profile(file=None) as seen:
        torch.fft.fft(x)
    assert [one.name for one in seen.commands] == ["fft_registers"] * launches


def test_many_lengths_share_a_text(as_gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fft_registers, "MOST_LENGTHS", 1)
    monkeypatch.setattr(fft_registers, "_lengths", set())
    for length, kernel in ((40, "fft_registers"), (48, "fft_groups"), (40, "fft_registers")):
        x = torch.randn(3, length, dtype=torch.complex64)
        there = x.to(place(as_gpu))
        with torch.ocl.profile(file=None) as seen:
            ours = torch.fft.fft(there)
        assert kernel in [one.name for one in seen.commands]
        close(ours, torch.fft.fft(x))


def test_little_local_memory_splits_lines(as_gpu: Any, monkeypatch: Any) -> None:
    limits = replace(as_gpu.limits, local_bytes=4096)
    assert fft_groups.items_of(limits, 8) == 0
    assert [fft_groups.items_of(replace(limits, local_bytes=n << 10), 8) for n in (12, 32, 64)] == [
        512, 1024, 2048,
    ]  # fmt: skip
    assert fft_plans.whole(1024, limits, 4) is None
    monkeypatch.setattr(as_gpu, "limits", limits)
    x = torch.randn(5, 1024, dtype=torch.complex64)
    close(torch.fft.fft(x.to(place(as_gpu))), torch.fft.fft(x))


def same_in_double_precision(x: Any, there: Any) -> None:
    ours = torch.fft.ifft(there.conj(), dim=0)
    torch.testing.assert_close(ours.cpu(), torch.fft.ifft(x.conj(), dim=0), rtol=0, atol=1e-14)


def test_double_precision_and_lazy_conjugates(device: Any) -> None:
    x = torch.randn(9, 60, dtype=torch.complex128)
    same_in_double_precision(x, x.to(place(device)))


@pytest.mark.parametrize("length", [44, 74])
def test_double_precision_on_gpus(as_gpu: Any, length: int) -> None:
    x = torch.randn(length, 5, dtype=torch.complex128)
    same_in_double_precision(x, x.to(place(as_gpu)))


def test_what_is_transformed_along_no_dimension_is_a_copy(device: Any) -> None:
    x = torch.ones(2, 3, dtype=torch.complex64, device=place(device))
    for transformed in (torch.fft.fftn(x, dim=()), torch.fft.ifftn(x.conj(), dim=())):
        transformed.mul_(2)
        assert transformed.tolist() == [[2] * 3] * 2
    assert x.tolist() == [[1] * 3] * 2


def test_kept_tables_are_bounded_by_their_bytes() -> None:
    tables, calls = KeptTables(100), []

    @tables.of
    def zeros(size: int) -> Any:
        calls.append(size)
        return torch.zeros(size, dtype=torch.uint8)

    @tables.of
    def pair(size: int) -> Any:
        return zeros(size), zeros(size)

    for size in (40, 50, 40, 20):  # of the first two 40 was used last
        assert zeros(size).nbytes == size
    assert calls == [40, 50, 20]
    assert tables.bytes == 60
    zeros(50)
    assert calls == [40, 50, 20, 50]
    assert zeros(300) is zeros(300)  # alone
    assert tables.bytes == 300
    pair(10)
    assert tables.bytes == 30


def test_chirps_of_many_lengths_stay_below_the_bound(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fft_tables.TABLES, "most_bytes", 1 << 18)
    for prime in (4099, 4111, 4127, 4129):
        x = torch.randn(prime, dtype=torch.complex64)
        close(torch.fft.fft(x.to(place(device))), torch.fft.fft(x))
    assert 0 < fft_tables.TABLES.bytes <= 1 << 18
