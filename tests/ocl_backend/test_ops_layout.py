"""Collapsing dimensions: the fewest that walk every operand in the same order."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given
from hypothesis import strategies as st

from ocl_backend.kernels.dimensions import (
    broadcast_shapes,
    broadcast_strides,
    collapse,
    contiguous_strides,
)


def places(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """The item index of every element, in the order the dimensions are walked."""
    found = [0]
    for size, stride in zip(shape, strides, strict=True):
        found = [at + i * stride for at in found for i in range(size)]
    return found


def test_dense_operands_become_one_dimension() -> None:
    shape = (4, 5, 6)
    layout = collapse(shape, [contiguous_strides(shape)] * 3)
    assert layout.sizes == (120,) and layout.strides == ((1,), (1,), (1,))


def test_a_channel_bias_keeps_three_dimensions() -> None:
    shape = (2, 5, 4, 4)
    bias = broadcast_strides(shape, (5, 1, 1), (1, 1, 1))
    layout = collapse(shape, [contiguous_strides(shape), bias])
    assert layout.sizes == (2, 5, 16)
    assert layout.strides == ((80, 16, 1), (0, 1, 0))


def test_channels_last_is_walked_as_it_lies() -> None:
    shape, strides = (2, 5, 4, 3), (60, 1, 15, 5)
    assert collapse(shape, [strides, strides]).sizes == (120,)


def test_nothing_to_walk_is_one_item() -> None:
    assert collapse((1, 1), [(7, 3)]).sizes == (1,)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_the_same_pairs_of_items_are_met(sizes: list[int], random: object) -> None:
    shape = tuple(sizes)
    order = list(range(len(shape)))
    random.shuffle(order)  # type: ignore[attr-defined]
    dense = contiguous_strides([shape[dim] for dim in order])
    permuted = tuple(dense[order.index(dim)] for dim in range(len(shape)))
    other = tuple(0 if dim % 2 else stride for dim, stride in enumerate(contiguous_strides(shape)))
    layout = collapse(shape, [permuted, other])
    walked = zip(*(places(layout.sizes, steps) for steps in layout.strides), strict=True)
    wanted = zip(places(shape, permuted), places(shape, other), strict=True)
    assert sorted(walked) == sorted(wanted)


def test_shapes_that_do_not_fit_are_named() -> None:
    assert broadcast_shapes((3, 1), (1, 4), ()) == (3, 4)
    assert broadcast_shapes((0, 4), (1, 4)) == (0, 4)
    with pytest.raises(RuntimeError, match=r"tensor a \(3\) must match the size of tensor b"):
        broadcast_shapes((2, 3), (4,))
