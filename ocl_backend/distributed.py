"""`torch.distributed` for the device: copies through the host, and gloo between processes.

`init_process_group()` finds it as the backend "ocl" (`ocl_autoload`). A group serves tensors of the
CPU as gloo does, and tensors of the device by copies of them: inputs go to the host at the call,
and results come back when the work has ended. Nothing here opens a device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from threading import Lock
from typing import Any, cast

import torch
from torch import Tensor
from torch import distributed as dist

READ = {"send"}
"""Collectives whose tensors are read only."""

READ_AND_WRITTEN = {"allreduce", "allreduce_coalesced", "broadcast", "reduce"}
"""Collectives that write what they read."""

WRITTEN = {
    "_allgather_base",
    "_reduce_scatter_base",
    "all_gather_single",
    "all_gather_single_coalesced",
    "all_to_all_single",
    "allgather",
    "allgather_coalesced",
    "allgather_into_tensor_coalesced",
    "alltoall_base",
    "gather",
    "recv",
    "recv_anysource",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced",
    "scatter",
}
"""Collectives that write their first argument and read the second; some have an older name, too."""


def create(store: Any, rank: int, size: int, timeout: timedelta) -> dist.ProcessGroup:
    """Return this process's part of a new group, as torch asks a backend for it.

    Args:
        store: where processes leave each other their addresses.
        rank: the number of this process in the group.
        size: the number of processes in the group.
        timeout: how long a collective may take.
    """
    gloo = dist.ProcessGroupGloo(store, rank, size, timeout=timeout)
    new_group: Any = ThroughHost  # torch's types do not know that classes of Python need no store
    group, host = new_group(rank, size), dist.ProcessGroup(store, rank, size)
    kind = dist.ProcessGroup.BackendType.GLOO
    for made in (group, host):
        made._set_default_backend(kind)
        for device in ("cpu", "ocl"):
            made._register_backend(torch.device(device), kind, gloo)
    group.host = host
    return cast(ThroughHost, group)


class ThroughHost(dist.ProcessGroup):
    """A group of processes whose tensors lie on the CPU or on the device."""

    host: dist.ProcessGroup
    """The same processes, for tensors of the CPU alone."""

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], *options: Any) -> Any:
        """Exchange tensors of any sizes, of which gloo's `alltoall` wants equal ones."""
        flat = torch.cat([tensor.detach().flatten() for tensor in inputs]).cpu()
        sizes = [[tensor.numel() for tensor in tensors] for tensors in (outputs, inputs)]
        received = torch.empty(sum(sizes[0]), dtype=flat.dtype)
        work = self.host.alltoall_base(received, flat, *sizes, *options)
        parts = torch.split(received, sizes[0])
        return Work(work, outputs, [p.view(t.shape) for p, t in zip(parts, outputs, strict=True)])

    def barrier(self, *given: Any, **named: Any) -> Any:
        """Wait for all processes; the device that torch names, or has not, takes no part."""
        wanted = dist.BarrierOptions()
        for options in (*given, *named.values()):
            wanted.timeout, wanted.asyncOp = options.timeout, options.asyncOp
        wanted.device = torch.device("cpu")
        return self.host.barrier(wanted)


class Work(dist.Work):
    """A collective on copies: when it has ended, what it wrote goes to the device."""

    def __init__(self, work: Any, tensors: Any, copies: Any) -> None:
        """Take charge of a collective that has begun.

        Args:
            work: that of the collective on copies.
            tensors: a tensor or lists of them, which the caller wants written.
            copies: the same on the host.
        """
        super().__init__()
        self._work, self._tensors, self._copies = work, tensors, copies
        self._lock = Lock()

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait for the processes and copy; True.

        Args:
            timeout: how long to wait; 0: as long as the group does.

        Raises:
            RuntimeError: a process is gone, or has not come in time.
        """
        self._work.wait(timeout)
        self._finish()
        return True

    def get_future(self) -> Any:
        """Return a future of the tensors that are written."""
        return self._work.get_future().then(self._result)

    def is_completed(self) -> bool:
        """Return whether `wait` has nothing to wait for but copies."""
        return bool(self._work.is_completed())

    def _source_rank(self) -> int:
        return int(self._work._source_rank())

    def _result(self, ended: Any) -> Any:
        ended.value()  # raises what the collective did
        self._finish()
        return self._tensors

    def _finish(self) -> None:
        with self._lock:  # a thread of gloo calls it, too; the second caller finds all copied
            if self._copies is not None:
                _copy(self._copies, self._tensors)
            self._copies = None


FEW_NUMBERS = 64
"""Numbers of a sum that `_LATEST` keeps; the count of processes in DDP's `join` is one."""
_LATEST: deque[Work] = deque(maxlen=256)
"""The latest sums of few numbers. DDP's reducer holds the C++ half of the one that counts the
processes, and asks it later; without the Python half it would wait for ever. Bound: 256."""


def _collective(name: str) -> Callable[..., Any]:
    def collective(self: ThroughHost, first: Any, *others: Any, **options: Any) -> Any:
        call = getattr(self.host, name)
        if not _any_on_device((first, others)):
            return call(first, *others, **options)
        copies = _host(first, read=name not in WRITTEN)
        given = [_host(other) for other in others]
        with _summed(copies if name in READ_AND_WRITTEN else given, (*others, *options.values())):
            work = call(copies, *given, **options)
        whole = Work(work, first, None if name in READ else copies)
        if name == "allreduce" and sum(map(torch.numel, copies)) <= FEW_NUMBERS:
            _LATEST.append(whole)
        return whole

    collective.__name__ = name
    return collective


@contextmanager
def _summed(copies: Any, options: Sequence[Any]) -> Iterator[None]:
    """Multiply what is reduced where the sum is one of products, which gloo does not know.

    FSDP2 asks for it where a program sets by what gradients are divided.

    Args:
        copies: what is reduced, in lists; other values are left alone.
        options: of the collective; one of them may name a reduction, here a sum meanwhile.
    """
    asked = next((one for one in options if hasattr(one, "reduceOp")), None)
    if asked is None or asked.reduceOp != dist.ReduceOp.PREMUL_SUM:
        yield
        return
    reduction = asked.reduceOp
    _multiply(copies, reduction.__getstate__()[1])
    asked.reduceOp = dist.ReduceOp.SUM
    try:
        yield
    finally:
        asked.reduceOp = reduction


def _multiply(copies: Any, factor: float | Tensor) -> None:
    if isinstance(copies, list):
        for one in copies:
            _multiply(one, factor)
    elif isinstance(copies, Tensor):
        copies *= factor.cpu() if isinstance(factor, Tensor) else factor


def _any_on_device(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_any_on_device, value))
    return isinstance(value, Tensor) and value.device.type == "ocl"


def _host(value: Any, read: bool = True) -> Any:
    """Return `value` with a copy on the host, or only memory for one, of each tensor in it."""
    if isinstance(value, list | tuple):
        return [_host(item, read) for item in value]
    if not isinstance(value, Tensor) or value.device.type != "ocl":
        return value
    if value.is_sparse:
        return value.detach().cpu()
    host = torch.empty(value.shape, dtype=value.dtype)
    return host.copy_(value.detach()) if read else host


def _copy(source: Any, target: Any) -> None:
    if isinstance(target, Tensor):
        if target.is_sparse:
            with torch.no_grad():  # a detached sparse tensor would alone get the new values
                target.copy_(source)
        elif target is not source:
            target.data.copy_(source)  # no write that autograd counts, as gloo's own is none
    else:
        for one, other in zip(source, target, strict=True):
            _copy(one, other)


for _name in READ | READ_AND_WRITTEN | WRITTEN:
    if hasattr(dist.ProcessGroup, _name):
        setattr(ThroughHost, _name, _collective(_name))
