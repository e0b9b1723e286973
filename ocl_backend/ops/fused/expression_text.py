"""OpenCL C of the parts of a loose chain's launches.

A launch has parts side by side, each with work-groups of its own. A part walks one space: flat, an
item or a vector for each step of a work-item, or by rows, a work-group for each, if it has means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels import vectors
from ocl_backend.kernels.vectors import in_type
from ocl_backend.ops.fused.expression_arguments import Arguments, as_stored
from ocl_backend.ops.fused.expressions import LOADED, Expression, Read
from oclgen.plan import ceil_div

if TYPE_CHECKING:
    from ocl_backend.fusion.held import Step

Index = tuple[str, ...]


class Chain(Protocol):
    """Calls, what they compute, and of each call's inputs the call that made it, if one did."""

    @property
    def nodes(self) -> Sequence[Expression]:
        """What the calls compute."""

    @property
    def sources(self) -> Sequence[Sequence[int | None]]:
        """Of each call's inputs: the call whose result they are, item by item."""

    @property
    def steps(self) -> Sequence[Step]:
        """The calls."""


class Part(NamedTuple):
    """What some work-groups compute: `roots` are written, `computed` are they and their sources.

    Both are places in the chain, in order. `products` are those whose sums it reads.
    """

    roots: list[int]
    computed: list[int]
    space: tuple[int, ...]
    products: tuple[int, ...] = ()

    def by_rows(self, nodes: Sequence[Expression]) -> bool:
        """Whether a work-group shares a row."""
        return any(nodes[i].kind == "mean" for i in self.computed)

    def axis(self, nodes: Sequence[Expression]) -> int:
        """Return the dimension that a step walks, from the end: the last one of several items.

        Means and joined tensors have their rows along the last one.
        """
        if self.products or any(nodes[i].kind != "pointwise" for i in self.computed):
            return -1
        return next((-d for d, n in enumerate(reversed(self.space), 1) if n > 1), -1)


class Writer:
    """Writes what one part computes. `made` are variables of what is known beforehand.

    Its sizes are arguments if it `is_free`, and wherever a length grows from call to call. Vectors
    lie along the dimension `axis`, counted from the end.
    """

    def __init__(
        self, chain: Chain, part: Part, arguments: Arguments, width: int, is_free: bool = False,
        axis: int = -1,
    ) -> None:  # fmt: skip
        self.axis = axis
        self.chain, self.part, self.arguments, self.width = chain, part, arguments, width
        self.nodes = chain.nodes
        computed = [self.nodes[i] for i in part.computed]
        grows = any(n.kind == "cat" and n.axis < len(n.out.shape) - 1 for n in computed)
        self.is_free = is_free or grows
        self.made: dict[tuple[int, Index], str] = {}
        self._names = 0

    def name(self) -> str:
        """Return a new variable's name."""
        self._names += 1
        return f"v{self._names}"

    def size(self, value: int) -> str:
        """Return a size or stride as text."""
        return self.arguments.size(value, self.is_free)

    def at(self, read: Read, index: Index) -> str:
        """Return where the item at `index` lies."""
        terms = [
            i if step == 1 else f"{i} * {self.size(step)}"
            for i, step, n in zip(index, read.strides, read.shape, strict=True)
            if step and n > 1 and i != "0"
        ]
        return " + ".join(terms) or "0"

    def walk(self) -> Index:
        """Return the index of the present item of the space."""
        walked = len(self.part.space) + self.axis
        names = [f"i{d}" if d != walked else "c" for d in range(len(self.part.space))]
        return tuple("0" if n == 1 else i for i, n in zip(names, self.part.space, strict=True))

    def load(self, step: int, read: Read, index: Index, width: int) -> str:
        """Return the expression that reads `width` items at `index`."""
        name, at, dtype = self.arguments.pointer(step, read), self.at(read, index), read.dtype
        last = self._step(read, index)
        stride = str(last) if last in (0, 1) else self.size(last)
        return vectors.load(dtype_of(dtype), name, f"({at})", stride, width)

    def _step(self, read: Read, index: Index) -> int:
        """Return how far apart a vector's items lie; 0: all of them are one."""
        axis = self.axis
        moves = len(index) >= -axis and index[axis] != "0" and read.shape[axis] > 1
        return read.strides[axis] if moves else 0

    def value(
        self, i: int, index: Index, width: int, lines: list[str], made: dict[tuple[int, Index], str]
    ) -> str:
        """Append what computes a call's result at `index`; return the variable that has it."""
        if (i, index) in made:
            return made[i, index]
        node = self.nodes[i]
        if node.kind == "product":  # its sums are known at the space's own index
            return made[i, ()]
        name = self.name()
        lines.append(f"{vectors.vector(node.value, width)} {name};")
        if node.kind == "cat":
            self._cat(i, index, width, lines, made, name)
        else:
            inner = [
                f"const {vectors.vector(node.value, width)} {read.name} = "
                f"{self.operand(i, place, index, width, lines, made)};"
                for place, read in enumerate(node.inputs)
            ]
            for number in node.numbers:
                given = self.arguments.number(i, number.place, number.type)
                kind = vectors.vector(node.value, width)
                inner.append(f"const {kind} {number.name} = ({kind})({given});")
            text = node.text.replace("POSITION", _position(index[-1], width))
            text = re.sub(r"\bR\b", vectors.vector("int", width), text)
            inner += in_type(text, node.value, width).splitlines()
            inner.append(f"{name} = {as_stored(node.out.dtype, 'out', width)};")
            lines += ["{", *(f"    {line}" for line in inner), "}"]
        made[i, index] = name
        return name

    def operand(
        self, i: int, place: int, index: Index, width: int, lines: list[str],
        made: dict[tuple[int, Index], str],
    ) -> str:  # fmt: skip
        """Return the expression of a call's input for its result at `index`."""
        node = self.nodes[i]
        read, source = node.inputs[place], self.chain.sources[i][place]
        at = _narrowed(read.shape, index)
        value = LOADED[read.dtype]
        if source is not None and (source in self.part.computed or source in self.part.products):
            found = self.value(source, at, width, lines, made)
            return vectors.convert(value, node.value, found, width)
        loaded = self.load(i, read, at, width)
        return vectors.convert(value, node.value, loaded, width)

    def _cat(
        self, i: int, index: Index, width: int, lines: list[str],
        made: dict[tuple[int, Index], str], name: str,
    ) -> None:  # fmt: skip
        node = self.nodes[i]
        start, axis = 0, node.axis
        for place, read in enumerate(node.inputs):
            end = start + read.shape[axis]
            last = place == len(node.inputs) - 1
            branch = "" if last else f"if ({index[axis]} < {self.size(end)}) "
            shifted = index[axis] if not start else f"({index[axis]} - {self.size(start)})"
            inner: list[str] = []
            at = (*index[:axis], shifted, *index[axis + 1 :])
            value = self.operand(i, place, at, width, inner, dict(made))
            inner.append(f"{name} = {as_stored(node.out.dtype, value, width)};")
            lines += [
                f"{'else ' if place else ''}{branch}{{",
                *(f"    {line}" for line in inner),
                "}",
            ]
            start = end

    def store(self, i: int, index: Index, value: str, width: int) -> list[str]:
        """Return the statements that write a root's items at `index`."""
        out = self.nodes[i].out
        kind, at = dtype_of(out.dtype), self.at(out, index)
        last = self._step(out, index)
        stride = "1" if width == 1 or last == 1 else self.size(last)
        name = self.arguments.pointer(i, out, writes=True)
        kept = vectors.convert(self.nodes[i].value, kind.value, value, width)
        return vectors.store(kind, name, f"({at})", stride, kept, width)

    def roots(self, narrow: bool, made: dict[tuple[int, Index], str], width: int = 0) -> list[str]:
        """Return what computes and writes the roots that have one item a row, or the others.

        Args:
            narrow: which of them.
            made: variables of what is known.
            width: items of a step; 0: as many as the part has.
        """
        wide = width or self.width
        lines: list[str] = []
        for i in self.part.roots:
            shape = self.nodes[i].out.shape
            if narrow != (shape[-1:] == (1,) and self.part.space[-1] > 1):
                continue
            width = 1 if narrow else wide
            if self.nodes[i].kind == "index_copy":
                lines += self._index_copy(i, width, made)
                continue
            index = _narrowed(shape, self.walk())
            lines += self.store(i, index, self.value(i, index, width, lines, made), width)
        return lines

    def _index_copy(self, i: int, width: int, made: dict[tuple[int, Index], str]) -> list[str]:
        node, walk, lines = self.nodes[i], self.walk(), list[str]()
        target, size = node.out, node.out.shape[node.axis]
        place = self.operand(i, 1, (walk[node.axis],), 1, lines, made)
        dim, operator, wraps, record = (number.place for number in node.numbers)
        noted = Read("faults", record, torch.int64, (1,), (1,))
        faults = self.arguments.pointer(i, noted, writes=True)
        given = [int(self.chain.steps[i].values[place]) for place in (dim, wraps, operator)]
        lines.append(
            f"const int at{i} = (int)place({place}, {size}, {given[0]}, {given[1]}, {given[2]}, "
            f"{faults});"
        )
        value = self.operand(i, 0, walk, width, lines, made)
        index = (*walk[: node.axis], f"at{i}", *walk[node.axis + 1 :])
        return [*lines, *self.store(i, index, as_stored(target.dtype, value, width), width)]

    def lines(self, local: int, steps: int) -> list[str]:
        """Return the part's statements; `group` is the work-group's number in it."""
        if self.part.by_rows(self.nodes):
            return self._by_rows(local)
        last = self.part.space[self.axis]
        inner = self.size(ceil_div(last, self.width))
        total = self.size(prod(self.part.space) // last * ceil_div(last, self.width))
        body = self.roots(False, dict(self.made))
        if last % self.width:
            end = self.size(last)
            tail = self.roots(False, dict(self.made), 1)
            body = [
                f"if (c + {self.width} <= {end}) {{",
                *(f"    {line}" for line in body),
                f"}} else for (int at = c; at < {end}; ++at) {{",
                "    const int c = at;",
                *(f"    {line}" for line in tail),
                "}",
            ]
        first = f"(group * {local} + lane) * {steps}"
        return [
            f"for (uint t = {first}, end = min(t + {steps}, (uint){total}); t < end; ++t) {{",
            *([f"    uint rest = t / {inner};"] if len(self.rows()) else []),
            f"    const int c = (t % {inner}) * {self.width};",
            *(f"    {line}" for line in self.position()),
            *(f"    {line}" for line in body),
            "}",
        ]

    def rows(self) -> list[int]:
        """Return the dimensions of the space that say which row an item is in."""
        walked = len(self.part.space) + self.axis
        return [d for d, size in enumerate(self.part.space) if d != walked and size > 1]

    def position(self) -> list[str]:
        """Return the statements that take `rest`, a row's number, apart."""
        lines = []
        for d in reversed(self.rows()):
            n = self.size(self.part.space[d])
            lines += [f"const int i{d} = rest % {n};", f"rest /= {n};"]
        return lines

    def each(self, local: int) -> str:
        """Return the head of the loop in which `local` work-items walk a row."""
        return (
            f"for (int c = lane * {self.width}; c < {self.part.space[-1]}; "
            f"c += {local * self.width}) {{"
        )

    def means(
        self, at: Index, local: int, mark: str = ""
    ) -> tuple[list[str], dict[tuple[int, Index], str]]:
        """Return the statements that find a row's means, and the variables that have them.

        Args:
            at: an item of the row.
            local: work-items that add it up together.
            mark: ends the names of variables, where there are several rows.
        """
        lines, made = list[str](), dict[tuple[int, Index], str]()
        kind = vectors.vector("float", self.width)
        for i in (i for i in self.part.computed if self.nodes[i].kind == "mean"):
            node, inner = self.nodes[i], list[str]()
            index = _narrowed(node.inputs[0].shape, at)
            name = self.name()
            value = self.operand(i, 0, index, self.width, inner, dict(made))
            total = " + ".join(f"{name}.s{k:x}" for k in range(self.width))
            total = total if self.width > 1 else name
            mean = f"row_sum({total}, lane, scratch) / {self.part.space[-1]}.0f"
            lines += [
                f"{kind} {name} = 0;",
                self.each(local),
                *(f"    {line}" for line in (*inner, f"{name} += {value};")),
                "}",
                f"const float mean{i}{mark} = {as_stored(node.out.dtype, mean, 1)};",
                f"const {kind} means{i}{mark} = mean{i}{mark};",
            ]
            made[i, _narrowed(node.out.shape, at)] = f"means{i}{mark}"
        return lines, made

    def _by_rows(self, local: int) -> list[str]:
        means, made = self.means(self.walk(), local)
        wide, narrow = self.roots(False, dict(made)), self._narrow(made)
        return [
            "uint rest = group;",
            *self.position(),
            *means,
            *((self.each(local), *(f"    {line}" for line in wide), "}") if wide else ()),
            *(("if (lane == 0) {", *(f"    {line}" for line in narrow), "}") if narrow else ()),
        ]

    def _narrow(self, made: Mapping[tuple[int, Index], str]) -> list[str]:
        return self.roots(True, {key: name.replace("means", "mean") for key, name in made.items()})


NOTHING = "#define NOTHING ((int)get_local_id(0) / LOCAL)"
"""A zero that is added to positions, so that the compiler does not see them count as the loop does:
Intel's (2026.22) stores all results of `arange(11).clamp(1, 3) + 2` to one wrong place, if another
result has positions, too, and sizes are arguments. Without optimization it does not."""


def _position(at: str, width: int) -> str:
    """Return the places of a vector's lanes along the last dimension; 0 of a single item."""
    lanes = ", ".join(map(str, range(width)))
    at = at if at == "0" else f"{at} + NOTHING"
    return f"(T)({at})" if width == 1 or at == "0" else f"((T)({at}) + (T)({lanes}))"


def _narrowed(shape: Sequence[int], index: Index) -> Index:
    """Return the index of a tensor's item that is broadcast to the item at `index`."""
    last = index[len(index) - len(shape) :]
    return tuple("0" if n == 1 else i for i, n in zip(last, shape, strict=True))
