"""Quantized tensors, which contain their scales: the device refuses them and says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch


def refuse(*args: Any, **kwargs: Any) -> NoReturn:
    """Refuse to make a quantized tensor.

    Raises:
        TypeError: always, with what to do.
    """
    del args, kwargs
    raise TypeError(
        "ocl devices hold no quantized tensors. Quantize on the CPU, or keep integers and their "
        "scales in two tensors, as torchao does (int8 weights: torch._weight_int8pack_mm); "
        "dequantize() turns a quantized tensor of the CPU into one that can be moved."
    )


_kept: list[Any] = []


def register() -> None:
    """Refuse those of the CPU that are moved here, too."""
    new: Any = torch.library.Library  # torch types neither the class nor its methods
    _kept.append(new("_", "IMPL"))
    _kept[0].fallback(refuse, "QuantizedPrivateUse1")


def _names() -> list[str]:
    made = ("quantize_per_tensor", "quantize_per_channel", "quantize_per_tensor_dynamic")
    packets = {name: getattr(torch.ops.aten, name) for name in made}
    return [
        name if label == "default" else f"{name}.{label}"
        for name, packet in packets.items()
        for label in packet.overloads()
        if not label.endswith("out")
    ]


OPERATORS: dict[str, Callable[..., Any]] = dict.fromkeys(_names(), refuse)
"""Implementations by aten name."""
