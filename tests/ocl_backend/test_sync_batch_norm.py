"""Steps of `nn.SyncBatchNorm`: parts of a batch, gathered, are normalised as the whole batch is.

Two processes run them as one layer in `test_distributed`.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.ocl_backend.cpu_twin import ocl, place

EPS, MOMENTUM = 1e-3, 0.2


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_parts_are_normalised_as_the_whole(device: Any, dtype: Any, affine: bool) -> None:
    torch.manual_seed(0)
    images = (torch.randn(7, 3, 4, 5) * 3 + 1).to(dtype)
    above = torch.randn(7, 3, 4, 5).to(dtype)
    weight, bias = (torch.randn(3), torch.randn(3)) if affine else (None, None)
    running = torch.zeros(3), torch.ones(3)
    whole = images.float().requires_grad_()
    params = [p.requires_grad_() for p in (weight, bias) if p is not None]
    expected = torch.nn.functional.batch_norm(
        whole, *(r.clone() for r in running), weight, bias, True, MOMENTUM, EPS
    )
    tracked = [r.clone() for r in running]
    torch.nn.functional.batch_norm(images.float(), *tracked, None, None, True, MOMENTUM, EPS)
    grads = torch.autograd.grad(expected, [whole, *params], above.float())

    def there(tensor: Any) -> Any:
        return None if tensor is None else tensor.detach().to(place(device))

    ocl.reset_fallbacks()
    parts = there(images)[:2], there(images)[2:]
    given = there(above)[:2], there(above)[2:]
    mean, invstd = map(
        torch.stack, zip(*(torch.batch_norm_stats(x, EPS) for x in parts), strict=True)
    )
    counts = torch.tensor([x.numel() / 3 for x in parts], device=place(device))
    own = [there(r) for r in running]
    mean, invstd = torch.batch_norm_gather_stats_with_counts(
        parts[0], mean, invstd, *own, MOMENTUM, EPS, counts
    )
    w, b = there(weight), there(bias)
    results = [torch.batch_norm_elemt(x, w, b, mean, invstd, EPS) for x in parts]
    reduced = [
        torch.batch_norm_backward_reduce(g, x, mean, invstd, w, True, affine, affine)
        for g, x in zip(given, parts, strict=True)
    ]
    sums = [reduced[0][i] + reduced[1][i] for i in (0, 1)]
    images_grad = [
        torch.batch_norm_backward_elemt(g, x, mean, invstd, w, *sums, counts.int())
        for g, x in zip(given, parts, strict=True)
    ]
    found = [torch.cat(results), torch.cat(images_grad)]
    if affine:
        found += [reduced[0][i] + reduced[1][i] for i in (2, 3)]
    assert ocl.fallbacks() == {}
    assert {tensor.dtype for tensor in found[:2]} == {dtype} and mean.dtype == torch.float32
    bound = 1e-4 if dtype == torch.float32 else 2e-2
    for tensor, other in zip(found, [expected, *grads], strict=True):
        torch.testing.assert_close(tensor.cpu().float(), other.detach(), rtol=bound, atol=bound)
    for tensor, other in zip(own, tracked, strict=True):
        torch.testing.assert_close(tensor.cpu(), other)


def test_statistics_of_one_process(device: Any) -> None:
    x = torch.randn(6, 4) + 2
    own = [torch.zeros(4, device=place(device)), torch.ones(4, device=place(device))]
    mean, variance = torch.batch_norm_update_stats(x.to(place(device)), *own, 0.5)
    torch.testing.assert_close(mean.cpu(), x.mean(0))
    torch.testing.assert_close(variance.cpu(), x.var(0, correction=0))
    torch.testing.assert_close(own[1].cpu(), 0.5 + 0.5 * x.var(0))
    gathered = torch.batch_norm_gather_stats(
        x.to(place(device)), mean[None], (variance + EPS).rsqrt()[None], *own, 0.5, EPS, 6
    )
    torch.testing.assert_close(gathered[0].cpu(), x.mean(0))
    torch.testing.assert_close(own[0].cpu(), 0.75 * x.mean(0))
