"""Registers torchvision's compiled operators: kernels for the device; all of them if none load.

torchvision's library does not load beside a torch that it was not built for, and then
`import torchvision` fails, because it asks for the operators. `declare` replaces that library.
`ocl_autoload` finds the library, because torchvision may be imported before the device.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.fallback import serving
from ocl_backend.ops.vision import deformable, region_bins, regions, suppression
from ocl_backend.vision import composed

KERNELS = {
    **suppression.OPERATORS,
    **regions.OPERATORS,
    **region_bins.OPERATORS,
    **deformable.OPERATORS,
}

_REGIONS = "Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_SIZES = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_DEFORM = (
    "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, "
    "SymInt groups, SymInt offset_groups, bool use_mask"
)

SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align": f"(Tensor input, {_REGIONS}, int sampling_ratio, bool aligned) -> Tensor",
    "_roi_align_backward": (
        f"(Tensor grad, {_REGIONS}, {_SIZES}, int sampling_ratio, bool aligned) -> Tensor"
    ),
    "ps_roi_align": f"(Tensor input, {_REGIONS}, int sampling_ratio) -> (Tensor, Tensor)",
    "_ps_roi_align_backward": (
        f"(Tensor grad, {_REGIONS.replace(',', ', Tensor channel_mapping,', 1)}, "
        f"int sampling_ratio, {_SIZES}) -> Tensor"
    ),
    "roi_pool": f"(Tensor input, {_REGIONS}) -> (Tensor, Tensor)",
    "_roi_pool_backward": (
        f"(Tensor grad, {_REGIONS.replace(',', ', Tensor argmax,', 1)}, {_SIZES}) -> Tensor"
    ),
    "ps_roi_pool": f"(Tensor input, {_REGIONS}) -> (Tensor, Tensor)",
    "_ps_roi_pool_backward": (
        f"(Tensor grad, {_REGIONS.replace(',', ', Tensor channel_mapping,', 1)}, {_SIZES})"
        " -> Tensor"
    ),
    "deform_conv2d": f"({_DEFORM}) -> Tensor",
    "_deform_conv2d_backward": (
        f"(Tensor grad, {_DEFORM}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
    ),
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qroi_align": (
        "(Tensor input, Tensor rois, float input_scale, int input_zero_point, float rois_scale, "
        "int rois_zero_point, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
        "int sampling_ratio, bool aligned) -> Tensor"
    ),
    "_cuda_version": "() -> int",
}
"""What torchvision's library declares and its Python asks for; `q` marks quantized operands."""

_kept: list[Any] = []


def register() -> None:
    """Register the kernels, whether the operators are declared yet or not."""
    library = _library("IMPL")
    for name, kernel in KERNELS.items():
        library.impl(name, _served(name, kernel), "PrivateUse1")
        if not name.startswith("_"):
            library.impl(name, _in_full_precision(name), "AutocastPrivateUse1")


def declare() -> None:
    """Declare what torchvision's library would; the CPU's operators are composed of torch's.

    Of the device the gradients are kernels of ours; of the CPU, autograd's of the compositions.
    """
    library = _library("FRAGMENT")
    for name, schema in SCHEMAS.items():
        library.define(name + schema)
    library.impl("_cuda_version", lambda: -1, "CompositeExplicitAutograd")
    for name, function in composed.OPERATORS.items():
        library.impl(name, function, "CPU")
        if name != "nms":
            library.impl(name, function, "AutogradCPU")
            library.impl(name, _differentiable(name), "AutogradPrivateUse1")


def _library(kind: str) -> Any:
    new: Any = torch.library.Library  # torch types neither the class nor its methods
    _kept.append(new("torchvision", kind))
    return _kept[-1]


def _operator(name: str) -> Any:
    return getattr(torch.ops.torchvision, name).default


def _served(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return `kernel` with what `serving` does for it, which asks for a declared operator."""
    served = cache(lambda: serving(_operator(name), kernel))
    return wraps(kernel)(lambda *args: served()(*args))


def _in_full_precision(name: str) -> Callable[..., Any]:
    """Return an operator under autocast: in float32, its result in the dtype of the first."""

    def call(*args: Any) -> Any:
        wide = [a.float() if isinstance(a, Tensor) and a.is_floating_point() else a for a in args]
        with torch.autocast("ocl", enabled=False):
            result = _operator(name)(*wide)
        return _narrowed(result, args[0].dtype)

    return call


def _narrowed(result: Any, dtype: torch.dtype) -> Any:
    if isinstance(result, tuple):
        return tuple(_narrowed(part, dtype) for part in result)
    return result.to(dtype) if result.is_floating_point() else result


def _differentiable(name: str) -> Callable[..., Any]:
    """Return an operator of which autograd keeps what its backward operator takes."""

    class Gradient(torch.autograd.Function):
        @staticmethod
        def forward(*args: Any) -> Any:
            with torch._C._AutoDispatchBelowAutograd():
                return _operator(name)(*args)

        @staticmethod
        def setup_context(context: Any, inputs: Any, output: Any) -> None:
            count = sum(isinstance(value, Tensor) for value in inputs)
            context.size, context.numbers = inputs[0].shape, inputs[count:]
            if name == "deform_conv2d":
                context.save_for_backward(*inputs[:count])
            else:  # of the images the size is enough
                context.save_for_backward(inputs[1], *output[1:] if type(output) is tuple else ())

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(context: Any, grad: Tensor, *_: Any) -> Any:
            given = context.numbers
            if name == "roi_align":
                given = (*given[:3], *context.size, *given[3:])
            elif name != "deform_conv2d":
                given = (*given, *context.size)
            found = _operator(f"_{name}_backward")(grad, *context.saved_tensors, *given)
            found = found if isinstance(found, tuple) else (found, None)
            return (*found, *(None for _ in context.numbers))

    apply: Callable[..., Any] = Gradient.apply
    return apply
