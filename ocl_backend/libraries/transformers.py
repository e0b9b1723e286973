"""Makes transformers' `pipeline()` and `Trainer` compute on the device: import it first.

`replay(model)` lets `generate` replay the step of a token instead of calling it. `OffloadedCache`
keeps keys and values on the host.

A pipeline without a device, or with an index, takes the first of a list of accelerators that it
knows, and the CPU after them. Its registry of tasks names a class for each. This module registers
classes that select the device. The Trainer computes where accelerate does.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from transformers import CompileConfig, DynamicCache
from transformers.pipelines import PIPELINE_REGISTRY

import ocl_backend.libraries.accelerate  # noqa: F401 (for the Trainer)
from ocl_backend.ops.linear.joined import join
from ocl_backend.recorded import Recorded

_ocl: Any = torch.get_device_module("ocl")
JOINED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Names of a module's layers that read the same input."""
_originals: dict[str, Any] = {}
"""Classes of pipelines, or where they are found, by name."""


class _OnDevice:
    """Goes before a class of pipelines."""

    def __init__(self, *args: Any, **options: Any) -> None:
        places = getattr(options.get("model"), "hf_device_map", None)
        device = options.get("device")
        if places is None and (meant := _meant(0 if device is None else device)) is not None:
            options["device"] = meant
        super().__init__(*args, **options)
        if places and (meant := _meant(next(iter(places.values())))) is not None:
            self.device = meant


def _meant(device: Any) -> torch.device | None:
    """Return the device of an index; None for what transformers itself understands."""
    if not isinstance(device, int) or device < 0 or torch.cuda.is_available():
        return None
    return torch.device("ocl", device) if _ocl.is_available() else None


class OffloadedCache(DynamicCache):
    """Keys and values of a growing sequence, on the device for the layer that computes alone.

    transformers' own waits for streams of CUDA. The device has one queue, so that a copy ahead of
    its layer would begin no earlier here. Pass it as `generate(..., past_key_values=...)`.

    Args:
        config: of the model, as transformers' `DynamicCache` takes it.
    """

    def __init__(self, config: Any = None) -> None:
        super().__init__(config=config)

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *args: Any,
        **options: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a layer's keys and values, new ones last, on the device; the host keeps them.

        Args:
            key_states: of the new tokens, [batch, heads, tokens, head_dim].
            value_states: the same of the values.
            layer_idx: the number of the layer.
            args: as transformers' own cache takes them.
            options: as transformers' own cache takes them.
        """
        layers: list[Any] = self.layers  # a layer that is new is there after its first update
        if layer_idx < len(layers):
            layers[layer_idx].prefetch()
        found = super().update(key_states, value_states, layer_idx, *args, **options)
        layers[layer_idx].offload()
        return found


def replay(model: Any) -> Any:
    """Let `model.generate` replay a graph of a token's step, with a static cache; return the model.

    `generate` then asks the model for a compiled call of itself, which is a recording here. Each
    `generate` has a new cache, for which a token's step is recorded: the first time behind two that
    are called, later at once. The rest is replayed.

    Args:
        model: of transformers, on the device. `cache_implementation="dynamic"` in a call of
            `generate` runs that call as before.
    """
    config: Any = CompileConfig()
    config._compile_all_devices = True  # otherwise transformers asks for a list of devices
    model.generation_config.compile_config = config
    model.generation_config.cache_implementation = "static"
    _join(model)
    recorded = Recorded(model.__call__, model.__call__)
    model.get_compiled_call = lambda _: recorded
    return model


def _join(model: Any) -> None:
    """Let layers of packed weights that read the same input share one product in recordings."""
    for module in model.modules():
        for names in JOINED:
            layers: list[Any] = [getattr(module, name, None) for name in names]
            kinds = {_packed_kind(layer) for layer in layers}
            if len(kinds) == 1 and None not in kinds:
                join([layer.weight for layer in layers])


def _packed_kind(layer: Any) -> tuple[Any, ...] | None:
    """Return what layers of packed weights must have in common to be joined, None for others."""
    weight, form = getattr(layer, "weight", None), getattr(layer, "ggml_type", None)
    if form is None or not isinstance(weight, torch.nn.Parameter) or weight.device.type != "ocl":
        return None
    if getattr(layer, "input_permutation", None) is not None:
        return None
    return form, weight.shape[1:], weight.device


def __getattr__(name: str) -> Any:
    """Return the class of pipelines that the registry asks for by this module's name and its own.

    Raises:
        AttributeError: transformers has no such class.
    """
    if name not in _originals:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if isinstance(original := _originals[name], str):
        module, _, own = original.rpartition(".")
        original = getattr(import_module(module), own)
    made = type(name, (_OnDevice, original), {"__module__": __name__, "__doc__": original.__doc__})
    globals()[name] = made
    return made


def _register() -> None:
    for task in PIPELINE_REGISTRY.supported_tasks.values():
        path = task["impl"]
        name = path.rpartition(".")[2] if isinstance(path, str) else path.__name__
        _originals[name] = path
        task["impl"] = f"{__name__}.{name}" if isinstance(path, str) else __getattr__(name)


_register()
