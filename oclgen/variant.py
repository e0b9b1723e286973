"""A variant: a family with a config, the one noun for a way to solve problems.

It is what is searched, measured, recorded and dispatched. As text it is
`gemm_dot:item_m=2,item_n=2,...`, and a variant nested in another's config is in that form, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from oclgen.family import Family, outlined
from oclgen.limits import Limits, first_broken
from oclgen.parameters import ConfigError, Parameter, parameters, read, values_of
from oclgen.plan import Outline, Plan
from oclgen.problem import Problem

LONGEST = 2000
"""Characters of a text that is read at all."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A family's name and one of its configs; hashable, and sorted by its text."""

    family: str
    config: Any

    @classmethod
    def from_values(cls, family: str, values: Mapping[str, Any]) -> Variant:
        """Return the variant of `family` with these values of its parameters.

        Raises:
            ConfigError: the family is unknown, or a parameter is missing, unknown, of a wrong type
                or out of range; a config of another generator version is the usual reason.
        """
        return cls(family, read(family, _family(family).Config, values))

    @classmethod
    def from_text(cls, text: str) -> Variant:
        """Return the variant that `to_text` wrote; parameters that came later may be absent.

        Raises:
            ConfigError: as `from_values`, or the text has another form.
        """
        return _of_text(text)

    def values(self) -> dict[str, int | bool | str]:
        """Return the parameters' values by name, as JSON has them."""
        return values_of(self.config)

    def to_text(self) -> str:
        """Return `family:name=value,...`, a nested variant in parentheses."""
        pairs = (
            f"{name}=({value})" if isinstance(value, str) and ":" in value else f"{name}={value}"
            for name, value in self.values().items()
        )
        return f"{self.family}:{','.join(pairs)}"

    def to_json(self) -> str:
        """Return the values as canonical JSON: sorted keys, no blanks."""
        return json.dumps(self.values(), sort_keys=True, separators=(",", ":"))

    def __lt__(self, other: Variant) -> bool:
        return self.to_text() < other.to_text()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by values: a face's `Config` (`conv_as_gemm`) is a class that no module names."""
        return _unpickled, (self.family, self.values())

    def serves(self, problem: Problem) -> bool:
        """Say whether the family can compute the problem at all, whatever the config."""
        return _family(self.family).serves(problem)

    def plan(self, problem: Problem) -> Plan:
        """Return the launch plan; ask `why_not` first."""
        return _family(self.family).plan(problem, self.config)

    def outline(self, problem: Problem) -> Plan | Outline:
        """Return the plan, without texts and arguments where the family knows its sizes alone."""
        return outlined(self.config, problem) or self.plan(problem)

    def for_another(self, problem: Problem, limits: Limits) -> Variant:
        """Return the variant that a winner for one problem suggests for another.

        It has as many slices of the reduction as this problem wants, on a processor at least as
        many as a very long sum wants, and what its family adapts there; tiles stay.
        """
        if not self.serves(problem):
            return self
        on_cpu = limits.kind == "cpu"
        own = self.config.adapted if on_cpu else self.config.with_best_split
        config = own(problem, limits)
        return Variant(self.family, config.with_short_sums(problem))

    def why_not(self, problem: Problem, limits: Limits) -> str | None:
        """Say with numbers why this cannot serve `problem` on such a device, or None.

        Asked are the bounds of the parameters, the family's rule, and what the plan needs. A rule
        that raises cannot serve, and says what it raised.
        """
        try:
            if not self.serves(problem):
                return f"{self.family} does not compute {problem.key()}"
            reason: str | None = self.config.why_not(problem, limits)
            return reason or first_broken(self.plan(problem), limits)
        except Exception as error:
            return f"its rule raised {type(error).__name__}: {error}"


class Nested(NamedTuple):
    """The bound of a parameter that is the text of a variant of one of these families."""

    families: tuple[str, ...]

    def why_not(self, text: str) -> str | None:
        """Say what the text must be, None if it is that."""
        if text.partition(":")[0] not in self.families:
            return f"the text of a variant of {', '.join(self.families)}"
        try:
            _of_text(text)
        except ConfigError as error:
            return f"a variant's text: {error}"
        return None


def _unpickled(family: str, values: Mapping[str, Any]) -> Variant:
    return Variant(family, _family(family).Config(**values))


def _family(name: str) -> Family:
    from oclgen.families import FAMILIES  # some of its modules nest variants

    if name not in FAMILIES:
        raise ConfigError(f"family {name!r} is unknown; known are {', '.join(FAMILIES)}")
    return FAMILIES[name]


@lru_cache(maxsize=4096)
def _of_text(text: str) -> Variant:
    if len(text) > LONGEST:
        raise ConfigError(f"a text of {len(text)} characters is no variant; at most {LONGEST} are")
    name, _, rest = text.partition(":")
    kinds = {one.name: one for one in parameters(_family(name).Config)}
    values: dict[str, Any] = {}
    for part in _parts(rest):
        key, _, value = part.partition("=")
        if key in values:
            raise ConfigError(f"{text!r} gives {key} twice")
        values[key] = _value(kinds[key], value) if key in kinds else value
    return Variant.from_values(name, values)


def _parts(text: str) -> Iterator[str]:
    """Yield the parts of a text between those commas that are in no parentheses."""
    if "(" not in text:
        yield from text.split(",")
        return
    part, depth = "", 0
    for piece in text.split(","):
        part = f"{part},{piece}" if depth else piece
        depth += piece.count("(") - piece.count(")")
        if depth <= 0:
            yield part
            depth = 0
    if depth:
        raise ConfigError(f"{text!r} has a parenthesis that is not closed")


def _value(parameter: Parameter, text: str) -> int | bool | str:
    """Return the value that a text stands for; what is none is left to the reader to refuse."""
    if parameter.type is bool:
        return {"True": True, "False": False}.get(text, text)
    if parameter.type is int:
        digits = text.removeprefix("-")
        return int(text) if digits.isascii() and digits.isdecimal() else text
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text
