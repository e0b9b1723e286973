"""A loose chain: which of its calls become one kernel.

The calls are a graph: each reads results of others, or memory. A result that no tensor holds any
more needs no memory; it is computed where it is read. All other results are the roots. Roots go
into launches in the order of their calls. A root goes into the last launch if it reads nothing that
this launch writes, or only what can be computed again; otherwise it begins a new launch. Products
that multiply the same few rows are one launch, with the calls that read their results item by item
(`row_products`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from typing import NamedTuple

from ocl_backend.fusion.held import Step
from ocl_backend.ops.fused import made_rows, row_products
from ocl_backend.ops.fused.expression_launch import fit_in_order, most_bytes, prepared
from ocl_backend.ops.fused.expression_text import Part
from ocl_backend.ops.fused.expressions import Expression, Read, squeezed

OFFSET_BITS = 40
"""Bits of an address within its block (csrc/runtime/memory.h)."""
MOST_CALLS = 40
"""Bound of the calls that one part of a kernel computes, and of their texts for one root."""


class Unit(NamedTuple):
    """What becomes one launch: parts side by side, after products if there are any.

    `rows` makes what the products multiply, if that is not in memory. Parts `in_order` are computed
    one after the other.
    """

    parts: list[Part]
    products: list[int]
    rows: Part | None = None
    in_order: bool = False


class Window:
    """The calls of a loose chain, as a graph, and the launches they become."""

    def __init__(self, steps: Sequence[Step], dropped: Sequence[bool]) -> None:
        self.steps = steps
        self.nodes = [_expression(step) for step in steps]
        self.kept = {i for i, node in enumerate(self.nodes) if not (dropped[i] and node.can_move)}
        self.dropped = dropped
        self.sources: list[list[int | None]] = []
        """Of each call's inputs: the call whose result they are, item by item."""
        self.behind: list[set[int]] = []
        """Calls whose results a call reads otherwise: they have to be in memory."""
        self.unread: list[set[int]] = []
        """Calls that read what a call overwrites: they have to be in earlier launches."""
        self.stored: set[int] = set()
        """Products whose results are read from memory, or live on."""
        self.units: list[Unit] = []
        self.unit_of: dict[int, Unit] = {}
        self.early: set[int] = set()
        """Calls that read what a later call overwrites."""
        self.maker: dict[int, int] = {}
        """Of a product: the call that makes its rows, which only products read."""
        self.rows: dict[int, Part | None] = {}
        """Of such a call: the part that makes the rows in the products' launch."""
        self._connect()
        self.is_apart = not any(
            node.kind == "product" or any(source is not None for source in sources)
            for node, sources in zip(self.nodes, self.sources, strict=True)
        )
        """Whether no call can be one with another, as where an optimiser fills its tensors."""
        if self.is_apart:
            return
        for i, node in enumerate(self.nodes):
            if node.kind == "product":
                self._place_product(i)
            elif i in self.kept:
                self._place(i)

    def _connect(self) -> None:
        """Find which call made what each call reads."""
        made: dict[int, int] = {}
        blocks: dict[int, list[int]] = {}
        readers: dict[int, set[int]] = {}
        read_by_item: set[int | None] = set()
        makers: dict[int, int] = {}
        forced: set[int] = set()
        for i, (step, node) in enumerate(zip(self.steps, self.nodes, strict=True)):
            sources: list[int | None] = []
            behind: set[int] = set()
            for read in node.inputs:
                address = step.values[read.place]
                source = made.get(address)
                if (
                    source is not None
                    and read is node.inputs[0]
                    and made_rows.are_rows_of(node, read, self.nodes[source])
                ):
                    makers[i] = source
                    sources.append(None)
                    continue
                if source is not None and not _is_item_by_item(node, read, self.nodes[source]):
                    source = None
                if source is None:
                    behind.update(blocks.get(address >> OFFSET_BITS, ()))
                sources.append(source)
            forced |= behind
            read_by_item.update(sources)
            self.stored |= {j for j in behind if self.nodes[j].kind == "product"}
            self.sources.append(sources)
            self.behind.append(behind)
            address = step.values[node.out.place]
            self.unread.append(readers.get(address >> OFFSET_BITS, set()).copy())
            self.early |= self.unread[i]
            for read in node.inputs:
                readers.setdefault(step.values[read.place] >> OFFSET_BITS, set()).add(i)
            made[address] = i
            blocks.setdefault(address >> OFFSET_BITS, []).append(i)
            if node.kind == "product" and not self.dropped[i]:
                self.stored.add(i)
        # what no call reads is computed all the same, as a program that takes times expects
        forced |= self.early
        self.kept |= forced | ({*range(len(self.nodes))} - read_by_item)
        for i, maker in makers.items():
            if maker in forced or maker in read_by_item:
                self._keep_rows(i, maker)
            else:
                self.maker[i] = maker
        self.kept -= {*self.maker.values()}

    def _keep_rows(self, i: int, maker: int) -> None:
        """Let a product read its rows from memory."""
        self.kept.add(maker)
        self.behind[i].add(maker)

    def _rows(self, i: int) -> Part | None:
        """Return the part that makes a product's rows in its launch; None: they are in memory."""
        if (maker := self.maker.get(i)) is None:
            return None
        if maker not in self.rows:
            products = [j for j, of in self.maker.items() if of == maker]
            self.rows[maker] = part = row_products.rows_part(self, maker, products)
            if part:
                self._note_stored(part)
            else:
                for j in products:
                    self._keep_rows(j, maker)
                self._place(maker)
        return self.rows[maker]

    def _place_product(self, i: int) -> None:
        """Put a product into the last launch, if that multiplies the same rows, or a new one."""
        rows = self._rows(i)
        if self.units and (last := self.units[-1]).products:
            earlier = self.behind[i] | self.unread[i]
            apart = all(self.unit_of[j] is not last for j in earlier)
            if apart and row_products.are_siblings(self.steps, [*last.products, i]):
                last.products.append(i)
                self.unit_of[i] = last
                return
        self._begin([], [i], rows)

    def _begin(self, parts: list[Part], products: list[int], rows: Part | None = None) -> None:
        unit = Unit(parts, products, rows)
        self.units.append(unit)
        made = [*parts, rows] if rows else parts
        for i in (*products, *(root for part in made for root in part.roots)):
            self.unit_of[i] = unit

    def _place(self, i: int) -> None:
        """Put a root into the last launch, an earlier one if that helps, or a new one."""
        if i in self.early and self.nodes[i].can_move and self._placed_early(i):
            return
        if self.units:
            last = self.units[-1]
            tree = self.tree(i, last)
            if tree is not None and (joined := self._joined(last, i, tree)):
                last.parts[:] = joined
                self.unit_of[i] = last
                return
        tree = self.tree(i)
        assert tree is not None  # a new launch writes nothing that it reads
        part = self.part([i], tree)
        if part is None or most_bytes(self, [part], []) is None:
            self._cut(tree)
            self._place(i)
            return
        self._note_stored(part)
        self._begin([part], [])

    def _placed_early(self, i: int) -> bool:
        """Put what reads memory that is overwritten later into the first launch that can have it.

        In the last one it would keep the call that overwrites out of it.
        """
        for place, unit in enumerate(self.units[:-1]):
            tree, before = self.tree(i, unit), {*map(id, self.units[:place])}
            if tree is None or any(
                id(self.unit_of.get(j)) not in before for j in self._needed(tree)
            ):
                continue
            if joined := self._joined(unit, i, tree):
                unit.parts[:] = joined
                self.unit_of[i] = unit
                return True
        return False

    def _needed(self, tree: Sequence[int]) -> set[int]:
        """Return the calls whose launches come before the one that computes a tree."""
        reads = {j for i in tree for j in self.sources[i] if j is not None and j not in tree}
        return reads.union(*(self.behind[i] | self.unread[i] for i in tree))

    def _cut(self, tree: Sequence[int]) -> None:
        """Let a call of a tree that no one kernel computes be in memory: what walks apart, first.

        Args:
            tree: the root and its sources, which come first.
        """
        sources = tree[:-1]
        kinds = [self.nodes[j].kind for j in sources]
        place = next((kinds.index(kind) for kind in ("mean", "cat") if kind in kinds), None)
        j = sources[len(sources) // 2 if place is None else place]
        self.kept.add(j)
        self._place(j)

    def tree(self, root: int, unit: Unit | None = None) -> list[int] | None:
        """Return the calls to compute for `root` in `unit`, sources first; None: it cannot be."""
        found: dict[int, None] = {}
        return [*found] if self._visit(root, unit, found) else None

    def _visit(self, i: int, unit: Unit | None, found: dict[int, None]) -> bool:
        """Add a call of a tree behind its sources; False if it cannot be computed in `unit`.

        A method: a function within `tree` that calls itself would keep the window, its steps and
        launches until a garbage collection.
        """
        if i in found:
            return True
        if unit and any(self.unit_of.get(j) is unit for j in self.behind[i] | self.unread[i]):
            return False
        for j in self.sources[i]:
            if j is None:
                continue
            is_here = unit is not None and self.unit_of.get(j) is unit
            if self.nodes[j].can_move and (j not in self.kept or is_here):
                if not self._visit(j, unit, found):
                    return False
            elif is_here and self.nodes[j].kind != "product":
                return False
        found[i] = None
        return True

    def _joined(self, unit: Unit, i: int, tree: list[int]) -> list[Part] | None:
        """Return the unit's parts with a root `i` more, or None if they cannot be one launch."""
        parts = unit.parts
        if unit.products:
            part = self.part([i], tree)
            made = part and row_products.joined(self, unit, part)
        else:
            made = self._side_by_side(parts, i, tree)
        before = [unit.rows] if unit.rows else []
        if made is None or most_bytes(self, [*before, *made], unit.products) is None:
            return None
        for part in made:
            self._note_stored(part)
        return made

    def _side_by_side(self, parts: Sequence[Part], i: int, tree: list[int]) -> list[Part] | None:
        for place, part in enumerate(parts):
            both = list(dict.fromkeys((*part.computed, *tree)))
            made = self.part([*part.roots, i], both)
            if made is not None:
                return [*parts[:place], made, *parts[place + 1 :]]
        alone = self.part([i], tree)
        return None if alone is None else [*parts, alone]

    def part(self, roots: list[int], tree: list[int]) -> Part | None:
        """Return the part of a kernel that computes `tree`, or None if no one walk serves it.

        None as well where it is too much for one kernel.
        """
        if len(tree) > MOST_CALLS:
            return None
        means = [j for j in tree if self.nodes[j].kind == "mean"]
        wide = {self.nodes[j].inputs[0].shape for j in means}
        shapes = {self.nodes[j].out.shape for j in roots}
        if means:
            if len(wide) != 1 or any(self.nodes[j].kind in ("cat", "index_copy") for j in tree):
                return None
            (space,) = wide
            if any(shape not in (space, (*space[:-1], 1)) for shape in shapes):
                return None
        elif len(shapes) != 1:
            return None
        else:
            (space,) = shapes
            if self.nodes[roots[0]].kind == "index_copy":
                space = self.nodes[roots[0]].inputs[0].shape
                if len(roots) > 1:
                    return None
            elif any(self.nodes[j].kind == "index_copy" for j in roots):
                return None
        inside = {*tree}
        if max(self._texts(i, inside, {}) for i in roots) > MOST_CALLS:
            return None
        return Part(roots, sorted(tree), space)

    def _texts(self, i: int, tree: Collection[int], known: dict[int, int]) -> int:
        """Return how many calls of a tree are written for the result of call `i`.

        Each is written once, except for what a concatenation reads: that is written for each part.

        Args:
            i: the call.
            tree: what is computed; all else is loaded.
            known: what was found out of other calls.
        """
        if i not in known:
            count, seen, ahead = 0, {i}, [i]
            while ahead:
                j = ahead.pop()
                count += 1
                inside = [k for k in self.sources[j] if k is not None and k in tree]
                if self.nodes[j].kind == "cat":
                    count += sum(self._texts(k, tree, known) for k in inside)
                else:
                    ahead += {*inside} - seen
                    seen.update(inside)
            known[i] = count
        return known[i]

    def _note_stored(self, part: Part) -> None:
        """Note the products that a part reads from memory."""
        for i in part.computed:
            for j in self.sources[i]:
                if j is not None and self.nodes[j].kind == "product" and j not in part.products:
                    self.stored.add(j)

    def _launches(self) -> list[Unit]:
        """Return the units, small ones that follow one another as one.

        A cache's counter is read, then advanced: on a processor that is no reason for two launches.
        """
        made: list[Unit] = []
        for unit in self.units:
            if made and not made[-1].products and not unit.products:
                both = Unit([*made[-1].parts, *unit.parts], [], in_order=True)
                if _computes_between(both) and fit_in_order(self, both.parts):
                    made[-1] = both
                    continue
            made.append(unit)
        return made

    def run(self) -> None:
        """Enqueue all launches."""
        if self.is_apart:
            for step in self.steps:
                step.rule.alone(step)
            return
        for unit in self._launches():
            if unit.products:
                row_products.run(self, unit)
            elif _computes_between(unit):
                launch, values = prepared(self, unit.parts, unit.in_order)
                launch(*values)
            else:  # nothing is saved but launches: programs that there are already serve
                for i in sorted(i for part in unit.parts for i in part.roots):
                    self.steps[i].rule.alone(self.steps[i])


def _expression(step: Step) -> Expression:
    loose = step.rule.loose
    assert isinstance(loose, Expression)
    return loose


def _computes_between(unit: Unit) -> bool:
    """Say whether calls whose results are not kept are part of a unit."""
    return any(len(part.computed) > len(part.roots) for part in unit.parts)


def _is_item_by_item(node: Expression, read: Read, source: Expression) -> bool:
    """Say whether an item that is read is an item of the result, at the same place."""
    if node.kind == "product" or read.dtype is not source.out.dtype:
        return False
    if source.kind == "product":
        alike = prod(read.shape) == prod(source.out.shape) and read.is_dense
        return alike and read.shape[-1:] == source.out.shape[-1:] != (1,)
    return read.shape == source.out.shape and squeezed(read) == squeezed(source.out)
