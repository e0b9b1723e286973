"""Profiles: the limits of other devices, applied to the devices that are here.

A profile is a file of this folder, or one of the user's. It lists what a real device reports
through OpenCL, each figure with its source. With `OCLGEN_DEVICE_PROFILE=NAME`, every device of the
process and of its children has those limits: `oclgen` and `ocl` plan, choose and refuse as on the
real device, and compute on the one that is here. A profile only takes away: of two limits the
smaller one holds, and an extension must be on both sides. It knows nothing of times: measurements
under a profile are recorded under a name and an architecture that no real device has.

A profile that names no device changes only instructions beyond OpenCL C, and the figures that it
gives. `unknown` gives none: it shows what an untuned device meets.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from oclgen.limits import PROFILED, DeviceInfo, Limits, broken
from oclgen.plan import Frame, Needs
from oclgen.profiles.demands import demands

VARIABLE = "OCLGEN_DEVICE_PROFILE"
FOLDER = Path(__file__).parent
_SMALLER = (
    "local_bytes", "max_work_group", "max_alloc_bytes", "global_bytes", "address_bits",
    "max_argument_bytes",
)  # fmt: skip
"""Limits that a device underneath may have less of."""
ASKED = frozenset({"instructions", "declared_local_bytes"})
"""What a device only shows when kernels ask it: no profile's device shows any. A profile that names
no device may give instructions: of those that the device underneath shows, it keeps these."""
_OF_CHOICE = frozenset({"native_float_width", "instructions"})
"""Figures by which kernels are chosen, and no driver refuses one."""


class ProfileError(ValueError):
    """No such profile, or a file that is none; the message says what there is, or what is wrong."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A real device, as its file describes it.

    Attributes:
        name: of the file.
        device: the real device's own name; empty where most of the device underneath is kept.
        figures: fields of `Limits` by name, those that the profile replaces.
        sources: where each figure was read, by the same names.
        has_records: whether the records that come with the package are there.
    """

    name: str
    device: str
    figures: dict[str, Any]
    sources: dict[str, str]
    has_records: bool

    @property
    def instructions(self) -> frozenset[str]:
        """What it keeps of the instructions that the device underneath shows."""
        return frozenset(self.figures.get("instructions", ()))

    @property
    def is_enforced(self) -> bool:
        """Whether some figure is a limit, beyond which a driver refuses what it is given."""
        return bool(self.figures.keys() - _OF_CHOICE)

    def limits(self) -> Limits:
        """Return the real device's limits; it shows no instructions beyond OpenCL C."""
        return Limits(**self.figures)

    def laid_over(self, limits: Limits) -> Limits:
        """Return what is left of a device's limits, which are `limits`, under the profile."""
        if not self.device:
            kept = limits.instructions & self.instructions
            return replace(limits, **self.figures | {"instructions": kept})
        own = asdict(self.limits())
        under = asdict(limits)
        items = zip(own["max_work_items"], under["max_work_items"], strict=True)
        return Limits(
            **own
            | {name: min(own[name], under[name]) for name in _SMALLER}
            | {
                "max_work_items": tuple(min(pair) for pair in items),
                "extensions": own["extensions"] & under["extensions"],
            }
        )

    def info(self, info: DeviceInfo) -> DeviceInfo:
        """Return who a device is under the profile: no other device, with the runtime it has."""
        limits = self.limits() if self.device else None
        name = f"{info.name} (profile {self.name})"
        if self.device:
            name = f"{self.device} (profile {self.name} on {info.name})"
        return replace(
            info,
            name=name,
            kind=limits.kind if limits else info.kind,
            architecture=f"{PROFILED}{self.name}: {info.architecture}",
            compute_units=limits.compute_units if limits else info.compute_units,
        )


def why_no_program(source: str, limits: Limits) -> str | None:
    """Say what a program's text asks for that a device lacks, as the device's compiler would."""
    for demand in demands(source):
        if demand.extension not in limits.extensions:
            return f"the device has no {demand.extension}, which the text needs: {demand.words}"
    return None


def why_no_launch(
    kernel: str, global_size: Sequence[int], local_size: Sequence[int], limits: Limits
) -> str | None:
    """Say with numbers why a device of OpenCL 1.2 would refuse a launch, or None.

    Args:
        kernel: its name.
        global_size: work-items along each dimension.
        local_size: the same of a work-group, which has to divide them.
        limits: of the device.
    """
    if reason := broken(Needs((Frame(kernel, tuple(local_size)),)), limits):
        return reason
    if any(items % local for items, local in zip(global_size, local_size, strict=True)):
        return (
            f"{kernel} has {tuple(global_size)} work-items, which work-groups of "
            f"{tuple(local_size)} do not divide"
        )
    return None


def chosen() -> Profile | None:
    """Return the profile that `OCLGEN_DEVICE_PROFILE` names, None if it names none.

    Raises:
        ProfileError: there is no such profile.
    """
    name = os.environ.get(VARIABLE, "")
    return load(name) if name else None


def names() -> list[str]:
    """Return the names of the profiles that come with the package, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


@cache
def load(name: str) -> Profile:
    """Return the profile of a name in `names()`, or of a file's path, which ends in `.toml`.

    Raises:
        ProfileError: there is none, or its file is wrong.
    """
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if name not in names() and not (name.endswith(".toml") and path.is_file()):
        raise ProfileError(
            f"{VARIABLE}={name} names no profile; there are {', '.join(names())}, or give the "
            "path of a .toml file"
        )
    try:
        return _read(path)
    except (
        OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, AttributeError, KeyError, TypeError,
    ) as error:  # fmt: skip
        raise ProfileError(f"{path} is no profile: {type(error).__name__}: {error}") from error


def _read(path: Path) -> Profile:
    values = tomllib.loads(path.read_text(encoding="utf-8"))
    device = values.get("device", "")
    known = {field.name for field in fields(Limits)} - ASKED
    if not device:
        known.add("instructions")
    figures, sources = {}, {}
    for name, figure in values.get("limits", {}).items():
        if name not in known:
            raise ProfileError(f"{path}: {name} is no limit; there are {', '.join(sorted(known))}")
        figures[name] = _typed(figure["value"])
        sources[name] = values["sources"][figure["source"]]
    if device and (missing := sorted(known - figures.keys())):
        raise ProfileError(f"{path}: no figure for {', '.join(missing)}")
    return Profile(path.stem, device, figures, sources, values.get("shipped_records", True))


def _typed(value: Any) -> Any:
    """Return a figure as `Limits` has it: a list of names is a set, one of numbers a tuple."""
    if not isinstance(value, list):
        return value
    return tuple(value) if any(isinstance(item, int) for item in value) else frozenset(value)
