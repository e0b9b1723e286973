"""Prepared launches and plans: arguments, offsets, errors, threads."""

from __future__ import annotations

import struct
import threading
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import ocl_backend  # noqa: F401 (registers the device)
from ocl_backend.dispatch.prepared_plan import prepare_plan
from ocl_backend.runtime.launch import (
    LaunchSequence,
    Part,
    Pointer,
    Varying,
    prepare,
    wait_for_programs,
)
from oclgen import plan as plans
from oclgen.opencl.device import BuildError, LaunchError

AXPY = """
__kernel void axpy(
    const __global float *x, const long x_offset, __global float *y, const long y_offset,
    const float scale, const int shift, const long base)
{
    const size_t i = get_global_id(0);
    y[y_offset + i] = scale * x[x_offset + i] + shift + base;
}
"""

Arguments = list[Pointer | Varying | np.generic]


def on(device: Any, values: Any) -> Any:
    return torch.tensor(values, dtype=torch.float32).to(torch.device("ocl", device.index))


def test_pointers_carry_their_offsets_and_scalars_their_types(device: Any) -> None:
    x, y = on(device, [0.0, 1, 2, 3, 4]), on(device, [0.0] * 6)
    arguments: Arguments = [Pointer(4), Pointer(4), Varying("float"), np.int32(10), Varying("long")]
    axpy = prepare(device.index, AXPY, "axpy", (3,), arguments)
    axpy(x[2:].data_ptr(), y[1:].data_ptr(), 0.5, 2**40)
    expected: list[Any] = [0.0, *(np.float32(0.5 * v + 10 + 2**40) for v in (2, 3, 4)), 0, 0]
    assert y.cpu().tolist() == [float(v) for v in expected]
    axpy(x.data_ptr(), y.data_ptr(), -1.0, 0)
    assert y.cpu().tolist()[:3] == [10, 9, 8]


def test_launches_of_one_kernel_keep_sizes_and_numbers_of_their_own(device: Any) -> None:
    x, y = on(device, [1.0, 2, 3, 4]), on(device, [0.0] * 4)
    pointers = x.data_ptr(), y.data_ptr()

    def launch(items: int, scale: float, shift: Any) -> Any:
        numbers = np.float32(scale), shift, np.int64(0)
        arguments: Arguments = [Pointer(4), Pointer(4), *numbers]
        return prepare(device.index, AXPY, "axpy", (items,), arguments)

    short, long = launch(2, 1, np.int32(-5)), launch(4, 3, np.int32(7))
    for _ in range(2):
        long(*pointers)
        assert y.cpu().tolist() == [10, 13, 16, 19]
        short(*pointers)
        assert y.cpu().tolist() == [-4, -3, 16, 19]
    with pytest.raises(LaunchError, match=r"kernel axpy.*argument 5: CL_INVALID_ARG_SIZE"):
        launch(2, 1, np.int64(1))
    long(*pointers)
    assert y.cpu().tolist() == [10, 13, 16, 19]


def test_integers_wrap_as_those_of_c(device: Any) -> None:
    y = on(device, [0.0])
    arguments: Arguments = [Pointer(4), Pointer(4), np.float32(0), np.int32(0), Varying("long")]
    axpy = prepare(device.index, AXPY, "axpy", (1,), arguments)
    axpy(y.data_ptr(), y.data_ptr(), 2**64 - 7)
    assert y.item() == -7
    with pytest.raises(struct.error):
        axpy(y.data_ptr(), y.data_ptr())


def test_launches_in_a_row_share_values_and_workspaces(device: Any) -> None:
    x, y = on(device, [1.0, 2, 3]), on(device, [0.0] * 3)
    arguments: Arguments = [Pointer(4), Pointer(4), Varying("float"), np.int32(1), Varying("long")]
    axpy = prepare(device.index, AXPY, "axpy", (3,), arguments)
    # values x, y, scale; a base that is fixed; a workspace
    parts = [Part(axpy, (0, 4, 2, 3)), Part(axpy, (4, 1, 2, 3))]
    both = LaunchSequence(device.index, parts, 3, [12], fixed=[100])
    before = torch.ocl.memory_allocated(device.index)
    both(x.data_ptr(), y.data_ptr(), 0.5)
    assert y.cpu().tolist() == [0.5 * (0.5 * v + 101) + 101 for v in (1, 2, 3)]
    assert torch.ocl.memory_allocated(device.index) == before
    with pytest.raises(LaunchError, match=r"argument 2: not memory"):
        both(x.data_ptr(), torch.ones(3).data_ptr(), 0.5)


def test_a_workspace_without_room_is_told_of(device: Any) -> None:
    y = on(device, [0.0])
    arguments: Arguments = [Pointer(4), Pointer(4), np.float32(1), np.int32(0), np.int64(0)]
    axpy = prepare(device.index, AXPY, "axpy", (1,), arguments)
    run = LaunchSequence(device.index, [Part(axpy, (1, 0))], 1, [1 << 60])
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
        run(y.data_ptr())


def test_an_argument_follows_a_buffer_given_back_to_the_driver(device: Any) -> None:
    axpy = prepare(
        device.index, AXPY, "axpy", (4,),
        [Pointer(4), Pointer(4), np.float32(1), np.int32(0), np.int64(0)],
    )  # fmt: skip
    for value in (1.0, 2.0, 3.0):
        x, y = on(device, [value] * 4), on(device, [0.0] * 4)
        axpy(x.data_ptr(), y.data_ptr())
        assert y.cpu().tolist() == [value] * 4
        del x, y
        torch.ocl.empty_cache()


def test_a_cpu_pointer_is_refused_by_name(device: Any) -> None:
    axpy = prepare(
        device.index, AXPY, "axpy", (1,),
        [Pointer(4), Pointer(4), np.float32(1), np.int32(0), np.int64(0)],
    )  # fmt: skip
    y = on(device, [0.0])
    with pytest.raises(LaunchError, match=r"axpy, global size \(1\).*argument 0: not memory"):
        axpy(torch.ones(1).data_ptr(), y.data_ptr())
    with pytest.raises(LaunchError, match=r"argument 2: starts at byte 1, which is no multiple"):
        axpy(y.data_ptr(), y.data_ptr() + 1)


def test_a_pointer_of_another_device_is_refused(device: Any) -> None:
    others = [i for i in range(torch.ocl.device_count()) if i != device.index]
    if not others:
        pytest.skip("one device only")
    elsewhere = torch.ones(1, device=f"ocl:{others[0]}")
    axpy = prepare(
        device.index, AXPY, "axpy", (1,),
        [Pointer(4), Pointer(4), np.float32(1), np.int32(0), np.int64(0)],
    )  # fmt: skip
    with pytest.raises(LaunchError, match=f"lies on ocl:{others[0]}"):
        axpy(elsewhere.data_ptr(), elsewhere.data_ptr())


def test_a_refused_launch_names_error_kernel_and_sizes(device: Any) -> None:
    too_many = 4 * device.limits.max_work_group
    source = "__kernel void nothing(__global float *x, const long x_offset) {}"
    launch = prepare(device.index, source, "nothing", (too_many,), [Pointer(4)], (too_many,))
    with pytest.raises(LaunchError, match=rf"kernel nothing.*\({too_many}\).*CL_INVALID_WORK"):
        launch(on(device, [0.0]).data_ptr())
        wait_for_programs()


def test_a_program_that_does_not_build_shows_the_log(device: Any) -> None:
    launch = prepare(device.index, "__kernel void broken() { nonsense; }", "broken", (1,), [])
    launch()
    for _ in range(2):
        with pytest.raises(BuildError, match=r"kernel broken: (.|\n)*nonsense"):
            wait_for_programs()
        launch()  # what it lacks, it lacks at every call
    with pytest.raises(BuildError, match="nonsense"):
        wait_for_programs()


def test_the_number_of_arguments_is_checked(device: Any) -> None:
    y = on(device, [0.0])
    with pytest.raises(LaunchError, match="takes 7 arguments, 4 were described"):
        prepare(device.index, AXPY, "axpy", (1,), [Pointer(4), Pointer(4)])(*2 * [y.data_ptr()])
        wait_for_programs()


def test_a_missing_kernel_is_named(device: Any) -> None:
    with pytest.raises(LaunchError, match=r"kernel axpby: .*no kernel of that name"):
        prepare(device.index, AXPY, "axpby", (1,), [])()
        wait_for_programs()


def test_threads_share_a_launch(device: Any) -> None:
    axpy = prepare(
        device.index, AXPY, "axpy", (64,),
        [Pointer(4), Pointer(4), Varying("float"), np.int32(0), np.int64(0)],
    )  # fmt: skip
    x = on(device, [1.0] * 64)
    wrong: list[float] = []

    def work(number: int) -> None:
        y = torch.empty_like(x)
        for step in range(100):
            axpy(x.data_ptr(), y.data_ptr(), float(number * 1000 + step))
            if step % 20 == 0 and y[5].item() != number * 1000 + step:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def _two_step_plan() -> plans.Plan:
    double = """
__kernel void twice(const __global float *x, const long x_offset,
                    __global float *y, const long y_offset, const float factor)
{
    y[y_offset + get_global_id(0)] = factor * x[x_offset + get_global_id(0)];
}
"""
    factor = plans.Scalar(2.0, "float", "factor")
    first = (*plans.buffer("input"), *plans.buffer("space"), factor)
    second = (*plans.buffer("space"), *plans.buffer("output"), factor)
    return plans.Plan(
        tuple(plans.Launch(double, "twice", (4,), (1,), args) for args in (first, second)),
        (("space", 16),),
    )


def test_a_plan_runs_on_tensors_with_its_workspace_from_the_allocator(device: Any) -> None:
    x, y = on(device, [1.0, 2, 3, 4, 5]), on(device, [0.0] * 5)
    before = torch.ocl.memory_allocated(device.index)
    run = prepare_plan(device.index, _two_step_plan(), ["input", "output"])
    run(x[1:].data_ptr(), y.data_ptr())
    assert y.cpu().tolist() == [8, 12, 16, 20, 0]
    assert torch.ocl.memory_allocated(device.index) == before
    thrice = prepare_plan(
        device.index, _two_step_plan(), ["input", "output"], scalars={"factor": 3.0}
    )
    thrice(x.data_ptr(), y.data_ptr())
    assert y.cpu().tolist()[:4] == [9, 18, 27, 36]


COUNTING = """
__kernel void last_of(volatile __global int *counters, long at, __global int *out, long out_at)
{
    for (int i = 0; i < %d; ++i) {
        const int before = atomic_inc(counters + at + i);
        if (before == (int)get_num_groups(0) - 1) {
            atomic_xchg(counters + at + i, 0);
            atomic_inc(out + out_at + i);
        }
    }
}
"""


def test_counters_are_zero_before_every_launch_of_any_plan(device: Any) -> None:
    args = (*plans.buffer(plans.COUNTERS), *plans.buffer("output"))
    runs = {}
    for count in (3, 5):
        launch = plans.Launch(COUNTING % count, "last_of", (7,), (1,), args)
        plan = plans.Plan((launch,), counters=count)
        runs[count] = prepare_plan(device.index, plan, ["output"])
    out = torch.zeros(5, dtype=torch.int32).to(f"ocl:{device.index}")
    for count in (3, 5, 3, 5):
        runs[count](out.data_ptr())
    assert out.cpu().tolist() == [4, 4, 4, 2, 2]


def test_a_plan_with_an_unknown_role_is_refused(device: Any) -> None:
    with pytest.raises(LaunchError, match=r"wants \['output'\]"):
        prepare_plan(device.index, _two_step_plan(), ["input"])
