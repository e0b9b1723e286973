"""The command group, and the one place where errors become messages with exit code 1."""

from __future__ import annotations

import os
from typing import Any

import click

from .check import check
from .compare import compare
from .database import database
from .devices import devices, ray_resources
from .doctor import doctor
from .explain import explain
from .report import report
from .source import show_source
from .tune import tune

OWN_PACKAGES = ("oclgen", "oclgen_cli", "search_spaces", "tuned_db", "ocl_backend")


class Commands(click.Group):
    """A group whose commands end with a sentence, not a traceback, where the user can help."""

    def __call__(self, *args: Any, **more: Any) -> Any:
        """Run as a process of its own: commands began when the process did (`ctx.obj`)."""
        from search_spaces.timing import process_began

        return super().__call__(*args, obj=process_began(), **more)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; turn the project's exceptions into `click.ClickException`.

        Raises:
            click.ClickException: the command failed by the user's doing; it says what to do.
        """
        try:
            return super().invoke(ctx)
        except Exception as error:
            if is_users(error):
                raise click.ClickException(str(error)) from error
            raise


def is_users(error: Exception) -> bool:
    """Say whether an error is the user's or the machine's to mend, not a fault of this program."""
    if isinstance(error, ImportError):  # a package that is missing or broken, none of ours
        return (error.name or "").split(".")[0] not in OWN_PACKAGES
    from oclgen.families import ConfigError
    from oclgen.problem import ProblemError
    from oclgen.profiles import ProfileError
    from oclgen.recording import RecordingError
    from search_spaces.progress import CrewError
    from tuned_db import DatabaseError, ImportFileError, NoVariantError, RecordError

    kinds = (
        ConfigError, CrewError, DatabaseError, ImportFileError, NoVariantError, ProblemError,
        ProfileError, RecordError, RecordingError,
    )  # fmt: skip
    return isinstance(error, kinds) or _is_devices(error)


def _is_devices(error: Exception) -> bool:
    try:
        from oclgen.measuring.worker import WorkerError
        from oclgen.opencl.device import BuildError, DeviceError, LaunchError
    except ImportError:  # then no device can have failed
        return False
    return isinstance(error, (BuildError, DeviceError, LaunchError, WorkerError))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="oclgen")
@click.option(
    "--device-profile",
    metavar="NAME|PATH",
    help="Lay the limits of another device over those here, as $OCLGEN_DEVICE_PROFILE does.",
)
def main(device_profile: str | None) -> None:
    """Generate, tune and keep GEMM, convolution and attention kernels for any OpenCL device."""
    if device_profile is not None:
        os.environ["OCLGEN_DEVICE_PROFILE"] = device_profile  # for this process's children, too


for command in (
    devices, doctor, check, tune, explain, show_source, database, report, compare, ray_resources
):  # fmt: skip
    main.add_command(command)
