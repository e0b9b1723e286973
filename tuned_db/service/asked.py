"""Parameters of requests: keys, pages, filters and orders, each with its bounds."""

from __future__ import annotations

from typing import Annotated, Literal, get_args
from urllib.parse import urlencode

from fastapi import Depends, Path, Query

from oclgen.families import FAMILIES
from oclgen.problem import PRODUCT_DTYPES
from tuned_db.views.browse import Filter
from tuned_db.views.titles import DIRECTIONS

LARGEST = 2**63 - 1
"""The largest key that a database counts to."""

After = Annotated[int, Query(ge=0, le=LARGEST, description="Key after which the page begins.")]
Limit = Annotated[int, Query(ge=1, le=500, description="Most items of a page.")]
Key = Annotated[int, Path(ge=1, le=LARGEST)]
AnyKey = Annotated[int, Query(ge=1, le=LARGEST)]
MaybeKey = Annotated[int | None, Query(ge=1, le=LARGEST)]
Word = Annotated[str, Query(max_length=64, pattern=r"^\w*$")]
Text = Annotated[str, Query(max_length=400, pattern=r"^[^\x00-\x1f\x7f]*$")]
DeviceKind = Literal["", "cpu", "gpu", "other"]
Caches = Literal["", "warm", "cold"]
Source = Literal["", "here", "claimed"]
Sort = Literal[
    "", "ms", "-ms", "problem", "-problem", "family", "-family",
    "trials", "-trials", "created", "-created",
]  # fmt: skip
CHOICES: dict[str, tuple[str, ...]] = {
    "op": ("gemm", "conv", "attention", "packed"),
    "dtype": tuple(PRODUCT_DTYPES),
    "direction": tuple(DIRECTIONS),
    "family": tuple(FAMILIES),
    "cache": get_args(Caches)[1:],
    "source": get_args(Source)[1:],
}
"""The choices that a page offers for each part of a filter."""


async def _asked(  # what is async needs no thread
    op: Word = "",
    family: Word = "",
    text: Text = "",
    dtype: Word = "",
    direction: Word = "",
    cache: Caches = "",
    source: Source = "",
    problem: Text = "",
) -> Filter:
    return Filter(
        op=op, family=family, text=text, dtype=dtype, direction=direction, cache=cache,
        source=source, problem=problem,
    )  # fmt: skip


Wanted = Annotated[Filter, Depends(_asked)]
"""A filter as a request's parameters say it."""


def to_query(wanted: Filter, **more: object) -> str:
    """Return a filter and `more` as parameters of a request, without those that are not set.

    Args:
        wanted: the filter; its device is part of the path.
        more: further parameters.
    """
    names = (*CHOICES, "text", "problem")
    values = {name: getattr(wanted, name) for name in names} | more
    return urlencode({name: value for name, value in values.items() if value})
