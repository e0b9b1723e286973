"""Nested tensors of both layouts, and torch's encoder, which would make some by itself."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn
from torch.nn import functional

import ocl_backend  # noqa: F401  (registers the device)
from tests.ocl_backend.cpu_twin import assert_same, place

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")


def rows() -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(2, 8), torch.randn(5, 8), torch.randn(3, 8)]


@pytest.mark.parametrize("train", [False, True])
def test_attention_over_jagged_ones_is_that_of_each(device: Any, train: bool) -> None:
    x = torch.nested.nested_tensor(rows(), layout=torch.jagged, device=place(device))
    heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
    with torch.set_grad_enabled(train):
        ours = functional.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2)
    for row, one in zip(rows(), ours.unbind(), strict=True):
        alone = row.view(1, -1, 2, 4).transpose(1, 2)
        theirs = functional.scaled_dot_product_attention(alone, alone, alone)
        assert_same(one, theirs.transpose(1, 2)[0])


def test_jagged_ones_through_layers_and_back(device: Any) -> None:
    """A linear layer, a normalisation, attention of two heads and a loss; all gradients."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU())
    found = []
    for where in ("cpu", place(device)):
        twin = deepcopy(network).to(where)
        leaves = [row.to(where).requires_grad_() for row in rows()]
        x = twin(torch.nested.as_nested_tensor(leaves, layout=torch.jagged))
        heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
        y = functional.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2)
        y.flatten(-2).values().square().sum().backward()
        found.append([y.values(), *(leaf.grad for leaf in [*leaves, *twin.parameters()])])
    assert_same(found[1], found[0])


STRIDED: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: torch.relu(x).unbind(),
    "sum of two": lambda x: (x + x).unbind(),
    "softmax": lambda x: torch.softmax(x, -1).unbind(),
    "to the CPU": lambda x: x.to("cpu").unbind(),
    "to half": lambda x: x.to(torch.float16).unbind(),
    "padded": lambda x: x.to_padded_tensor(0.0),
    "printed": lambda x: len(str(x)) > 0,
}


@pytest.mark.parametrize("name", STRIDED)
def test_strided_ones(device: Any, name: str) -> None:
    ours, theirs = (
        STRIDED[name](torch.nested.nested_tensor(rows(), device=where))
        for where in (place(device), "cpu")
    )
    if isinstance(theirs, bool):
        assert ours == theirs
        return
    pairs = [(ours, theirs)] if isinstance(theirs, Tensor) else zip(ours, theirs, strict=True)
    for mine, reference in pairs:
        torch.testing.assert_close(mine.cpu(), reference, rtol=1e-3, atol=1e-3)


def test_what_has_no_kernel_says_what_to_do(device: Any) -> None:
    x = torch.nested.nested_tensor(rows(), device=place(device))
    with pytest.raises(RuntimeError, match=r"on ocl devices\. Use .*to_padded_tensor"):
        torch.cumsum(x, 1)


@pytest.mark.parametrize("shape", [(8,), (2, 4)])
def test_layer_norm_of_strided_ones(device: Any, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    norm = nn.LayerNorm(shape)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    items, leaves = ([row.unflatten(-1, shape) for row in rows()] for _ in range(2))
    expected = [norm(row.requires_grad_()) for row in items]
    sum(one.square().sum() for one in expected).backward()
    twin = deepcopy(norm).to(place(device))
    leaves = [row.to(place(device)).requires_grad_() for row in leaves]
    twin.zero_grad()
    found = twin(torch.nested.as_nested_tensor(leaves)).unbind()
    sum(one.square().sum() for one in found).backward()
    for mine, reference in zip(found, expected, strict=True):
        assert_same(mine, reference)
    assert_same([leaf.grad for leaf in leaves], [row.grad for row in items])
    assert_same([p.grad for p in twin.parameters()], [p.grad for p in norm.parameters()])


def test_layer_norm_over_what_differs_is_refused(device: Any) -> None:
    x = torch.nested.nested_tensor(rows(), device=place(device))
    with pytest.raises(RuntimeError, match="extends into irregular dimensions"):
        nn.LayerNorm((2, 8), device=place(device))(x)
    with pytest.raises(RuntimeError, match="The shape at dimension 0"):
        nn.LayerNorm(7, device=place(device))(x)


def test_attention_over_heads_that_differ(device: Any) -> None:
    torch.manual_seed(0)
    shapes = (2, 2, 8), (3, 3, 8), (3, 5, 8)
    query, key = ([torch.randn(shape) for shape in shapes] for _ in range(2))
    attend: Any = functional.scaled_dot_product_attention
    there = [torch.nested.nested_tensor(x, device=place(device)) for x in (query, key)]
    found = attend(there[0], there[1], there[1]).unbind()
    for one, q, k in zip(found, query, key, strict=True):
        assert_same(one, attend(q[None], k[None], k[None])[0])


def test_a_number_beside_jagged_ones(device: Any) -> None:
    found = []
    for where in ("cpu", place(device)):
        x = torch.nested.nested_tensor(rows(), layout=torch.jagged, device=where)
        found.append(torch.where(x > 0, x, 0.5).values())
    assert_same(found[1], found[0])


@pytest.mark.parametrize("mask_check", [True, False])
def test_an_encoder_with_padding(device: Any, mask_check: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, mask_check=mask_check).eval()
    x = torch.randn(2, 5, 8)
    mask = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with torch.no_grad():
        theirs = encoder(x, src_key_padding_mask=mask)
        encoder.to(place(device))
        there = x.to(place(device)), mask.to(place(device))
        ours = encoder(there[0], src_key_padding_mask=there[1]).cpu()
    if mask_check:  # else torch makes a nested tensor, behind whose items are zeros
        ours, theirs = ours[~mask], theirs[~mask]
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_torchs_attention_of_strided_ones(device: Any) -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    keys = [torch.randn(4, 8), torch.randn(1, 8), torch.randn(6, 8)]
    found = []
    for where in ("cpu", place(device)):
        x, k = (torch.nested.nested_tensor(given, device=where) for given in (rows(), keys))
        with torch.no_grad():
            layer.to(where)
            y, shares = layer(x, x, x)
            alone = layer(x, x, x, need_weights=False)[0]
        found.append([*y.unbind(), shares, *alone.unbind()])
    assert_same(found[1], found[0])
    given = [layer.in_proj_weight, layer.in_proj_bias, layer.out_proj.weight, layer.out_proj.bias]
    with torch.no_grad():  # the CPU asks for items as long as those of x
        others = torch._native_multi_head_attention(x, k, k, 8, 2, *given, None, False)[0]
    layer.cpu()
    for row, key, one in zip(rows(), keys, others.unbind(), strict=True):
        assert_same([one], [layer(row[None], key[None], key[None])[0][0]])
    mask = torch.zeros(3, 5, dtype=torch.bool, device=place(device))
    with torch.no_grad(), pytest.raises(RuntimeError, match="their sizes are the mask"):
        torch._native_multi_head_attention(x, x, x, 8, 2, *given, mask, False, True, 1)
