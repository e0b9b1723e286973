"""Options that several commands share."""

from __future__ import annotations

import click

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

MODEL_FORM = "torchvision:NAME or MODULE:FUNCTION"
