"""OpenCL C of the parts of a loose chain's launches.

A launch has parts side by side, each with work-groups of its own. A part walks one space: flat, an
item or a vector for each step of a work-item, or by rows, a work-group for each, if it has means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels import vectors
from ocl_backend.kernels.vectors import in_type
from ocl_backend.ops.fused.expression_arguments import Arguments, as_stored
from ocl_backend.ops.fused.expressions import LOADED, Expression, Read

if TYPE_CHECKING:
    from ocl_backend.ops.fused.window import Window

Index = tuple[str, ...]


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


class Writer:
    """Writes what one part computes. `made` are variables of what is known beforehand.

    Its sizes are arguments if it `is_free`, and wherever a length grows from call to call.
    """

    def __init__(
        self, window: Window, part: Part, arguments: Arguments, width: int, is_free: bool = False
    ) -> None:
        self.window, self.part, self.arguments, self.width = window, part, arguments, width
        self.nodes = window.nodes
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
        last = len(self.part.space) - 1
        names = [f"i{d}" if d < last else "c" for d in range(last + 1)]
        return tuple("0" if n == 1 else i for i, n in zip(names, self.part.space, strict=True))

    def load(self, step: int, read: Read, index: Index, width: int) -> str:
        """Return the expression that reads `width` items at `index`."""
        name, at, dtype = self.arguments.pointer(step, read), self.at(read, index), read.dtype
        last = read.strides[-1] if index and index[-1] != "0" and read.shape[-1] > 1 else 0
        stride = str(last) if last in (0, 1) else self.size(last)
        return vectors.load(dtype_of(dtype), name, f"({at})", stride, width)

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
        read, source = node.inputs[place], self.window.sources[i][place]
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
        last = out.strides[-1] if index and index[-1] != "0" and out.shape[-1] > 1 else 0
        stride = "1" if width == 1 or last == 1 else self.size(last)
        name = self.arguments.pointer(i, out, writes=True)
        kept = vectors.convert(self.nodes[i].value, kind.value, value, width)
        return vectors.store(kind, name, f"({at})", stride, kept, width)

    def roots(self, narrow: bool, made: dict[tuple[int, Index], str]) -> list[str]:
        """Return what computes and writes the roots that have one item a row, or the others."""
        lines: list[str] = []
        for i in self.part.roots:
            shape = self.nodes[i].out.shape
            if narrow != (shape[-1:] == (1,) and self.part.space[-1] > 1):
                continue
            width = 1 if narrow else self.width
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
        given = [int(self.window.steps[i].values[place]) for place in (dim, wraps, operator)]
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
        if local == 1 and steps > 1:
            return self._segments(steps)
        inner = self.size(self.part.space[-1] // self.width)
        first = f"(group * {local} + lane) * {steps}"
        return [
            f"for (uint t = {first}, end = t + {steps}; t < end; ++t) {{",
            f"    uint rest = t / {inner};",
            f"    const int c = (t % {inner}) * {self.width};",
            *(f"    {line}" for line in self.position("break;")),
            *(f"    {line}" for line in self.roots(False, dict(self.made))),
            "}",
        ]

    def _segments(self, steps: int) -> list[str]:
        """Return the statements of a processor's work-item, which walks pieces of rows.

        A step is a vector, or one of the items that a row has behind its last whole vector.
        """
        whole, left = divmod(self.part.space[-1], self.width)
        steps_of_row, vectors_of_row = self.size(whole + left), self.size(whole)
        # unsigned: Intel's compiler (2026.22) stores to wrong places where it divides a signed t
        # and fills a row with positions, such as `arange(9).clamp(0, 5)`
        lines = [
            f"for (uint t = group * {steps}, end = t + {steps}; t < end;) {{",
            f"    uint rest = t / {steps_of_row};",
            f"    const uint begin = t % {steps_of_row};",
            f"    const uint stop = min((uint){steps_of_row}, begin + (end - t));",
            "    t += stop - begin;",
            *(f"    {line}" for line in self.position("break;")),
            f"    for (uint step = begin; step < min(stop, (uint){vectors_of_row}); ++step) {{",
            f"        const int c = step * {self.width};",
            *(f"        {line}" for line in self.roots(False, dict(self.made))),
            "    }",
        ]
        if left:
            before = f"{vectors_of_row} * {self.width - 1}"
            width, self.width = self.width, 1
            lines += [
                f"    for (uint step = max(begin, (uint){vectors_of_row}); step < stop; ++step) {{",
                f"        const int c = step + {before};",
                *(f"        {line}" for line in self.roots(False, dict(self.made))),
                "    }",
            ]
            self.width = width
        return [*lines, "}"]

    def position(self, past: str) -> list[str]:
        """Return the statements that take `rest`, a row's number, apart.

        Args:
            past: the statement for what is after the last row.
        """
        lines = []
        dims = [d for d in range(len(self.part.space) - 1) if self.part.space[d] > 1]
        for d in reversed(dims):
            n = self.size(self.part.space[d])
            lines += [f"const int i{d} = rest % {n};", f"rest /= {n};"]
        return [*lines, f"if (rest > 0) {past}"]

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
            *self.position("return;"),
            *means,
            *((self.each(local), *(f"    {line}" for line in wide), "}") if wide else ()),
            *(("if (lane == 0) {", *(f"    {line}" for line in narrow), "}") if narrow else ()),
        ]

    def _narrow(self, made: Mapping[tuple[int, Index], str]) -> list[str]:
        return self.roots(True, {key: name.replace("means", "mean") for key, name in made.items()})


def _position(at: str, width: int) -> str:
    """Return the places of a vector's lanes along the last dimension; 0 of a single item."""
    lanes = ", ".join(map(str, range(width)))
    return f"(T)({at})" if width == 1 or at == "0" else f"((T)({at}) + (T)({lanes}))"


def _narrowed(shape: Sequence[int], index: Index) -> Index:
    """Return the index of a tensor's item that is broadcast to the item at `index`."""
    last = index[len(index) - len(shape) :]
    return tuple("0" if n == 1 else i for i, n in zip(last, shape, strict=True))
