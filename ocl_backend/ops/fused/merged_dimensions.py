"""Dimensions of a part that all its operands walk as one: fewer divisions, and longer rows.

A processor computes rows of a few items one by one, and each item's place costs a division for each
dimension. Most operands are whole tensors, or repeat along some outer or inner dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ocl_backend.kernels.dimensions import broadcast_strides, contiguous_strides, merge

if TYPE_CHECKING:
    from ocl_backend.fusion.held import Step
    from ocl_backend.ops.fused.expression_text import Chain, Part
    from ocl_backend.ops.fused.expressions import Expression, Read


class Merged(NamedTuple):
    """A chain whose calls of one part have the part's merged dimensions."""

    nodes: Sequence[Expression]
    sources: Sequence[Sequence[int | None]]
    steps: Sequence[Step]


def merged(chain: Chain, part: Part) -> tuple[Chain, Part]:
    """Return the chain and the part with as few dimensions as walk all that the part touches.

    Args:
        chain: the calls.
        part: of a launch. One that asks where an item lies along a dimension stays as it is.
    """
    nodes = {i: chain.nodes[i] for i in part.computed}
    by_item = all(n.kind == "pointwise" and "POSITION" not in n.text for n in nodes.values())
    if part.products or not by_item:
        return chain, part
    space = part.space
    steps: list[tuple[int, ...]] = []
    for i, node in nodes.items():
        for read, source in zip(node.inputs, chain.sources[i], strict=True):
            steps.append(_steps(read, space, source in nodes))
        steps.append(_steps(node.out, space, i not in part.roots))
    dims = [dim for dim in zip(space, *steps, strict=True) if dim[0] != 1]
    sizes, *lies = list(zip(*merge(dims), strict=True)) or [(1,), *((0,) for _ in steps)]
    walked, made = iter(lies), list(chain.nodes)
    for i, node in nodes.items():
        inputs = tuple(_lying(read, sizes, next(walked)) for read in node.inputs)
        made[i] = replace(node, inputs=inputs, out=_lying(node.out, sizes, next(walked)))
    return Merged(made, chain.sources, chain.steps), part._replace(space=sizes)


def _steps(read: Read, space: tuple[int, ...], is_made: bool) -> tuple[int, ...]:
    """Return how an operand moves along a space; what `is_made` on the way lies nowhere.

    Of that a merged dimension has to be repeated as a whole, or not at all.
    """
    strides = read.strides
    if is_made:
        strides = contiguous_strides(space)[len(space) - len(read.shape) :]
    return broadcast_strides(space, read.shape, strides)


def _lying(read: Read, sizes: tuple[int, ...], steps: tuple[int, ...]) -> Read:
    shape = tuple(size if step else 1 for size, step in zip(sizes, steps, strict=True))
    return read._replace(shape=shape, strides=steps)
