"""The valid configs of one family for one problem: the search asks for no others.

A module for each family says which values are worth trying; `search` orders the configs. They are
enumerated when the first of them has to be found: a family's guesses come before, and a short
search has no others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from importlib import import_module
from itertools import product
from math import prod
from pkgutil import iter_modules
from typing import Any

import numpy as np
from numpy.typing import NDArray

import search_spaces
from oclgen.families import FAMILIES, default_of, valid_configs
from oclgen.families.conv.conv_as_gemm import ConvAsGemm, lowered
from oclgen.limits import Limits
from oclgen.problem import Problem
from search_spaces.values import Value

Values = Callable[[Any, Limits], Mapping[str, tuple[Value, ...]]]
"""Values worth trying of each parameter, for a problem on a device with such limits."""
MOST_SEEDS = 12
"""A family's guesses that a search begins with: more would leave a short one nothing to find."""
SPLIT = "split_k"
"""The parameter of all families that cut a reduction into slices."""
PRODUCT_LIMIT = 400_000
"""Configs that are looked at before a family's values are called too many."""


def _of_product(values: Values) -> Values:
    """Return what is worth trying for a 1x1 convolution: what is for its product."""
    return lambda problem, limits: values(lowered(problem), limits)


def _spaces() -> dict[str, Values]:
    """Return the values of all families: a module under the family's name in a folder of its kind.

    A family that serves 1x1 convolutions by a GEMM family has that one's values.
    """
    modules = [
        f"{folder.name}.{module.name}"
        for folder in iter_modules(search_spaces.__path__, "search_spaces.")
        if folder.ispkg
        for module in iter_modules(import_module(folder.name).__path__)
    ]
    own: dict[str, Values] = {
        name.rpartition(".")[2]: import_module(name).values
        for name in modules
        if name.rpartition(".")[2] in FAMILIES
    }
    faces = {
        name: _of_product(own[family.gemm.NAME])
        for name, family in FAMILIES.items()
        if isinstance(family, ConvAsGemm)
    }
    return own | faces


SPACES: dict[str, Values] = _spaces()
"""What is worth trying, by family; a family that is missing here is tried by its guesses alone."""


@dataclass(frozen=True, eq=False)
class Space(ABC):
    """Valid configs as points: one row each, the index of each parameter's value.

    Integers are sorted, so that the index of a power of two is its logarithm and neighbours are
    similar.
    """

    kind: Any
    names: tuple[str, ...]
    values: tuple[tuple[Value, ...], ...]

    @property
    @abstractmethod
    def points(self) -> NDArray[np.int64]:
        """All points, [count, parameters], in the order of the product, without repetition."""

    def __len__(self) -> int:
        """Return the number of valid configs."""
        return len(self.points)

    def __contains__(self, config: Any) -> bool:
        """Whether a config is one of these."""
        return self.row_of(config) is not None

    @property
    def ordered(self) -> tuple[bool, ...]:
        """For each parameter whether its values have an order (integers do)."""
        return tuple(all(type(value) is int for value in values) for values in self.values)

    @property
    def _shape(self) -> tuple[int, ...]:
        return tuple(len(values) for values in self.values)

    @cached_property
    def _codes(self) -> NDArray[np.int64]:
        """One ascending number per row, to find a point by."""
        return np.asarray(np.ravel_multi_index(tuple(self.points.T), self._shape))

    def config(self, row: int) -> Any:
        """Return the config of a row."""
        indices = self.points[row]
        chosen = zip(self.names, self.values, indices, strict=True)
        return self.kind(**{name: values[index] for name, values, index in chosen})

    def row_of(self, config: Any) -> int | None:
        """Return the row of a config, None if it is not one of these."""
        point = self._point_of(config)
        return None if point is None else self.row_at(point)

    def row_at(self, point: list[int]) -> int | None:
        """Return the row of a point, None if that config is not valid."""
        code = np.ravel_multi_index(tuple(point), self._shape)
        row = int(np.searchsorted(self._codes, code))
        return row if row < len(self) and self._codes[row] == code else None

    def near(self, row: int, steps: int) -> NDArray[np.intp]:
        """Return the rows that differ from `row` in at most `steps` parameters."""
        differing = np.count_nonzero(self.points != self.points[row], axis=1)
        return np.flatnonzero(differing <= steps)

    def _point_of(self, config: Any) -> list[int] | None:
        """Return the indices of a config's values, None if one of them is none of `values`."""
        given = asdict(config)
        try:
            return [v.index(given[name]) for name, v in zip(self.names, self.values, strict=True)]
        except ValueError:
            return None


@dataclass(frozen=True, eq=False)
class ListedSpace(Space):
    """Configs that are known as points, such as those of a table, in the order of the product."""

    listed: NDArray[np.int64]

    @property
    def points(self) -> NDArray[np.int64]:
        """All points, as they were given."""
        return self.listed


@dataclass(frozen=True, eq=False)
class ProductSpace(Space):
    """The configs of all combinations of values that a rule accepts.

    They are enumerated at the first use of their rows: seconds beside other programs. Whether a
    config is one of them is known without that.

    Attributes:
        is_valid: the rule.
        before_each: is called before each config is looked at. What it raises ends an enumeration,
            which the next use begins again.
    """

    is_valid: Callable[[Any], bool]
    before_each: Callable[[], None] = lambda: None

    @cached_property
    def points(self) -> NDArray[np.int64]:
        """All points, enumerated once."""
        grid = product(*(range(len(each)) for each in self.values))
        valid = [
            indices
            for indices, chosen in zip(grid, product(*self.values), strict=True)
            if self._is_next_valid(chosen)
        ]
        return np.array(valid, dtype=np.int64).reshape(len(valid), len(self.names))

    def __contains__(self, config: Any) -> bool:
        """Whether a config is one of these, by the rule."""
        return self._point_of(config) is not None and self.is_valid(config)

    def _is_next_valid(self, chosen: tuple[Value, ...]) -> bool:
        self.before_each()
        return self.is_valid(self.kind(*chosen))


def space_of(
    family: str, problem: Problem, limits: Limits, before_each: Callable[[], None] = lambda: None
) -> Space:
    """Return the valid configs of `family`, by its own values and its own rule.

    Args:
        family: a name of `FAMILIES`.
        problem: which the family serves.
        limits: of the device.
        before_each: as `ProductSpace` has it.

    Raises:
        ValueError: the values' product is too large to enumerate.
    """
    module = FAMILIES[family]
    values: dict[str, tuple[Value, ...]] = {n: (v,) for n, v in asdict(module.DEFAULT).items()}
    values |= SPACES[family](problem, limits) if family in SPACES else {}
    if len(values.get(SPLIT, ())) > 1:
        guessed = {getattr(one, SPLIT) for one in seeds_of(family, problem, limits)}
        others = prod(len(each) for name, each in values.items() if name != SPLIT)
        values[SPLIT] = _with_guessed(values[SPLIT], guessed)[: max(PRODUCT_LIMIT // others, 1)]
    return product_space(
        module.Config,
        values,
        lambda config: config.quick_why_not(problem, limits) is None,
        before_each,
    )


def _with_guessed(splits: Iterable[Any], guessed: set[int]) -> tuple[Value, ...]:
    """Return guessed splits, which depend on tiles, and those of `splits` that are unlike them.

    Those come last that matter least where there are too many.
    """
    unlike = (
        split for split in splits if all(2 * max(split, g) > 3 * min(split, g) for g in guessed)
    )
    return tuple(dict.fromkeys((1, *sorted(guessed), *unlike)))


def seeds_of(family: str, problem: Problem, limits: Limits) -> list[Any]:
    """Return valid configs to begin with: the family's first guesses, then its default.

    Args:
        family: a name of `FAMILIES`.
        problem: which the family serves.
        limits: of the device.
    """
    default = default_of(FAMILIES[family], problem, limits)
    valid = list(valid_configs(FAMILIES[family], problem, limits))
    return [*valid[:MOST_SEEDS], *(config for config in valid[MOST_SEEDS:] if config == default)]


def product_space(
    kind: Any,
    values: Mapping[str, tuple[Value, ...]],
    is_valid: Callable[[Any], bool],
    before_each: Callable[[], None] = lambda: None,
) -> ProductSpace:
    """Return the space of the valid configs over lists of values.

    Args:
        kind: the family's `Config`.
        values: of each parameter of `kind`, in any order.
        is_valid: says whether a config belongs to the space.
        before_each: as `ProductSpace` has it.

    Raises:
        ValueError: the product is larger than `PRODUCT_LIMIT`, or names no parameters of `kind`.
    """
    names = tuple(field.name for field in fields(kind))
    if set(values) != set(names):
        raise ValueError(f"{sorted(values)} are not the parameters {sorted(names)}")
    lists = tuple(_in_order(values[name]) for name in names)
    if (count := prod(len(each) for each in lists)) > PRODUCT_LIMIT:
        raise ValueError(f"{count} configs are too many to enumerate; at most {PRODUCT_LIMIT}")
    return ProductSpace(kind, names, lists, is_valid, before_each)


def _in_order(values: tuple[Value, ...]) -> tuple[Value, ...]:
    unique = tuple(dict.fromkeys(values))
    return tuple(sorted(unique)) if all(type(value) is int for value in unique) else unique
