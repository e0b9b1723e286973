"""Makes torchao's weight-only int8 and int4 layers compute on packed weights: import it first.

Without this module, `quantize_(model, Int8WeightOnlyConfig())` works but unpacks the weights in
every call, and `Int4WeightOnlyConfig(int4_packing_format="tile_packed_to_4d")` asks for CUDA before
it packs, although the operator with which it packs is torch's, and the device has it. With it,
inputs of int8 and int4 layers have gradients, which LoRA's layers beside them need.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib import import_module
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

import ocl_backend  # noqa: F401 (registers the device)
from ocl_backend.ops.linear.packed import packed_linear
from oclgen.packed_problem import FORMATS

_quantization: Any = import_module("torchao.quantization")
_Int4, _Int8 = _quantization.Int4TilePackedTo4dTensor, _quantization.Int8Tensor
CAPABILITY = (8, 0)
"""The first CUDA device for which torchao packs four bits."""


def linear(
    unpacking: Any, function: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Tensor:
    """Return a linear layer of int8 weights; `unpacking` computes what is not this device's.

    Args:
        unpacking: torchao's own.
        function: that was called.
        types: of the arguments.
        args: input, weight and, if there is one, bias.
        kwargs: what is named, a bias perhaps.
    """
    x, weight = args[:2]
    dynamic = weight.act_quant_kwargs is not None or weight.act_pre_scale is not None
    n, k = weight.qdata.shape
    whole = weight.block_size[-1] >= k and k % FORMATS["int8"].block == 0
    if x.device.type != "ocl" or dynamic or kwargs or not whole:
        result: Tensor = unpacking(function, types, args, kwargs)
        return result
    scales = weight.scale.to(x.dtype).flatten().expand(n).contiguous()
    out = packed_linear(x, weight.qdata, "int8", n, scales)  # torch's operator has no gradient
    return _biased(out, args)


def int4_linear(
    plain: Any, function: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Tensor:
    """Return a linear layer of 4-bit weights whose input has a gradient; `plain` has none.

    Args:
        plain: torchao's own.
        function: that was called.
        types: of the arguments.
        args: input, weight and, if there is one, bias.
        kwargs: what is named, a bias perhaps.
    """
    x, weight = args[:2]
    is_trained = torch.is_grad_enabled() and x.requires_grad
    if x.device.type != "ocl" or not is_trained or kwargs or weight.act_pre_scale is not None:
        result: Tensor = plain(function, types, args, kwargs)
        return result
    n, k = weight.shape
    groups, padded, _ = weight.scale_and_zero.shape
    group = weight.block_size[-1]
    rows = torch.nn.functional.pad(x.to(torch.bfloat16), (0, groups * group - k))
    form = f"int4_{group}z"
    out = packed_linear(rows, weight.qdata, form, padded, weight.scale_and_zero)[..., :n]
    return _biased(out, args).to(x.dtype)


def _biased(out: Tensor, args: tuple[Any, ...]) -> Tensor:
    """Return a layer's product with the bias among its arguments, if there is one."""
    return out if len(args) < 3 or args[2] is None else out + args[2]


def _asked_of(weight: Tensor) -> AbstractContextManager[Any]:
    """Answer for a device `ocl` what torchao asks CUDA."""
    if weight.device.type != "ocl":
        return nullcontext()
    return patch.object(torch.cuda, "get_device_capability", lambda device=None: CAPABILITY)


def register() -> None:
    """Take the places of torchao's own functions, once."""
    for of, ours in (_Int8, linear), (_Int4, int4_linear):
        for table, operator in (
            (of._TORCH_FN_TABLE, torch.nn.functional.linear),
            (of._ATEN_OP_TABLE, torch.ops.aten.linear.default),
        ):
            table[of][operator] = partial(ours, table[of][operator])
    made = _Int4.from_hp

    def from_hp(cls: Any, hp_tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        with _asked_of(hp_tensor):
            return made(hp_tensor, *args, **kwargs)

    _Int4.from_hp = classmethod(from_hp)


register()
