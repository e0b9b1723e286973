"""Registers the device with Lightning: then use `Trainer(accelerator="ocl", strategy="ocl")`.

Both names are needed: for one device, Lightning chooses a strategy by names that it knows, and
would compute on the CPU. `strategy="ocl_ddp"` is for several devices or processes. Lightning is
installed as `lightning` or as `pytorch_lightning`; the first one that exists is used.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

import ocl_backend  # noqa: F401 (registers the device)

_root = "lightning.pytorch" if find_spec("lightning") else "pytorch_lightning"
_accelerators: Any = import_module(f"{_root}.accelerators")
_strategies: Any = import_module(f"{_root}.strategies")
_plugins: Any = import_module(f"{_root}.plugins")

_ocl: Any = torch.get_device_module("ocl")


class OCLAccelerator(_accelerators.Accelerator):  # type: ignore[misc]
    """All OpenCL devices, as Lightning asks for them."""

    def setup_device(self, device: torch.device) -> None:
        """Make `device` the current one.

        Raises:
            ValueError: Lightning chose another kind of device.
        """
        if device.type != "ocl":
            raise ValueError(
                f"the strategy computes on {device}: for one device of ocl, write "
                'Trainer(accelerator="ocl", strategy="ocl")'
            )
        _ocl.set_device(device)

    def teardown(self) -> None:
        """Free the memory of the training."""
        _ocl.empty_cache()

    def get_device_stats(self, device: Any) -> dict[str, Any]:
        """Return the allocator's figures of a device."""
        return dict(_ocl.memory_stats(device))

    @staticmethod
    def parse_devices(devices: int | str | list[int]) -> list[int]:
        """Return the indices that `Trainer(devices=...)` means.

        Args:
            devices: a number of devices, indices in a list or with commas between them, or -1: all.

        Raises:
            ValueError: there are fewer devices, or none of that index.
        """
        count = _ocl.device_count()
        if isinstance(devices, str):
            listed = "," in devices
            devices = [int(index) for index in devices.split(",") if index.strip()]
            devices = devices if listed else devices[0]
        indices = devices if isinstance(devices, list) else list(range(devices % (count + 1)))
        if (isinstance(devices, int) and devices > count) or any(i >= count for i in indices):
            raise ValueError(f"devices={devices!r}, but there are {count} OpenCL devices")
        return list(indices)

    @staticmethod
    def get_parallel_devices(devices: list[int]) -> list[torch.device]:
        """Return the devices of these indices."""
        return [torch.device("ocl", index) for index in devices]

    @staticmethod
    def auto_device_count() -> int:
        """Return 1: devices differ, as a processor and a GPU do, so others are asked for."""
        return 1

    @staticmethod
    def is_available() -> bool:
        """Return whether there is a device."""
        return bool(_ocl.is_available())

    @staticmethod
    def name() -> str:
        """Return the name that a Trainer is given."""
        return "ocl"


class _Precision:
    """Makes mixed precision, which Lightning makes for CUDA, for the device."""

    @property
    def precision_plugin(self) -> Any:
        return _strategies.Strategy.precision_plugin.fget(self)

    @precision_plugin.setter
    def precision_plugin(self, plugin: Any) -> None:
        if isinstance(plugin, _plugins.MixedPrecision) and plugin.device == "cuda":
            plugin = _plugins.MixedPrecision(plugin.precision, "ocl")
        _strategies.Strategy.precision_plugin.fset(self, plugin)


class OCLStrategy(_Precision, _strategies.SingleDeviceStrategy):  # type: ignore[misc]
    """Training on one device."""

    strategy_name = "ocl"

    def __init__(self, device: str | torch.device = "ocl:0", **options: Any) -> None:
        """Choose the device.

        Args:
            device: where to train.
            options: of Lightning's `SingleDeviceStrategy`.
        """
        super().__init__(device=device, **options)


class OCLDDPStrategy(_Precision, _strategies.DDPStrategy):  # type: ignore[misc]
    """Training on several devices or in several processes: DDP, without CUDA's streams."""

    strategy_name = "ocl_ddp"

    def determine_ddp_device_ids(self) -> None:
        """Name no device to DDP: for a named one Lightning makes a stream of CUDA."""


_accelerators.AcceleratorRegistry.register("ocl", OCLAccelerator, override=True)
_strategies.StrategyRegistry.register("ocl", OCLStrategy, override=True)
_strategies.StrategyRegistry.register("ocl_ddp", OCLDDPStrategy, override=True)
