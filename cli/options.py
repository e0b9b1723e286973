"""Options that several commands share, and how a problem is read from the command line."""

from __future__ import annotations

import click

from oclgen.keys import CONV_FORM, GEMM_FORM, parse_conv, parse_gemm
from oclgen.problem import Problem, ProblemError

device_option = click.option(
    "--device",
    "device",
    default="0",
    show_default=True,
    metavar="INDEX|NAME",
    help="Index in `oclgen devices`, or a part of the device's name or runtime.",
)

db_option = click.option(
    "--db",
    "where",
    metavar="URL|PATH",
    help="Database: an SQLAlchemy URL or a file. Default: $OCLGEN_DB, else the user's data folder.",
)

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, for programs, instead of a table."
)


def parse_problem(text: str) -> Problem:
    """Return the product or convolution that a short form or a key describes.

    Raises:
        ProblemError: it is neither, or cannot exist.
    """
    if text.startswith("conv:") or "," in text.split(":")[0]:
        return parse_conv(text)
    if text.startswith("gemm:") or "x" in text.split(":")[0].lower():
        return parse_gemm(text)
    raise ProblemError(
        f"{text!r} is no problem. A product is {GEMM_FORM}; a convolution is {CONV_FORM}"
    )
