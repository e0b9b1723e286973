"""Files of other tuners, read and written: Kernel Tuner's caches, T4, CLBlast, Triton's caches.

Formats are those of Kernel Tuner 1.x (`kernel_tuner/schema`), of CLBlast's tuners and its database
(`scripts/database`), and of Triton's `@autotune(cache_results=True)`. Each becomes
`tuned_db.tuners.foreign.Foreign` values. A format loses what it has no field for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import PurePath
from typing import Any

from oclgen.measurement import Invalidity
from tuned_db.records.exchange import ImportFileError
from tuned_db.tuners.foreign import Foreign

LARGEST = 256 * 2**20
"""Bytes of a file that is read: CLBlast's whole database has some 30 MB."""
SHARED_BY_T4: dict[str, Invalidity] = {"correct": "none"}
_KERNEL_TUNER: dict[str, Invalidity] = {
    "InvalidConfig": "constraints",
    "CompilationFailedConfig": "compile",
    "RuntimeFailedConfig": "runtime",
}
_SPENT = ("compile", "verification", "benchmark", "strategy", "framework")
"""What Kernel Tuner says the milliseconds of, beside the kernel's."""
_TRITON = {"num_warps": 4, "num_ctas": 1, "num_stages": 3, "maxnreg": None}
"""Fields of Triton's configs beside the keyword arguments, with their defaults."""


@dataclass(frozen=True)
class About:
    """What a file does not say of itself: who measured what, where. Empty: the file says it."""

    kernel: str = ""
    device: str = ""
    sizes: Mapping[str, int] | None = None
    source: str = ""


def read(name: str, content: bytes, about: About) -> list[Foreign]:
    """Return what a file of another tuner says; which one's it is, its fields tell.

    Args:
        name: of the file; Triton's have the kernel's name.
        content: the whole file.
        about: what it does not say.

    Raises:
        ImportFileError: it is none of the known ones, too large, or lacks what it has to say.
    """
    if len(content) > LARGEST:
        raise ImportFileError(f"{name} is larger than {LARGEST} bytes")
    values = _parsed(name, content)
    for marks, reader in _READERS.items():
        if all(mark in values for mark in marks):
            try:
                return list(reader(name, values, about))
            except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
                if isinstance(error, ImportFileError):
                    raise
                raise ImportFileError(f"{name}: {type(error).__name__}: {error}") from error
    known = "; ".join(", ".join(marks) for marks in _READERS)
    raise ImportFileError(f"{name} is of no tuner that is known; their files have {known}")


def _parsed(name: str, content: bytes) -> dict[str, Any]:
    """Return the JSON object of a file; Kernel Tuner's cache lacks its end while it is written."""
    text = content.decode(errors="replace").strip()
    for whole in (text, text.removesuffix(",") + "}}"):
        try:
            values = json.loads(whole)
        except (ValueError, RecursionError):
            continue
        if isinstance(values, dict):
            return values
    raise ImportFileError(f"{name} is no JSON object")


def _kernel_tuner(name: str, values: dict[str, Any], about: About) -> Iterator[Foreign]:
    keys = values["tune_params_keys"]
    sizes, words = _problem(values["problem_size"])
    for config, row in values["cache"].items():
        given = dict(zip(keys, config.split(","), strict=False))
        time = row["time"]
        failed = isinstance(time, str)
        yield Foreign(
            tuner="kernel_tuner",
            kernel=about.kernel or values["kernel_name"],
            source=about.source,
            device=about.device or values["device_name"],
            sizes=sizes if about.sizes is None else about.sizes,
            words=words,
            parameters={key: row.get(key, _number(given.get(key))) for key in keys},
            samples=() if failed else tuple(map(float, row.get("times") or [time])),
            invalidity=_KERNEL_TUNER.get(time, "runtime") if failed else "none",
        )


def _problem(size: Any) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return a problem's sizes by their place, or its text where it is none."""
    if isinstance(size, str):
        return {}, (size,)
    listed = size if isinstance(size, list) else [size]
    return {str(place): int(each) for place, each in enumerate(listed)}, ()


def _t4(name: str, values: dict[str, Any], about: About) -> Iterator[Foreign]:
    if not about.kernel:
        raise ImportFileError(f"{name}: T4 names no kernel; say which by --kernel")
    for row in values["results"]:
        invalidity = SHARED_BY_T4.get(row["invalidity"], row["invalidity"])
        times = row["times"].get("runtimes") or [
            one["value"] for one in row.get("measurements", ()) if one.get("name") == "time"
        ]
        yield Foreign(
            tuner="t4",
            kernel=about.kernel,
            source=about.source,
            device=about.device,
            sizes=about.sizes or {},
            words=(),
            parameters=dict(row["configuration"]),
            samples=tuple(map(float, times)) if invalidity == "none" else (),
            invalidity=invalidity,
        )


def _clblast(name: str, values: dict[str, Any], about: About) -> Iterator[Foreign]:
    """Read what a tuner of CLBlast wrote; it keeps no failures."""
    for row in values["results"]:
        parameters = {key: v for key, v in row["parameters"].items() if key != "PRECISION"}
        yield from _of_clblast(values, row["kernel"], parameters, row["time"], about)


def _clblast_database(name: str, values: dict[str, Any], about: About) -> Iterator[Foreign]:
    for section in values["sections"]:
        names = section["parameter_names"]
        for given, time in section["results"]:
            parameters = dict(zip(names, map(_number, given.split(",")), strict=True))
            yield from _of_clblast(section, section["kernel"], parameters, time, about)


def _of_clblast(
    head: dict[str, Any], kernel: str, parameters: dict[str, Any], time: float, about: About
) -> Iterator[Foreign]:
    args = {key: value for key, value in head.items() if key.startswith("arg_")}
    sizes = {key: int(value) for key, value in args.items() if str(value).isdecimal()}
    words = {key: value for key, value in args.items() if key not in sizes}
    if time > 0:
        yield Foreign(
            tuner="clblast",
            kernel=about.kernel or kernel,
            source=about.source,
            device=about.device or head.get("clblast_device_name") or head["device"],
            sizes=sizes if about.sizes is None else about.sizes,
            words=(
                f"family={head['kernel_family']}",
                f"precision={head['precision']}",
                *(f"{key}={value}" for key, value in sorted(words.items())),
            ),
            parameters=parameters,
            samples=(float(time),),
        )


def _triton(name: str, values: dict[str, Any], about: About) -> Iterator[Foreign]:
    """Read a cache of Triton: of each config the median and two quantiles, whose median it is."""
    key = values["key"]
    sizes = {str(place): int(one) for place, one in enumerate(key) if one.isdecimal()}
    words = tuple(one for one in key if not one.isdecimal())
    for config, timing in values["configs_timings"]:
        times = timing if isinstance(timing, list) else [timing]
        failed = not all(map(isfinite, times))
        beside = {one: config[one] for one in _TRITON if config.get(one) is not None}
        yield Foreign(
            tuner="triton",
            kernel=about.kernel or PurePath(name).name.removesuffix(".autotune.json"),
            source=about.source,
            device=about.device,
            sizes=sizes if about.sizes is None else about.sizes,
            words=words,
            parameters=config["kwargs"] | beside,
            samples=() if failed else tuple(map(float, times)),
            invalidity="compile" if failed else "none",
        )


_READERS: dict[tuple[str, ...], Callable[..., Iterator[Foreign]]] = {
    ("cache", "tune_params_keys"): _kernel_tuner,
    ("sections",): _clblast_database,
    ("configs_timings", "key"): _triton,
    ("kernel_family", "results"): _clblast,
    ("results", "schema_version"): _t4,
}
"""Fields by which a format is recognised, and the function that reads it."""


def _number(text: Any) -> Any:
    """Return the number that a text is, else the text."""
    try:
        return int(text)
    except (TypeError, ValueError):
        try:
            number = float(text)
        except (TypeError, ValueError):
            return text
        return number if isfinite(number) else text


def to_kernel_tuner(found: Sequence[Foreign]) -> dict[str, Any]:
    """Return a cache file of Kernel Tuner, schema 1.1.0, of one kernel, device and problem.

    It keeps no times of its own making: compiling, verifying and searching took 0 ms in it.

    Raises:
        ImportFileError: there is more than one kernel, device or problem, or none.
    """
    first = _one_of(found)
    keys = sorted({key for one in found for key in one.parameters})
    unknown = {reason: text for text, reason in _KERNEL_TUNER.items()}
    cache = {
        ",".join(str(one.parameters.get(key)) for key in keys): {
            **one.parameters,
            "time": one.ms if one.samples else unknown.get(one.invalidity, "RuntimeFailedConfig"),
            "times": list(one.samples),
            **{f"{what}_time": 0.0 for what in _SPENT},
            "timestamp": "1970-01-01T00:00:00+00:00",
        }
        for one in found
    }
    return {
        "schema_version": "1.1.0",
        "device_name": first.device,
        "kernel_name": first.kernel,
        "problem_size": list(first.sizes.values()) or " ".join(first.words),
        "tune_params_keys": keys,
        "tune_params": {key: _distinct(one.parameters.get(key) for one in found) for key in keys},
        "objective": "time",
        "cache": cache,
    }


def _distinct(values: Iterator[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def to_t4(found: Sequence[Foreign]) -> dict[str, Any]:
    """Return results as T4, version 1.0.0, which names neither kernel nor device."""
    back = {ours: theirs for theirs, ours in SHARED_BY_T4.items()}
    results = [
        {
            "timestamp": "1970-01-01T00:00:00+00:00",
            "configuration": dict(one.parameters),
            "objectives": ["time"],
            "times": {"compilation_time": 0, "runtimes": list(one.samples)},
            "invalidity": back.get(one.invalidity, one.invalidity),
            "correctness": float(one.invalidity == "none"),
            "measurements": _times_of(one),
        }
        for one in found
    ]
    return {"schema_version": "1.0.0", "results": results}


def _times_of(one: Foreign) -> list[dict[str, Any]]:
    return [{"name": "time", "value": one.ms, "unit": "ms"}] if one.samples else []


def to_clblast(found: Sequence[Foreign]) -> dict[str, Any]:
    """Return what a tuner of CLBlast writes, of one kernel, device and problem; failures are none.

    Raises:
        ImportFileError: it is not of CLBlast, or of several problems.
    """
    first = _one_of(found)
    words = dict(word.partition("=")[::2] for word in first.words)
    if first.tuner != "clblast":
        raise ImportFileError(f"{first.kernel} is no kernel of CLBlast: {first.tuner} tuned it")
    precision = words.pop("precision")
    timed = [one for one in found if one.samples]
    best = min(timed, key=lambda one: one.samples)
    return {
        "kernel_family": words.pop("family"),
        "precision": precision,
        **{key: str(size) for key, size in first.sizes.items()},
        **words,
        "best_kernel": best.kernel,
        "best_time": f"{best.ms:.3f}",
        "best_parameters": " ".join(f"{key}={v}" for key, v in best.parameters.items()),
        "clblast_device_name": first.device,
        "device": first.device,
        "results": [
            {
                "kernel": one.kernel,
                "time": one.ms,
                "parameters": {**one.parameters, "PRECISION": int(precision)},
            }
            for one in timed
        ],
    }


def to_triton(found: Sequence[Foreign]) -> dict[str, Any]:
    """Return a cache of Triton, of one kernel and key; its sizes come before its words.

    Raises:
        ImportFileError: there is more than one kernel, device or problem, or none.
    """
    first = _one_of(found)
    rows = []
    for one in found:
        kwargs = {key: value for key, value in one.parameters.items() if key not in _TRITON}
        beside = {key: one.parameters.get(key, default) for key, default in _TRITON.items()}
        times = list(one.samples[:3]) or [inf] * 3
        times += times[:1] * (3 - len(times))
        config = {"kwargs": kwargs, **beside, "pre_hook": None, "ir_override": None}
        rows.append([config, times])
    return {"key": [*map(str, first.sizes.values()), *first.words], "configs_timings": rows}


def _one_of(found: Sequence[Foreign]) -> Foreign:
    kinds = {(one.kernel, one.device, *one.sizes.items(), *one.words) for one in found}
    if len(kinds) != 1:
        raise ImportFileError(f"one kernel, device and problem are needed; {len(kinds)} are given")
    return found[0]


WRITERS: dict[str, Callable[[Sequence[Foreign]], dict[str, Any]]] = {
    "kernel_tuner": to_kernel_tuner,
    "t4": to_t4,
    "clblast": to_clblast,
    "triton": to_triton,
}
"""The function that writes each format."""
