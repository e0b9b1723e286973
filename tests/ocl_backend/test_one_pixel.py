"""Convolutions of images of one pixel, which run as products."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn

from tests.ocl_backend.cpu_twin import check, check_module

LAYERS = {
    "bias": nn.Conv2d(6, 4, 1),
    "no bias": nn.Conv2d(6, 4, 1, bias=False),
    "strided": nn.Conv2d(6, 4, 1, stride=2),
    "squeezed": nn.Sequential(
        nn.AdaptiveAvgPool2d(1), nn.Conv2d(6, 4, 1), nn.SiLU(), nn.Conv2d(4, 6, 1), nn.Sigmoid()
    ),
    "normalised": nn.Sequential(nn.Conv2d(6, 4, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU()),
}


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_results_and_gradients_agree_with_the_cpu(device: Any, layer: nn.Module) -> None:
    check_module(device, layer, torch.randn(3, 6, 1, 1))


def test_gradients_alone_and_inputs_that_are_not_dense(device: Any) -> None:
    w = torch.randn(4, 6, 1, 1)
    check(device, lambda x: torch.conv2d(x, w.to(x.device)), torch.randn(3, 6, 1, 1))
    check_module(device, nn.Conv2d(6, 4, 1), torch.randn(1, 6, 1, 1).expand(3, 6, 1, 1))


def test_it_is_a_product_and_rounds_as_convolutions_may(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = nn.Conv2d(6, 4, 1).to("ocl"), torch.randn(3, 6, 1, 1, device="ocl")
    monkeypatch.setattr(torch.ocl.matmul, "allow_tf32", True)
    problems = [torch.ocl.explain(layer, x).rows[0].problem]
    monkeypatch.setattr(torch.ocl.conv, "allow_tf32", True)
    problems.append(torch.ocl.explain(layer, x).rows[0].problem)
    assert problems == [f"gemm:3x4x6:{dtype}:nt:b1:-:n:none" for dtype in ("fp32", "tf32")]
