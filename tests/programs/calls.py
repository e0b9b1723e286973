"""Draws single calls of all dtypes, and compares each with the CPU: values, or what it refuses.

Operands are the same on both devices, so no rounding adds up and each item can be compared. What
the CPU refuses, the device must refuse by an exception of the same type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isfinite
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from oclgen.opencl.device import devices
from tests.programs.operations import ALL, FLOATS, TABLES, Operation
from tests.programs.run import WrongError

try:
    from torchvision import ops
except ImportError:  # its operations are refused alike on both devices
    ops = None

CALLS = 12
"""Of one program."""
TURNS = 2
"""Of each call, with other values: the second one is recalled."""
SIZES = {"n": (3, 1, 5), "k": (4, 7, 2), "m": (2, 6, 3), "c": (2, 4, 1), "w": (6, 5, 9)}
NUMBERS = (
    *(0, 1, -1, 2, 3, -5, 7, True, 0.5, -1.5, 2.0, 1e-3, 100, 200, 255, 300, -129, 40000, 2**31),
    *(float("inf"), float("nan"), -float("inf"), 2**40, 1e10),
)
FINITE = tuple(number for number in NUMBERS if isfinite(number))
"""Numbers of operations without special values: whether a CPU's product meets alpha before its sum,
where an infinity makes NaN of it, depends on the layout."""
TOLERANCES = {
    torch.float64: 1e-5,  # functions of the table are of float32's precision where C lacks them
    torch.float32: 1e-4,
    torch.float16: 4e-3,
    torch.bfloat16: 3e-2,
}
"""Relative to an item; a tenth of it, relative to the median of all, is allowed to each."""
OWN_ERRORS = 8
"""An item may be that many times as far from float64 as the CPU's worst one is."""
LACKS = re.compile(
    r"not implemented for '(Half|BFloat16)'|could not create a primitive|^ZeroDivisionError"
    r"|expected m1 and m2 to have the same dtype"
)
"""Errors that only the CPU has: it lacks a kernel for 16 bits, of `roi_align` too, or divides by 0,
which devices look for only where each call waits."""


@dataclass(frozen=True)
class Given:
    """One tensor of a call: how it is made, the same on every device."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    layout: str
    values: str
    below: int = 0

    def make(self, seed: int) -> Tensor:
        """Return it on the CPU, dense."""
        generator = torch.Generator().manual_seed(seed)
        if self.values == "permutation":
            return torch.rand(self.shape, generator=generator).argsort(self.below).to(self.dtype)
        if self.values == "positions":
            most = max(self.below, 1)
            return torch.randint(most, self.shape, generator=generator).to(self.dtype)
        if self.dtype is torch.bool:
            return torch.rand(self.shape, generator=generator) < 0.5
        if self.dtype.is_floating_point:
            value = torch.randn(self.shape, generator=generator, dtype=torch.float64) * 2
        else:
            least = 0 if self.dtype is torch.uint8 else -9
            value = torch.randint(least, 12, self.shape, generator=generator)
        value = value.to(self.dtype)
        if self.values == "tame" or not value.numel():
            return value
        chosen = torch.rand(self.shape, generator=generator) < 0.3
        which = torch.randint(64, self.shape, generator=generator)
        found = self._special()
        return torch.where(chosen, found[which % len(found)], value)

    def _special(self) -> Tensor:
        if not self.dtype.is_floating_point:
            limits = torch.iinfo(self.dtype)
            return torch.tensor([limits.min, limits.max, 0, 1], dtype=self.dtype)
        edges = [torch.inf, -torch.inf, torch.nan, 0.0, -0.0, 1.0, -1.0]
        if self.values == "limits":
            edges += [torch.finfo(self.dtype).max, torch.finfo(self.dtype).min]
        return torch.tensor(edges, dtype=self.dtype)

    def place(self, value: Tensor, device: Any) -> Tensor:
        """Return a dense tensor moved to a device, laid out there as it is here."""
        value = value.to(device)
        if self.layout == "dense" or not value.dim():
            return value
        if self.layout == "transposed":
            return value.transpose(0, -1).contiguous().transpose(0, -1)
        if self.layout == "channels last":
            last = value.dim() == 4
            return value.contiguous(memory_format=torch.channels_last) if last else value
        wide = torch.zeros((*value.shape, 2), dtype=value.dtype, device=device)
        wide[..., 1] = value
        return wide[..., 1]


@dataclass(frozen=True)
class Call:
    """An expression, its tensors by name, and whether gradients are compared."""

    text: str
    tensors: dict[str, Given]
    gradients: bool

    def __str__(self) -> str:
        lines = [
            f"# {name}: {str(given.dtype)[6:]} {list(given.shape)} {given.layout} {given.values}"
            for name, given in self.tensors.items()
        ]
        return "\n".join([*lines, self.text + (".sum().backward()" if self.gradients else "")])


def draw_calls(seed: str) -> list[Call]:
    """Return the calls of a seed: the same in every process and for every device."""
    rng = Random(seed)
    return [_call(rng, rng.choice(rng.choice(TABLES))) for _ in range(CALLS)]


def _call(rng: Random, operation: Operation) -> Call:
    sizes = {letter: rng.choice(choices) for letter, choices in SIZES.items()}
    used = dict.fromkeys(re.findall(r"\{(\w)\}", operation.text))
    first = rng.choice(operation.dtypes)
    shape = _shape(rng, operation, "a", sizes, ())
    dim = rng.randint(-1, max(len(shape) - 1, 0)) if rng.random() > 0.03 else len(shape) + 1
    tensors: dict[str, Given] = {}
    words: dict[str, str] = {"d": str(dim)}
    for name in used:
        if name in "abcomijpq":
            tensors[name] = _given(rng, operation, name, first, shape, dim, sizes)
            words[name] = name
    words["t"] = str(_other(rng, first))
    words["k"] = str(rng.choice((1, 2, 3)))
    text = operation.text
    while "{n}" in text:
        rare = FINITE if operation.values == "tame" else NUMBERS
        number = rng.choice(NUMBERS[:12] if rng.random() < 0.8 else rare)
        spelled = f"float('{number}')" if number != number or abs(number) == torch.inf else number
        text = text.replace("{n}", str(spelled), 1)
    for name, word in words.items():
        text = text.replace(f"{{{name}}}", word)
    return Call(text, tensors, operation.smooth)


def _other(rng: Random, first: torch.dtype) -> torch.dtype:
    """Return a dtype that items may be converted to: C leaves floats below 0 as bytes undefined."""
    found = rng.choice(ALL)
    return torch.int64 if found is torch.uint8 and first.is_floating_point else found


def _shape(
    rng: Random, operation: Operation, name: str, sizes: dict[str, int], like: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the shape of tensor `name`, which broadcasts with `like` unless the operation says."""
    if name in operation.shapes:
        shape = [sizes.get(c) or int(c) for c in operation.shapes[name]]
        if rng.random() < 0.03:
            shape[rng.randrange(len(shape))] = rng.choice((0, 1))
        return tuple(shape)
    if name == "a":
        shape = [rng.choice((1, 2, 3, 5, 8, 17)) for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4)))]
        if shape and rng.random() < 0.08:
            shape[rng.randrange(len(shape))] = 0
        return tuple(shape)
    kind = rng.random()
    if kind < 0.7:
        return like
    if kind < 0.8:
        return ()
    return tuple(1 if rng.random() < 0.4 else size for size in like[rng.randint(0, len(like)) :])


def _given(
    rng: Random, operation: Operation, name: str, first: torch.dtype, shape: tuple[int, ...],
    dim: int, sizes: dict[str, int],
) -> Given:  # fmt: skip
    layout = rng.choice(("dense", "dense", "transposed", "spaced", "channels last"))
    chosen = rng.random()
    number = rng.random()
    at = dim if -len(shape) <= dim < len(shape) else 0
    length = shape[at] if shape else 1
    if name in "ijpq":
        dtype = (
            torch.int64 if chosen < 0.9 else rng.choice((torch.int32, torch.uint8, torch.float32))
        )
        values = "positions" if name in "ij" else "permutation"
        lies = shape if name in "jq" else (length,)
        return Given(
            dtype, lies, "dense", values, length if name in "ij" else at if name == "q" else 0
        )
    if name == "m":
        like = shape if chosen < 0.9 else shape[:1]
        return Given(torch.bool if number < 0.9 else torch.uint8, like, layout, "tame")
    if name == "o":
        dtype = first if chosen < 0.4 else _other(rng, first)
        return Given(
            dtype, shape if number < 0.6 else (0,), layout if number < 0.6 else "dense", "tame"
        )
    dtype = first
    if name != "a" and chosen > (0.7 if operation.mixed and not operation.smooth else 1):
        dtype = rng.choice(ALL)
    lies = shape if name == "a" else _shape(rng, operation, name, sizes, shape)
    return Given(dtype, lies, layout, operation.values if number < 0.5 else "tame")


def check_calls(calls: list[Call], seed: str, device: torch.device) -> int:
    """Make each call on the CPU and on a device.

    Args:
        calls: that were drawn.
        seed: of the values.
        device: to be compared with the CPU.

    Returns:
        How many were compared.

    Raises:
        WrongError: a value, a dtype, a shape or an error differs; the text has the call.
    """
    done = 0
    for number, call in enumerate(calls):
        if not _has_doubles(device) and "float64" in str(call):
            continue  # what is drawn does not depend on the device
        for turn in range(TURNS):
            values = Random(f"{seed} {number} {turn}").randrange(2**31)
            try:
                _compare_call(call, values, device)
            except WrongError as error:
                raise WrongError(f"call {number}, turn {turn}: {error}\n{call}") from error
            except Exception as error:
                raise WrongError(f"call {number}, turn {turn}\n{call}") from error
            done += 1
    return done


def _has_doubles(device: torch.device) -> bool:
    return device.type != "ocl" or "cl_khr_fp64" in devices()[device.index].limits.extensions


def _compare_call(call: Call, seed: int, device: torch.device) -> None:
    theirs = made(call, seed, "cpu")
    if isinstance(theirs, Exception) and LACKS.search(str(theirs)):
        return
    ours = made(call, seed, device)
    if isinstance(theirs, Exception):
        if not isinstance(ours, type(theirs)):
            told = f"{type(ours).__name__}: {ours}" if isinstance(ours, Exception) else "no error"
            raise WrongError(f"{told}, not {type(theirs).__name__}: {theirs}")
        return
    if isinstance(ours, Exception):
        raise WrongError(f"{type(ours).__name__}: {ours}") from ours
    exact: list[Any] | None = None
    for place, (mine, truth) in enumerate(zip(ours, theirs, strict=True)):
        if not isinstance(truth, Tensor):
            if mine != truth:
                raise WrongError(f"{mine}, not {truth}")
            continue
        if (mine.shape, mine.dtype) != (truth.shape, truth.dtype):
            raise WrongError(
                f"{mine.dtype} {list(mine.shape)}, not {truth.dtype} {list(truth.shape)}"
            )
        mine = mine.cpu()
        if _alike(mine, truth):
            continue
        if exact is None:
            wide = made(call, seed, "cpu", wide=True)
            exact = [] if isinstance(wide, Exception) else wide
        if place < len(exact) and _as_exact(mine, truth, exact[place]):
            continue
        raise WrongError(f"{_shown(mine)}, not {_shown(truth)}")


def _shown(value: Tensor) -> str:
    return re.sub(r"\s+", " ", repr(value))[:400]


def _alike(mine: Tensor, truth: Tensor) -> bool:
    if not truth.dtype.is_floating_point:
        return torch.equal(mine, truth)
    tolerance = TOLERANCES[truth.dtype]
    finite = truth[truth.isfinite()].double().abs()
    most = float(finite.median()) if finite.numel() else 1.0
    return torch.allclose(mine, truth, tolerance, tolerance / 10 * min(most, 1e3), equal_nan=True)


def _as_exact(mine: Tensor, truth: Tensor, exact: Tensor) -> bool:
    """Whether the device agrees with float64, or is not much farther from it than the CPU is."""
    if not truth.dtype.is_floating_point or exact.shape != truth.shape:
        return False
    if _alike(mine, exact.to(truth.dtype)):
        return True
    seen = truth.isfinite() & exact.isfinite() & mine.isfinite()
    if not torch.equal(torch.where(seen, 0, mine), torch.where(seen, 0, truth)):
        return bool(((mine == truth) | seen | (mine.isnan() & truth.isnan())).all())
    own = (truth - exact)[seen].abs().max()
    return bool(((mine - exact)[seen].abs() <= OWN_ERRORS * own).all())


def made(call: Call, seed: int, device: Any, wide: bool = False) -> list[Any] | Exception:
    """Return what a call returns and leaves in its operands, or the exception that it raises.

    Args:
        call: to be made.
        seed: of the values.
        device: where.
        wide: with floats of float64 in place of others.
    """
    names: dict[str, Any] = {"torch": torch, "functional": functional, "ops": ops}
    leaves: list[Tensor] = []
    text = (
        re.sub(r"torch\.(bfloat16|float16|float32)", "torch.float64", call.text)
        if wide
        else call.text
    )
    for place, (name, given) in enumerate(call.tensors.items()):
        value = given.make(seed + place)
        if wide and value.dtype in FLOATS:
            value = value.double()
        if call.gradients:
            leaves.append(value.requires_grad_())
        names[name] = given.place(value, device)
    try:
        with torch.set_grad_enabled(call.gradients):
            result = eval(text, names)
            if call.gradients:  # weights, since those of a softmax's sum are all 0
                steps = torch.arange(result.numel(), device=device).view(result.shape)
                (result * (3 * steps % 11 - 2.5)).sum().backward()
        found = [
            leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in tree_leaves(result)
        ]
        found += [names[name].detach() for name in call.tensors]
        found += [leaf.grad for leaf in leaves]
        for leaf in found:
            if isinstance(leaf, Tensor):
                leaf.cpu()
    except Exception as error:
        return error
    return found
