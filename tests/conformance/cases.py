"""Runs the samples of one OpInfo on the device and on the CPU and says how the device did.

It judges one operator at one dtype; which operators are asked for and what the lists allow is
`conformance.__main__`'s and `test_sample`'s.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

from tests import torch_frames
from tests.conformance import forms, lists
from tests.ocl_backend.cpu_twin import ocl

torch_frames.walk()

ON_HOST = ("tensor_split",)
"""OpInfos whose tensor arguments torch wants on the CPU for every device."""

FACTORIES = ("arange", "linspace", "logspace")
"""OpInfos with samples that name no device: on another one, it is the default one."""

DTYPES = (torch.float32, torch.int64, torch.bool)
TOLERANCE = 1e-3
"""Absolute and relative: what torch's own `TestCommon.test_compare_cpu` allows any device."""


@dataclass(slots=True)
class Outcome:
    """How one operator did at one dtype, over `samples` samples."""

    name: str
    dtype: str
    samples: int = 0
    failures: list[str] = field(default_factory=list)
    fallbacks: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def status(self) -> str:
        """Return `failed`, `fallback`, `native`, `decomposed`, or `no sample` the CPU can do."""
        if self.failures:
            return "failed"
        if not self.samples:
            return "no sample"
        if self.fallbacks:
            return "fallback"
        return "native" if has_kernel(operators()[self.name]) else "decomposed"


CALLS = 3
"""Equal calls per sample, of which the last is compared: the third and later may be recalled."""


@cache
def operators() -> dict[str, Any]:
    """Return every OpInfo by its full name."""
    return {info.full_name: info for info in op_db}


def has_kernel(info: Any) -> bool:
    """Whether the device has a kernel of its own under the operator's aten name."""
    ocl.init()  # operators are registered by the first use of a device
    name = f"aten::{info.aten_name or info.name}"
    overloads = torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1")
    return any(known == name or known.startswith(f"{name}.") for known in overloads)


def dtypes(info: Any) -> list[torch.dtype]:
    """Return those of `DTYPES` that the CPU supports for the operator."""
    supported = info.supported_dtypes("cpu")
    return [dtype for dtype in DTYPES if dtype in supported]


def moved(value: Any, device: torch.device) -> Any:
    """Return `value` with its tensors, generators' devices and device arguments on `device`."""

    def move(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf.detach().to(device).requires_grad_(leaf.requires_grad)
        if isinstance(leaf, torch.device) or (isinstance(leaf, str) and leaf == "cpu"):
            return device
        return leaf

    return tree_map(move, value)


def differentiable(result: Any) -> list[Tensor]:
    """Return the tensors of a result through which gradients flow."""
    return [
        leaf
        for leaf in tree_leaves(result)
        if isinstance(leaf, Tensor) and leaf.requires_grad and leaf.is_floating_point()
    ]


def cotangents(outputs: list[Tensor]) -> list[Tensor]:
    """Return one gradient per output, the same numbers on every device."""
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randn(out.shape, generator=generator).to(out.dtype).to(out.device) for out in outputs
    ]


def evaluate(info: Any, sample: Any, gradient: bool) -> tuple[Any, list[Tensor | None]]:
    """Return the result and the gradients of all inputs that ask for one."""
    result = info(sample.input, *sample.args, **sample.kwargs)
    result = sample.output_process_fn_grad(result)
    outputs = differentiable(result) if gradient else []
    if not outputs:
        return result, []
    leaves = tree_leaves((sample.input, sample.args, sample.kwargs))
    inputs = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]
    grads = torch.autograd.grad(outputs, inputs, cotangents(outputs), allow_unused=True)
    return result, list(grads)


def compare(ours: Any, theirs: Any, compared: Comparable) -> None:
    """Raise AssertionError where the device's result differs from the CPU's.

    Shapes, dtypes and devices must always agree, values where `compared` says so.
    """
    left, right = tree_leaves(ours), tree_leaves(theirs)
    assert len(left) == len(right), f"{len(left)} results, {len(right)} expected"
    for number, (mine, reference) in enumerate(zip(left, right, strict=True)):
        if not isinstance(reference, Tensor):
            assert mine == reference or mine != mine, f"{mine} is not {reference}"
            continue
        assert mine.device.type == "ocl", f"a result lies on {mine.device}"
        assert mine.shape == reference.shape, f"shape {mine.shape}, expected {reference.shape}"
        assert mine.dtype == reference.dtype, f"dtype {mine.dtype}, expected {reference.dtype}"
        if compared(number):
            torch.testing.assert_close(
                mine.detach().cpu(),
                reference.detach(),
                atol=TOLERANCE,
                rtol=TOLERANCE,
                equal_nan=True,
            )


Comparable = Callable[[int], bool]


def comparable(name: str) -> Comparable:
    """Return which results of an operator, by number, are compared: all, none, or all but one."""
    if lists.entry("incomparable", name):
        return lambda _: False
    if lists.entry("positions", name):
        return lambda number: number != 1
    return lambda _: True


def samples(info: Any, dtype: torch.dtype, limit: int | None) -> Iterator[Any]:
    """Yield the operator's dense samples on the CPU, drawn from a fixed seed."""
    torch.manual_seed(0)
    gradient = dtype.is_floating_point and info.supports_autograd
    return islice(filter(dense, info.sample_inputs("cpu", dtype, requires_grad=gradient)), limit)


def dense(sample: Any) -> bool:
    """Whether all of a sample's tensors are strided: the device holds no others."""
    leaves = tree_leaves((sample.input, sample.args, sample.kwargs))
    return all(leaf.layout is torch.strided for leaf in leaves if isinstance(leaf, Tensor))


def run(name: str, dtype_name: str, limit: int | None, device: int) -> Outcome:
    """Compare up to `limit` samples of the OpInfo `name` on OpenCL device number `device`."""
    info, dtype = operators()[name], getattr(torch, dtype_name)
    outcome = Outcome(name, dtype_name)
    place = torch.device("ocl", device)
    compared = comparable(name)
    started = time.perf_counter()
    gradient = dtype.is_floating_point and info.supports_autograd
    ocl.reset_fallbacks()
    no_cuda = patch("torch.cuda.is_available", return_value=False)  # or samples name it
    with warnings.catch_warnings(), no_cuda:
        warnings.simplefilter("ignore")
        for index, sample in enumerate(samples(info, dtype, limit)):
            twin = deepcopy(sample)  # some operators write to their arguments
            try:
                theirs = evaluate(info, sample, gradient)
            except (RuntimeError, AttributeError, AssertionError):
                continue  # the CPU cannot do it
            outcome.samples += 1
            failure = _failure(info, twin, place, theirs, gradient, compared)
            if not failure and outcome.samples == 1:
                failure = _variants_failure(info, sample, twin, place, compared)
            if failure:
                outcome.failures.append(f"sample {index}: {failure}")
    outcome.fallbacks = ocl.fallbacks()
    outcome.seconds = time.perf_counter() - started
    return outcome


def on_device(info: Any, sample: Any, place: torch.device) -> Any:
    """Return a copy of a sample whose tensors lie on `place`."""
    return type(sample)(
        moved(sample.input, place),
        args=sample.args if info.name in ON_HOST else moved(sample.args, place),
        kwargs=moved(sample.kwargs, place),
        output_process_fn_grad=sample.output_process_fn_grad,
    )


def _failure(
    info: Any, sample: Any, place: torch.device, theirs: Any, gradient: bool, compared: Comparable
) -> str:
    """Return why the result on `place` is not the CPU's, or nothing."""
    ours = None
    try:
        # those without a tensor or a device make theirs on the default one
        with torch.device(place if info.name in FACTORIES else "cpu"):
            for _ in range(CALLS):
                ours = evaluate(info, on_device(info, sample, place), gradient)
        compare(ours, theirs, compared)
    except Exception as error:  # whatever an operator raises is its failure, told in a line
        if ours is not None and gradient and _as_exact(info, sample, ours, theirs, gradient):
            return ""
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return ""


def _as_exact(info: Any, sample: Any, ours: Any, theirs: Any, gradient: bool) -> bool:
    """Whether the device is no further from float64's result than twice the CPU is."""

    def widened(leaf: Any) -> Any:
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            return leaf.detach().double().requires_grad_(leaf.requires_grad)
        return torch.float64 if leaf is torch.float32 else leaf

    wide = type(sample)(
        tree_map(widened, sample.input),
        args=tree_map(widened, sample.args),
        kwargs=tree_map(widened, sample.kwargs),
        output_process_fn_grad=sample.output_process_fn_grad,
    )
    exact = tree_leaves(evaluate(info, wide, gradient))
    for mine, cpu, true in zip(tree_leaves(ours), tree_leaves(theirs), exact, strict=True):
        if isinstance(cpu, Tensor) and cpu.is_floating_point():
            if mine.shape != true.shape or mine.dtype != cpu.dtype:
                return False
            allowed = TOLERANCE * (1 + true.abs()) + 2 * (cpu - true).abs().max()
            if not bool(((mine.detach().cpu() - true).abs() <= allowed).all()):
                return False
    return True


def _variants_failure(
    info: Any, sample: Any, twin: Any, place: torch.device, compared: Comparable
) -> str:
    """Return in which form the operator does other than on the CPU, and how, or nothing."""
    result = info(sample.input, *sample.args, **sample.kwargs)
    for name, form in forms.forms_of(info):
        theirs = _outcome_of(form, deepcopy(twin), result, torch.device("cpu"))
        for _ in range(CALLS):
            ours = _outcome_of(form, on_device(info, twin, place), result, place)
        if isinstance(theirs, Exception):
            lacks = isinstance(theirs, AssertionError | NotImplementedError)
            if not lacks and not isinstance(ours, Exception):
                return f"{name}: no error where the CPU has {theirs}"[:300]
            continue
        if isinstance(ours, Exception):
            return f"{name}: {type(ours).__name__}: {' '.join(str(ours).split())[:300]}"
        try:
            compare(ours, theirs, compared)
        except AssertionError as error:
            return f"{name}: {' '.join(str(error).split())[:300]}"
    return ""


def _outcome_of(form: forms.Form, sample: Any, result: Any, place: torch.device) -> Any:
    """Return what a form wrote, or what it raised."""
    try:
        return form(sample, result, place)
    except Exception as error:
        return error
