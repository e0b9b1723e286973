"""Makes every wrong call of torch's OpInfo database on the device and on the CPU.

    python -m tests.conformance.errors [--only 'linalg*,sort'] [--device 0]

It judges errors: the type must be the CPU's or derived from it, or the call stand in
`errors.toml`; texts are counted. Right calls are `conformance.__main__`'s.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch

from tests.conformance import cases, lists
from tests.ocl_backend.cpu_twin import ocl


@dataclass(frozen=True, slots=True)
class Wrong:
    """What one wrong call raised here and on the CPU; None: nothing."""

    call: str
    ours: Exception | None
    theirs: Exception

    @property
    def is_alike(self) -> bool:
        """Whether code that catches the CPU's error catches the device's."""
        return isinstance(self.ours, type(self.theirs))

    @property
    def has_the_text(self) -> bool:
        """Whether the texts agree too, to the end of the first line."""
        return self.is_alike and _first_line(self.ours) == _first_line(self.theirs)

    def __str__(self) -> str:
        ours, theirs = (
            f"{type(error).__name__}: {_first_line(error)[:120]}" if error else "no error"
            for error in (self.ours, self.theirs)
        )
        return f"{self.call}: {ours} | the CPU: {theirs}"


def _first_line(error: Exception | None) -> str:
    return str(error).partition("\n")[0]


def wrong_calls(pattern: str, device: int) -> Iterator[Wrong]:
    """Yield what became of every wrong call of the OpInfos that `pattern` names."""
    place = str(torch.device("ocl", device))
    for name, info in cases.operators().items():
        if info.error_inputs_func is None or not fnmatchcase(name, pattern):
            continue
        pairs = zip(info.error_inputs("cpu"), info.error_inputs(place), strict=False)
        for number, (on_cpu, here) in enumerate(pairs):
            theirs = _raised(info, on_cpu.sample_input)
            if theirs is None:  # on the CPU it is no error
                continue
            ours = _raised(info, here.sample_input)
            with suppress(torch.AcceleratorError):  # of an index in a call that had no error
                ocl.synchronize(device)
            yield Wrong(f"{name} {number}", ours, theirs)


def _raised(info: Any, sample: Any) -> Exception | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            info(sample.input, *sample.args, **sample.kwargs)
        except Exception as error:  # whatever it is, it is compared
            return error
    return None


def complaints(done: list[Wrong], whole: bool) -> list[str]:
    """Return what contradicts the list; unused entries count only in a whole run."""
    found = [
        str(one) for one in done if not one.is_alike and lists.entry("errors", one.call) is None
    ]
    if whole:
        needed = {one.call for one in done if not one.is_alike}
        unused = sorted(set(lists.declared("errors")) - needed)
        found += [f"errors.toml: {call} is not needed any more" for call in unused]
    return found


def main() -> None:
    """Run, print the counts and every complaint, and exit with 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.conformance.errors")
    parser.add_argument("--only", default="*", help="names or patterns of OpInfos, by commas")
    parser.add_argument("--device", type=int, default=0, help="index of the OpenCL device")
    given = parser.parse_args()
    done = [one for part in given.only.split(",") for one in wrong_calls(part, given.device)]
    print(
        f"{len(done)} wrong calls: {sum(one.is_alike for one in done)} raise the CPU's type, "
        f"{sum(one.has_the_text for one in done)} its text too"
    )
    found = complaints(done, whole=given.only == "*")
    print(*found, sep="\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
