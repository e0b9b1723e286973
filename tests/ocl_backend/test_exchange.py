"""DLPack: memory that tensors of the device share, copies for libraries of the CPU, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils.dlpack import DLDeviceType

from tests.ocl_backend.cpu_twin import place

DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "int64", "bool", "complex64")


class Wrapped:
    """A tensor of another library, of which only DLPack's protocol is known."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


@pytest.mark.parametrize("name", DTYPES)
def test_a_tensor_comes_back_as_it_went(device: Any, name: str) -> None:
    x = torch.arange(6).reshape(2, 3).to(place(device), getattr(torch, name)).t()
    for back in (torch.from_dlpack(x), torch.from_dlpack(Wrapped(x)), torch.asarray(Wrapped(x))):
        assert back.device == x.device
        assert back.dtype is x.dtype
        assert back.stride() == x.stride()
        assert torch.equal(back, x)


def test_both_sides_have_the_same_memory(device: Any) -> None:
    x = torch.zeros(2, 3, device=place(device))
    before = x + 1
    for shared in (torch.from_dlpack(x[1]), torch.from_dlpack(x[1].__dlpack__())):
        shared += 1
    after = x + 1
    assert before.tolist() == [[1.0] * 3, [1.0] * 3]
    assert after.tolist() == [[1.0] * 3, [3.0] * 3]


def test_memory_lives_as_long_as_its_last_owner(device: Any) -> None:
    shared = torch.from_dlpack(torch.full((1000,), 7.0, device=place(device)))
    others = [torch.zeros(1000, device=place(device)) for _ in range(4)]
    assert (shared == 7).all()
    assert not any(other.any() for other in others)


def test_a_copy_has_memory_of_its_own(device: Any) -> None:
    x = torch.zeros(3, device=place(device))
    torch.from_dlpack(x, copy=True).fill_(1)
    on_cpu = torch.from_dlpack(x, device="cpu")
    assert on_cpu.device.type == "cpu"
    assert x.tolist() == on_cpu.tolist() == [0.0] * 3


def test_numpy_gets_a_copy_if_it_asks_for_the_cpu(device: Any) -> None:
    x = torch.arange(3.0, device=place(device))
    assert np.from_dlpack(x, device="cpu").tolist() == [0.0, 1.0, 2.0]
    assert torch.from_dlpack(np.arange(3.0), device=place(device)).tolist() == [0.0, 1.0, 2.0]
    with pytest.raises((BufferError, RuntimeError), match=r"[Uu]nsupported device"):
        np.from_dlpack(x)


def test_the_device_is_said_to_be_an_extension(device: Any) -> None:
    x = torch.zeros(3, device=place(device))
    assert x.__dlpack_device__() == (DLDeviceType.kDLExtDev, device.index)
    assert torch.zeros(3).__dlpack_device__() == (DLDeviceType.kDLCPU, 0)


def test_no_other_context_of_opencl_gets_the_memory(device: Any) -> None:
    x = torch.zeros(3, device=place(device))
    with pytest.raises(BufferError, match="cannot be exported as kDLOpenCL"):
        x.__dlpack__(dl_device=(DLDeviceType.kDLOpenCL, 0))
    with pytest.raises(ValueError, match="without copying"):
        x.__dlpack__(dl_device=(DLDeviceType.kDLCPU, 0), copy=False)
    with pytest.raises(BufferError, match="require gradient"):
        x.requires_grad_().__dlpack__()
