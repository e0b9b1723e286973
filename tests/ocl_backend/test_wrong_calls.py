"""Wrong calls: the CPU's error, or torch's for devices, and a device that goes on after it."""

from __future__ import annotations

import ctypes
import gc
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.autograd import Function
from torch.nn import functional

import ocl_backend  # noqa: F401  (registers the device)
from ocl_backend.runtime import compiling, launch, memory, shim
from oclgen.opencl.device import BuildError, devices
from tests.conformance import errors
from tests.ocl_backend.cpu_twin import place

MIB = 1 << 20

WRONG: dict[str, Callable[[Any], Any]] = {
    "broadcast": lambda x: x + x[:, :3],
    "in place": lambda x: x[0].clone().add_(x),
    "matmul": lambda x: x @ x.new_ones(3, 2),
    "matmul dtypes": lambda x: x @ x.double(),
    "bmm": lambda x: torch.bmm(x[None], x.new_ones(2, 4, 4)),
    "addmm": lambda x: torch.addmm(x.new_ones(3), x, x),
    "linear": lambda x: functional.linear(x, x.new_ones(2, 3)),
    "conv channels": lambda x: functional.conv2d(x[None, None], x.new_ones(1, 2, 1, 1)),
    "conv kernel": lambda x: functional.conv2d(x[None, None], x.new_ones(1, 1, 9, 9)),
    "conv stride": lambda x: functional.conv2d(x[None, None], x.new_ones(1, 1, 1, 1), stride=0),
    "conv padding": lambda x: functional.conv2d(x[None, None], x[None, None], padding=-1),
    "conv groups": lambda x: functional.conv2d(x[None, None], x.new_ones(3, 1, 1, 1), groups=2),
    "conv bias": lambda x: functional.conv2d(x[None, None], x[None, None], x[0]),
    "conv dtypes": lambda x: functional.conv2d(x[None, None], x[None, None].double()),
    "conv dims": lambda x: functional.conv2d(x, x),
    "conv transpose": lambda x: functional.conv_transpose2d(
        x[None, None], x[None, None], output_padding=2
    ),
    "pool kernel": lambda x: functional.max_pool2d(x[None], 9),
    "pool padding": lambda x: functional.max_pool2d(x[None], 2, padding=2),
    "pool stride": lambda x: functional.avg_pool2d(x[None], 2, stride=0),
    "pool dims": lambda x: functional.max_pool2d(x[0, 0], 1),
    "pool divisor": lambda x: functional.avg_pool2d(x[None], 2, divisor_override=0),
    "adaptive pool": lambda x: functional.adaptive_avg_pool2d(x[None], (2, -1)),
    "cat": lambda x: torch.cat([x, x[:, :2]], 0),
    "cat dims": lambda x: torch.cat([x, x[0]]),
    "cat dim": lambda x: torch.cat([x, x], 5),
    "stack": lambda x: torch.stack([x, x[0]]),
    "view": lambda x: x.view(3, 5),
    "view strides": lambda x: x.t().view(16),
    "reshape": lambda x: x.reshape(-1, 5),
    "expand": lambda x: x.expand(2, 3, 4),
    "permute": lambda x: x.permute(0, 0),
    "split": lambda x: x.split([1, 1]),
    "narrow": lambda x: x.narrow(0, 3, 2),
    "embedding dims": lambda x: functional.embedding(x.long(), x[None]),
    "embedding dtype": lambda x: functional.embedding(x, x),
    "cross entropy rows": lambda x: functional.cross_entropy(x, x[0, :3].long()),
    "cross entropy dtype": lambda x: functional.cross_entropy(x, x[0].int()),
    "nll weight": lambda x: functional.nll_loss(x, x[0].long() * 0, x.new_ones(3)),
    "layer norm": lambda x: functional.layer_norm(x, (3,)),
    "batch norm": lambda x: functional.batch_norm(x, x.new_ones(3), x.new_ones(3)),
    "gather": lambda x: x.gather(0, x[0].long()),
    "scatter": lambda x: x.scatter(0, (x * 0).long(), x[:2]),
    "scatter a number behind the end": lambda x: [
        x.scatter(1, x.new_zeros(rows, 1).long(), 2.0) for rows in (4, 5)
    ],
    "added rows too many": lambda x: [
        x.index_add(0, x.new_zeros(2).long(), x[:rows]) for rows in (2, 3)
    ],
    "an added row for several": lambda x: [
        x.index_add(0, x.new_zeros(2).long(), x[:rows]) for rows in (2, 1)
    ],
    "a copied row for several": lambda x: [
        x.index_copy(0, torch.arange(2, device=x.device), x[:rows]) for rows in (2, 1)
    ],
    "reduced rows too many": lambda x: [
        x.index_reduce(0, x.new_zeros(1).long(), x[:rows], "prod") for rows in (1, 3)
    ],
    "classes too few for weights": lambda x: [
        functional.nll_loss(x, x.new_zeros(4).long(), x.new_ones(classes)) for classes in (4, 3)
    ],
    "targets of another plane": lambda x: [
        functional.nll_loss(x[None, None], x.new_zeros(1, rows, 4).long()) for rows in (4, 3)
    ],
    "addbmm to more dimensions": lambda x: [
        torch.addbmm(bias, x[None], x[None, :, :1]) for bias in (x[:, :1], x[:, :1, None])
    ],
    "index broadcast": lambda x: x[x[0].long() * 0, x[0, :3].long() * 0],
    "mask": lambda x: x[x[:3] > 0],
    "mask of numbers": lambda x: x.masked_fill_(x, 2.0),
    "mask of numbers, a new result": lambda x: x.masked_fill(x.int(), 2.0),
    "mask of numbers, shared memory": lambda x: x[:1].expand(4, 4).masked_fill_(x, 2.0),
    "mask of numbers, complex": lambda x: (x + 1j).masked_fill(x, 2.0),
    "where by numbers": lambda x: torch.where(x, x, x),
    "real numbers put into complex ones": lambda x: (x + 1j).index_put_((x[0].long(),), x),
    "complex numbers put into real ones": lambda x: x.index_put_((x[0].long(),), x + 1j),
    "other numbers put": lambda x: x.index_put_((x[0].long(),), x.long()),
    "other numbers added": lambda x: x.index_add_(0, x[0].long(), x.long()),
    "other numbers copied": lambda x: x.index_copy_(0, x[0].long(), x.long()),
    "real numbers added to complex ones": lambda x: (x + 1j).index_add_(0, x[0].long(), x),
    "addr to another size": lambda x: x.addr(x[0], x[0, :1]),
    "too many indices": lambda x: x[0, 0, 0],
    "index of floats": lambda x: x[x[0]],
    "index of floats, of none": lambda x: x[x[0, :0]],
    "nothing put where a mask holds": lambda x: x.index_put_((x[:, 0] > 0,), x.new_empty(0, 4)),
    "too little put where a mask holds": lambda x: x.long().index_put_((x > 0,), x[0]),
    "put at floats": lambda x: x.index_put_((x[0] * 2,), x.new_ones(4)),
    "rows by floats": lambda x: x.index_select(0, x[0]),
    "rows by a matrix": lambda x: x.index_select(0, x.long()),
    "added by floats": lambda x: x.index_add_(0, x[0], x),
    "added by a matrix": lambda x: x.index_add_(0, x.long(), x),
    "copied by int32": lambda x: x.index_copy_(0, x[0].int(), x + 1),
    "filled by int32": lambda x: x.index_fill_(0, x[0].int(), 1),
    "taken by floats": lambda x: x.take(x),
    "put by floats": lambda x: x.put_(x, x),
    "gather dim": lambda x: x.gather(5, x.long()),
    "gather negative dim": lambda x: x.gather(-3, x.long()),
    "scatter dim": lambda x: x.scatter(2, x.long(), x),
    "scatter_add dim": lambda x: x.scatter_add(2, x.long(), x),
    "scatter_reduce dim": lambda x: x.scatter_reduce(2, x.long(), x, "prod"),
    "index_select dim": lambda x: x.index_select(2, x[0].long()),
    "index_add dim": lambda x: x.index_add(2, x[0].long(), x),
    "index_copy dim": lambda x: x.index_copy(2, x[0].long(), x),
    "index_fill dim": lambda x: x.index_fill(2, x[0].long(), 1),
    "index_reduce dim": lambda x: x.index_reduce(2, x[0].long(), x, "prod"),
    "sort dim": lambda x: x.sort(2),
    "argsort dim": lambda x: x.argsort(-3),
    "softmax dim of the last": lambda x: x.softmax(3),
    "log_softmax dim": lambda x: x.log_softmax(-3),
    "flip dim": lambda x: x.flip(3),
    "flip twice": lambda x: x.flip(0, -2),
    "nonzero out": lambda x: torch.nonzero(x, out=torch.empty(0, device=x.device)),
    "masked_select": lambda x: x.masked_select(x),
    "fractions of integers added": lambda x: torch.add(x.long(), x.long(), alpha=1.5),
    "fractions of bools added": lambda x: torch.add(x > 0, x > 0, alpha=1.5),
    "fractions of integers subtracted": lambda x: torch.sub(x.long(), 1, alpha=1.5),
    "quotients of integers added": lambda x: x.addcdiv(x.long(), x.long() + 1),
    "ends of another dtype": lambda x: torch.lerp(x.double(), x, 0.5),
    "counts of floats": lambda x: torch.bincount(x[0]),
    "counts of rows": lambda x: torch.bincount(x.long()),
    "counts below zero": lambda x: torch.bincount(x[0].long(), minlength=-1),
    "counts with other weights": lambda x: torch.bincount(x[0].long(), x[0, :3]),
    "fractional pool without samples": lambda x: functional.fractional_max_pool2d(
        x[None], 2, (2, 2), _random_samples=x.new_ones(0, 1, 2)
    ),
    "adaptive pool of integers": lambda x: functional.adaptive_avg_pool2d(x[None].long(), 2),
    "adaptive pool of nothing": lambda x: functional.adaptive_avg_pool2d(x[None, :0], 2),
    "adaptive pool of too many dimensions": lambda x: functional.adaptive_avg_pool2d(
        x[None, None, None], 2
    ),
    "adaptive maximum of integers": lambda x: functional.adaptive_max_pool2d(x[None].long(), 2),
    "gradient of an adaptive pool to nothing": lambda x: (
        functional.adaptive_avg_pool2d(x[None].requires_grad_(), 0).sum().backward()
    ),
    "gradient of an adaptive maximum of nothing": lambda x: (
        functional.adaptive_max_pool2d(x[None].requires_grad_(), 0).sum().backward()
    ),
    "sum dim": lambda x: x.sum(3),
    "softmax dim": lambda x: x.softmax(2),
    "topk": lambda x: x.topk(9),
    "item": lambda x: x.item(),
    "cast": lambda x: x.long().add_(0.5),
    "bitwise": lambda x: x & x,
    "attention": lambda x: functional.scaled_dot_product_attention(
        x[None], x[None, :, :3], x[None]
    ),
    "leaf in place": lambda x: x.requires_grad_().add_(1),
    "backward shape": lambda x: (x.requires_grad_() * 2).backward(x[0].detach()),
    "backward twice": lambda x: [y.backward() for y in [x.requires_grad_().exp().sum()] * 2],
}

CLOSE = ("conv dtypes", "conv transpose", "embedding dtype")
"""Where the CPU's text goes on to name its own types, or each dimension."""

MIXED: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "mm": lambda x, y: x @ y,
    "linear": lambda x, y: functional.linear(x, x, y[0]),
    "conv": lambda x, y: functional.conv2d(x[None, None], y[None, None]),
    "conv bias": lambda x, y: functional.conv2d(x[None, None], x[None, None], y[0, :1]),
    "cat": lambda x, y: torch.cat([x, y]),
    "where": lambda x, y: torch.where(x > 0, x, y),
    "layer_norm": lambda x, y: functional.layer_norm(x, (4,), y[0]),
    "embedding": lambda x, y: functional.embedding(y.long(), x),
    "cross_entropy": lambda x, y: functional.cross_entropy(x, y[0].long()),
    "gather": lambda x, y: x.gather(0, y.long()),
    "out": lambda x, y: torch.mm(x, x, out=y.clone()),
    "sum out": lambda x, y: torch.sum(x, 0, out=y[0].clone()),
    "positions": lambda x, y: torch.nonzero(x, out=y[0, 0].long()),
    "put": lambda x, y: x.index_put((x[0].long(),), y),
}


def goes_on(target: Any) -> bool:
    return bool((torch.ones(4, 4, device=target) @ torch.ones(4, 4, device=target)).sum() == 64)


@pytest.fixture
def limited(device: Any) -> Iterator[Callable[[int], None]]:
    """Return a function that leaves the device a number of free bytes until the test ends."""

    def leave(size: int) -> None:
        gc.collect()
        torch.ocl.empty_cache()
        memory.set_limit(device.index, torch.ocl.memory_allocated(device.index) + size)

    yield leave
    memory.set_limit(device.index, device.limits.global_bytes)
    torch.ocl.reset_accumulated_memory_stats(device.index)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_raises_the_cpus_error(device: Any, name: str) -> None:
    x = torch.ones(4, 4)
    with pytest.raises(Exception) as expected:
        WRONG[name](x.clone())
    with pytest.raises(expected.type) as raised:
        WRONG[name](x.to(place(device)))
    length = 18 if name in CLOSE else None
    ours, theirs = (str(error.value).partition("\n")[0][:length] for error in (raised, expected))
    assert ours == theirs
    assert goes_on(place(device))


@pytest.mark.parametrize("name", MIXED)
def test_tensors_on_two_devices_are_refused(device: Any, name: str) -> None:
    x, y = torch.zeros(4, 4, device=place(device)), torch.zeros(4, 4)
    others = [torch.device("ocl", other.index) for other in devices() if other != device]
    for beside in (y, *(y.to(other) for other in others)):
        with pytest.raises(RuntimeError, match=r"all tensors to be on the same device.*ocl:"):
            MIXED[name](x, beside)
    assert goes_on(place(device))


def test_a_sample_of_torchs_own_wrong_calls(device: Any) -> None:
    done = [
        one
        for pattern in ("cat", "gather", "index_select", "dot", "amax", "*pool*", "diag*")
        for one in islice(errors.wrong_calls(pattern, device.index), 12)
    ]
    assert len(done) > 40
    assert errors.complaints(done, whole=False) == []


def test_out_of_memory_is_told_as_torch_tells_it(device: Any, limited: Any) -> None:
    limited(2 * MIB)
    host = torch.ones(4 * MIB)
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 16\.00 MiB") as raised:
        host.to(place(device))
    for part in ("out of memory", "total capacity", "is free", "allocated by PyTorch", "reserved"):
        assert part in str(raised.value)
    assert goes_on(place(device))


def test_no_memory_for_a_workspace_or_in_a_backward_pass(device: Any, limited: Any) -> None:
    x = torch.ones(1, 8, 64, 64, device=place(device), requires_grad=True)
    w = torch.ones(8, 8, 3, 3, device=place(device), requires_grad=True)
    y = functional.conv2d(x, w, padding=1).exp().sum()
    limited(4096)
    with pytest.raises(torch.OutOfMemoryError):
        y.backward()
    with pytest.raises(torch.OutOfMemoryError):
        functional.conv2d(x, w, padding=1)
    limited(64 * MIB)
    functional.conv2d(x, w, padding=1).sum().backward()
    assert w.grad is not None
    assert torch.allclose(w.grad.sum().cpu(), torch.tensor(8 * 8 * 190.0**2))


def test_a_wrong_backward_node_raises_and_does_not_abort(device: Any) -> None:
    class Wrong(Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad @ torch.ones(3, 3, device=grad.device)

    x = torch.ones(4, 4, device=place(device), requires_grad=True)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        Wrong.apply(x).sum().backward()
    assert goes_on(place(device))


def test_a_kernel_that_does_not_build_says_so_and_is_forgotten(device: Any) -> None:
    with pytest.raises(BuildError, match=r"(?i)build"):
        launch.prepare(device.index, "__kernel void broken(", "broken", (1,), [])()
        launch.wait_for_programs()
    assert goes_on(place(device))


@contextmanager
def failing(entry: str, code: int) -> Iterator[None]:
    """Let the shim's OpenCL entry point `entry` do nothing but return `code`."""
    names = re.findall(
        r"^  X\((cl\w+),", (compiling.SOURCES / "runtime/opencl.h").read_text(), re.MULTILINE
    )
    table = (ctypes.c_void_p * len(names)).in_dll(shim.library(), "_ZN3ocl2clE")
    number = names.index(entry)
    before, stub = table[number], ctypes.CFUNCTYPE(ctypes.c_int)(lambda: code)
    table[number] = ctypes.cast(stub, ctypes.c_void_p).value
    try:
        yield
    finally:
        table[number] = before


@pytest.mark.parametrize(
    ("entry", "code", "error", "text"),
    [
        ("clEnqueueNDRangeKernel", -5, torch.AcceleratorError, "kernel .*CL_OUT_OF_RESOURCES"),
        ("clEnqueueNDRangeKernel", -4, torch.OutOfMemoryError, "kernel .*CL_MEM_OBJECT_ALLOCATION"),
        ("clEnqueueReadBuffer", -36, torch.AcceleratorError, "copy .*CL_INVALID_COMMAND_QUEUE"),
        ("clFinish", -2, torch.AcceleratorError, "CL_DEVICE_NOT_AVAILABLE"),
    ],
)
def test_a_device_that_refuses_is_told_of_by_torchs_errors(
    device: Any, entry: str, code: int, error: Any, text: str
) -> None:
    x = torch.ones(4, 4, device=place(device))
    with failing(entry, code), pytest.raises(error, match=text):
        (x + x).cpu()
        torch.ocl.synchronize(device.index)
    assert goes_on(place(device))


def test_a_device_lost_in_a_backward_pass_ends_no_process(device: Any) -> None:
    y = torch.ones(4, 4, device=place(device), requires_grad=True).exp().sum()
    with failing("clEnqueueNDRangeKernel", -5), pytest.raises(torch.AcceleratorError):
        y.backward()
        torch.ocl.synchronize(place(device))  # launches that another thread makes fail later
    assert goes_on(place(device))
