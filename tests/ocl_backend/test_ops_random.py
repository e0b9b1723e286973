"""Random numbers: reproducible, independent of layout, and distributed as they should be."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ocl_backend.kernels import elementwise
from ocl_backend.ops.tensor.random import PHILOX
from tests.ocl_backend.cpu_twin import place

COUNT = 100_001


def drawn(device: Any, seed: int, draw: Any) -> Any:
    generator = torch.Generator(place(device)).manual_seed(seed)
    return draw(torch.empty(COUNT, device=place(device)), generator).cpu()


def test_philox_gives_the_published_numbers(device: Any) -> None:
    # the known answers of the authors' Random123 for a counter and key of zeros and of ones
    known = {
        (0, 0): [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8],
    }
    kernel = elementwise.Kernel(
        "answer",
        "long",
        (
            elementwise.Operand("out", torch.int64, "address"),
            elementwise.Scalar("seed", "long"),
            elementwise.Scalar("counter", "long"),
        ),
        """const uint4 r = philox(seed, counter);
        STORE_out(0, r.s0);
        STORE_out(1, r.s1);
        STORE_out(2, r.s2);
        STORE_out(3, r.s3);""",
        PHILOX,
        scalar_only=True,
    )
    for (seed, counter), answer in known.items():
        out = torch.empty(4, dtype=torch.int64, device=place(device))
        elementwise.launch(kernel, (1,), (out, seed, counter), {"out": (0,)})
        assert out.tolist() == answer


def test_the_same_seed_gives_the_same_numbers(device: Any) -> None:
    def draw(x: Any, generator: Any) -> Any:
        return x.uniform_(generator=generator)

    assert torch.equal(drawn(device, 5, draw), drawn(device, 5, draw))
    assert not torch.equal(drawn(device, 5, draw), drawn(device, 6, draw))


def test_every_draw_moves_on_and_states_return(device: Any) -> None:
    generator = torch.Generator(place(device)).manual_seed(1)
    state = generator.get_state()
    first, second = (
        torch.rand(100, generator=generator, device=place(device)).cpu() for _ in range(2)
    )
    assert len(set(first.tolist()) & set(second.tolist())) == 0
    generator.set_state(state)
    again = torch.rand(100, generator=generator, device=place(device)).cpu()
    assert torch.equal(first, again)


def test_numbers_depend_on_the_place_alone(device: Any) -> None:
    long, short = (
        torch.rand(n, generator=torch.Generator(place(device)).manual_seed(3), device=place(device))
        for n in (1000, 10)
    )
    assert torch.equal(long[:10].cpu(), short.cpu())
    board = torch.zeros(10, 2, device=place(device))
    board[:, 1].uniform_(generator=torch.Generator(place(device)).manual_seed(3))
    assert torch.equal(board[:, 1].cpu(), short.cpu())
    assert board[:, 0].sum().item() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_numbers_do_not_depend_on_the_address(device: Any, dtype: Any) -> None:
    """Whole draws are written as vectors, at aligned addresses or not; the last one is cut."""

    def drawn_at(start: int, count: int) -> tuple[Any, Any]:
        x = torch.ones(4_100, dtype=dtype, device=place(device))
        x[start : start + count].normal_(generator=torch.Generator(place(device)).manual_seed(3))
        around = torch.cat([x[:start], x[start + count :]])
        assert around.eq(1).all()
        torch.ocl.manual_seed_all(3)
        part = torch.arange(1.0, 4_100.0, device=place(device)).to(dtype)[start - 1 :][:count]
        kept, mask = torch.native_dropout(part, 0.5, True)
        assert torch.equal(kept, torch.where(mask, part * 2, 0))
        return x[start : start + count].cpu(), mask.cpu()

    aligned = drawn_at(4, 4_002)
    for start, count in ((1, 4_002), (2, 4_001), (3, 3)):
        normal, mask = drawn_at(start, count)
        assert torch.equal(normal, aligned[0][:count])
        assert torch.equal(mask, aligned[1][:count])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_uniform_and_normal(device: Any, dtype: Any) -> None:
    if dtype is torch.float64 and "cl_khr_fp64" not in device.limits.extensions:
        pytest.skip("this device has no fp64")
    torch.ocl.manual_seed_all(0)
    u = torch.rand(COUNT, dtype=dtype, device=place(device)).cpu().double()
    assert 0 <= u.min() < 1e-3 and 1 - 1e-3 < u.max() <= 1
    assert u.mean().item() == pytest.approx(0.5, abs=5e-3)
    assert u.var().item() == pytest.approx(1 / 12, abs=2e-3)
    n = torch.randn(COUNT, dtype=dtype, device=place(device)).cpu().double()
    moments = [(n**k).mean().item() for k in (1, 2, 3, 4)]
    assert moments == pytest.approx([0, 1, 0, 3], abs=0.12)
    neighbours = (n[1:] * n[:-1]).mean().item()
    assert neighbours == pytest.approx(0, abs=0.02)


def test_other_distributions(device: Any) -> None:
    torch.ocl.manual_seed_all(0)
    x = torch.empty(COUNT, device=place(device))
    assert x.exponential_(2).mean().item() == pytest.approx(0.5, abs=0.01)
    assert x.bernoulli_(0.3).mean().item() == pytest.approx(0.3, abs=0.01)
    assert x.geometric_(0.25).mean().item() == pytest.approx(4, abs=0.1)
    assert x.cauchy_().median().item() == pytest.approx(0, abs=0.03)
    assert x.log_normal_(0, 0.5).log().std().item() == pytest.approx(0.5, abs=0.01)
    assert x.uniform_(-3, -1).max().item() < -1
    p = torch.tensor([0.1, 0.2, 0.7], device=place(device))
    picks = torch.multinomial(p, 10_000, replacement=True)
    assert picks.bincount().cpu().div(10_000).tolist() == pytest.approx([0.1, 0.2, 0.7], abs=0.02)
    assert sorted(torch.multinomial(p, 3).tolist()) == [0, 1, 2]


def test_integers(device: Any) -> None:
    torch.ocl.manual_seed_all(0)
    dice = torch.randint(-5, 10, (COUNT,), device=place(device))
    counts = (dice + 5).bincount().cpu()
    assert len(counts) == 15
    assert (counts / COUNT).tolist() == pytest.approx([1 / 15] * 15, abs=5e-3)
    wide = torch.randint(-(2**60), 2**60, (1000,), device=place(device)).cpu()
    assert wide.min() < -(2**59) and wide.max() > 2**59
    order = torch.randperm(1000, device=place(device)).cpu()
    assert sorted(order.tolist()) == list(range(1000)) and order[0] != order.sort()[0][0]


def test_every_order_is_as_likely(device: Any) -> None:
    torch.ocl.manual_seed_all(0)
    orders = torch.stack([torch.randperm(3, device=place(device)) for _ in range(1200)]).cpu()
    counts = (orders[:, 0] * 3 + orders[:, 1]).bincount(minlength=9)
    assert sorted(counts.tolist())[:3] == [0, 0, 0]
    assert counts[counts > 0].tolist() == pytest.approx([200] * 6, abs=60)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_first_numbers_of_a_draw_do_not_depend_on_its_length(device: Any, dtype: Any) -> None:
    drawn = []
    for count in (3, 70, 1003):
        torch.ocl.manual_seed_all(1)
        drawn.append(torch.randn(count, dtype=dtype, device=place(device)).cpu())
    assert torch.equal(drawn[0], drawn[2][:3]) and torch.equal(drawn[1], drawn[2][:70])


def test_dropout(device: Any) -> None:
    torch.ocl.manual_seed_all(0)
    x = torch.ones(100, 100, device=place(device), requires_grad=True)
    y = torch.nn.functional.dropout(x, 0.25)
    y.sum().backward()
    kept = (y != 0).float().mean().item()
    assert kept == pytest.approx(0.75, abs=0.02)
    assert y.max().item() == pytest.approx(1 / 0.75)
    assert torch.equal(x.grad.cpu(), y.detach().cpu())
    assert torch.equal(torch.nn.functional.dropout(x, 0.25, training=False), x)


def test_nothing_here_runs_on_the_cpu(device: Any) -> None:
    torch.ocl.reset_fallbacks()
    x = torch.rand(10, device=place(device))
    torch.nn.functional.dropout(x)
    torch.nn.init.kaiming_normal_(x.view(2, 5))
    torch.randperm(10, device=place(device))
    assert torch.ocl.fallbacks() == {}


def test_impossible_draws_say_what_is_wrong(device: Any) -> None:
    x = torch.empty(3, device=place(device))
    with pytest.raises(RuntimeError, match=r"uniform_ expects to return a \[from, to\) range"):
        x.uniform_(2, 1)
    with pytest.raises(RuntimeError, match="random_ expects 'from' to be less than 'to'"):
        x.random_(3, 3)
    with pytest.raises(RuntimeError, match="std"):
        x.normal_(0, -1)
    with pytest.raises(RuntimeError, match="uniform_ expects to-from"):
        x.uniform_(-3e38, 3e38)
    for mean, std, words in [(x, -1, "but found std"), (0, x.fill_(-1), "all elements of std")]:
        with pytest.raises(RuntimeError, match=f"normal expects.*{words}"):
            torch.normal(mean, std)
    assert torch.normal(0, x[:0]).numel() == 0  # of no deviations none is wrong


@pytest.mark.parametrize(
    ("dtype", "most"), [(torch.uint8, 2**8), (torch.half, 2**11 + 1), (torch.double, 2**53 + 1)]
)
def test_an_order_fits_its_dtype(device: Any, dtype: Any, most: int) -> None:
    out = torch.empty(0, dtype=dtype, device=place(device))
    if most < 2**20:
        order = torch.randperm(most, out=out).cpu()
        assert torch.equal(order.long().sort()[0], torch.arange(most))
    with pytest.raises(RuntimeError, match=r"too large|cannot be greater|without overflow"):
        torch.randperm(most + 1, out=out)


def test_dropout_hides_no_nan(device: Any) -> None:
    """torch multiplies by 0 what is dropped, on the CPU and on CUDA."""
    for x in (torch.full((1003,), torch.nan), torch.full((1003,), torch.inf)):
        for dtype in (torch.float32, torch.float16, torch.float64):
            y = torch.nn.functional.dropout(x.to(place(device), dtype), 0.5).cpu()
            assert not y.isfinite().any()


def test_dropout_keeps_the_order_of_memory(device: Any) -> None:
    sparse = torch.empty(2, 3, 3, 6, device=place(device), memory_format=torch.channels_last)
    x = sparse[..., ::2].fill_(3).requires_grad_()
    y = torch.nn.functional.dropout(x, 1e-10)
    y.sum().backward()
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(y.cpu(), torch.full((2, 3, 3, 3), 3.0))
    assert torch.equal(x.grad.cpu(), torch.ones(2, 3, 3, 3))
