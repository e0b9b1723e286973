"""The module torch.ocl and what torch itself expects of a device: a checklist."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests import torch_processes
from tests.ocl_backend.cpu_twin import place


def test_the_device_is_torchs_accelerator(device: Any) -> None:
    assert torch.accelerator.current_accelerator().type == "ocl"
    assert torch.accelerator.device_count() == torch.ocl.device_count() > device.index
    assert torch.ocl.is_available()
    assert torch.ocl.is_initialized()
    assert not torch.ocl._is_in_bad_fork()


def test_every_public_name_exists_and_is_documented() -> None:
    for name in torch.ocl.__all__:
        assert getattr(torch.ocl, name).__doc__, name
    assert len(torch.ocl.default_generators) == torch.ocl.device_count()


def test_properties_are_those_of_the_opencl_device(device: Any) -> None:
    assert torch.ocl.get_device_properties(device.index).opencl is device
    assert torch.ocl.get_device_name(place(device)) == device.name


def test_the_current_device_is_switched_and_restored(device: Any) -> None:
    before = torch.ocl.current_device()
    with torch.ocl.device(device.index):
        assert torch.ocl.current_device() == device.index
        assert torch.zeros(1, device="ocl").device.index == device.index
    assert torch.ocl.current_device() == before
    with torch.ocl.device(None), torch.ocl.device(-1):
        assert torch.ocl.current_device() == before


def test_the_current_device_belongs_to_its_thread(device: Any) -> None:
    seen: list[int] = []
    with torch.ocl.device(device.index):
        thread = threading.Thread(target=lambda: seen.append(torch.ocl.current_device()))
        thread.start()
        thread.join()
    assert seen == [0]


@pytest.mark.parametrize("bad", [99, "ocl:99", torch.device("ocl", 99)])
def test_an_unknown_index_says_how_many_there_are(bad: Any) -> None:
    with pytest.raises(RuntimeError, match=r"there is no device ocl:99; \d+ "):
        torch.ocl.set_device(bad)
    with pytest.raises(RuntimeError, match=r"there is no device ocl:99; \d+ "):
        torch.ocl.memory_allocated(bad)


def test_a_tensor_on_an_unknown_index_says_how_many_there_are() -> None:
    with pytest.raises(RuntimeError, match=r"there is no device ocl:99; \d+ .*oclgen doctor"):
        torch.zeros(1, device="ocl:99")


def test_another_kind_of_device_is_refused() -> None:
    with pytest.raises(ValueError, match="expected an ocl device, got cpu"):
        torch.ocl.synchronize("cpu")


def test_seeds_repeat_and_differ(device: Any) -> None:
    with torch.ocl.device(device.index):
        torch.ocl.manual_seed(7)
        assert torch.ocl.initial_seed() == 7
        first, second = (torch.rand(5, device="ocl").cpu() for _ in range(2))
        assert not torch.equal(first, second)
        torch.manual_seed(7)
        assert torch.equal(torch.rand(5, device="ocl").cpu(), first)


def test_the_state_of_a_generator_can_be_kept_and_restored(device: Any) -> None:
    torch.ocl.manual_seed_all(3)
    torch.rand(5, device=place(device))
    state = torch.ocl.get_rng_state(place(device))
    first = torch.rand(5, device=place(device)).cpu()
    torch.ocl.set_rng_state(state, place(device))
    assert torch.equal(torch.rand(5, device=place(device)).cpu(), first)
    assert len(torch.ocl.get_rng_state_all()) == torch.ocl.device_count()
    with pytest.raises(RuntimeError, match="16 contiguous bytes"):
        torch.ocl.set_rng_state(torch.zeros(3, dtype=torch.uint8), place(device))


def test_fork_rng_covers_the_device(device: Any) -> None:
    before = torch.ocl.get_rng_state(place(device))
    with torch.random.fork_rng(devices=[device.index], device_type="ocl"):
        torch.rand(5, device=place(device))
    assert torch.equal(torch.ocl.get_rng_state(place(device)), before)


def test_a_generator_of_ones_own_leaves_the_default_alone(device: Any) -> None:
    before = torch.ocl.get_rng_state(place(device))
    own = torch.Generator(place(device)).manual_seed(11)
    first = torch.rand(4, device=place(device), generator=own).cpu()
    assert torch.equal(torch.ocl.get_rng_state(place(device)), before)
    assert own.get_offset() > 0
    own.manual_seed(11)
    assert own.get_offset() == 0
    assert torch.equal(torch.rand(4, device=place(device), generator=own).cpu(), first)
    assert own.clone_state().get_offset() == own.get_offset()
    assert own.seed() == own.initial_seed()


@pytest.mark.usefixtures("any_device")
def test_seed_all_gives_every_device_the_same_new_seed() -> None:
    number = torch.ocl.seed_all()
    assert {g.initial_seed() for g in torch.ocl.default_generators} <= {number}


def test_events_and_streams_order_and_wait(device: Any) -> None:
    with torch.ocl.device(device.index):
        event = torch.Event(device="ocl")
        x = torch.ones(1000, device="ocl")
        event.record()
        event.synchronize()
        assert event.query()
        stream = torch.accelerator.current_stream()
        stream.synchronize()
        while not stream.query():  # it asks by a marker of its own
            time.sleep(0.001)
        event.wait(stream)
        x.record_stream(stream)
        assert x.cpu().sum() == 1000


def test_events_time_what_lies_between_them(device: Any) -> None:
    with torch.ocl.device(device.index):
        start, end = (torch.Event(device="ocl", enable_timing=True) for _ in range(2))
        x = torch.ones(1 << 20, device="ocl")
        began = time.perf_counter()
        start.record()
        for _ in range(10):
            x = x + 1
        end.record()
        end.synchronize()
        waited = (time.perf_counter() - began) * 1e3
    assert 0 < start.elapsed_time(end) <= waited * 1.1


def test_a_module_moves_and_is_copied(device: Any) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    weight = module[0].weight.detach().clone()
    module.to(place(device))
    twin = copy.deepcopy(module)
    assert twin[0].weight.device == place(device)
    assert twin[0].weight.data_ptr() != module[0].weight.data_ptr()
    assert torch.equal(twin[0].weight.cpu(), weight)
    assert torch.equal(module.cpu()[0].weight, weight)
    assert next(torch.nn.Linear(2, 2).ocl(device.index).parameters()).is_ocl


def test_gradients_are_computed_and_accumulate(device: Any) -> None:
    torch.manual_seed(0)
    module = torch.nn.Linear(4, 3)
    x = torch.randn(5, 4)
    module(x).pow(2).sum().backward()
    expected = module.weight.grad.clone()
    twin = copy.deepcopy(module).to(place(device))
    twin.zero_grad()
    for _ in range(2):
        twin(x.to(place(device))).pow(2).sum().backward()
    torch.testing.assert_close(twin.weight.grad.cpu(), 2 * expected, rtol=1e-4, atol=1e-5)


def test_backward_runs_on_other_threads(device: Any) -> None:
    answers: list[list[float]] = []

    def work() -> None:
        x = torch.full((8,), 3.0, device=place(device), requires_grad=True)
        (x * x).sum().backward()
        answers.append(x.grad.cpu().unique().tolist())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [[6.0]] * 4


def test_tensors_are_saved_and_loaded(device: Any) -> None:
    saved = {"a": torch.arange(6.0, device=place(device)).reshape(2, 3), "b": torch.ones(2)}
    file = io.BytesIO()
    torch.save(saved, file)
    for target in (None, "cpu", str(place(device))):
        file.seek(0)
        loaded = torch.load(file, map_location=target)
        assert loaded["a"].device == torch.device(target or place(device))
        assert torch.equal(loaded["a"].cpu(), saved["a"].cpu())
    assert torch.equal(pickle.loads(pickle.dumps(saved["a"])).cpu(), saved["a"].cpu())


def test_views_share_memory(device: Any) -> None:
    x = torch.arange(24.0, device=place(device))
    views = [
        x.view(4, 6), x.reshape(2, 3, 4).permute(2, 0, 1), x[3:9:2], x.unfold(0, 4, 2),
        x.as_strided((3, 2), (2, 5), 1), x.view(torch.int32), x.unsqueeze(0).expand(5, 24),
        x.view(4, 6).diagonal(), x.detach(), x.split(5)[2], x.narrow(0, 4, 6), x.view(2, 12).t(),
    ]  # fmt: skip
    storage = x.untyped_storage().data_ptr()
    assert all(view.untyped_storage().data_ptr() == storage for view in views)
    x.view(4, 6)[1:3, 2:4] = -1.0
    expected = torch.arange(24.0)
    expected.view(4, 6)[1:3, 2:4] = -1.0
    assert torch.equal(x.cpu(), expected)


def test_storages_can_be_shared_resized_and_moved(device: Any) -> None:
    x = torch.arange(6.0, device=place(device))
    alias = torch.empty(0, device=place(device)).set_(x.untyped_storage())
    assert torch.equal(alias.cpu(), x.cpu())
    window = torch.empty(0, device=place(device)).set_(x.untyped_storage(), 2, (2, 2), (1, 2))
    assert window.cpu().tolist() == [[2, 4], [3, 5]]
    assert torch.equal(torch.empty(0, device=place(device)).set_(window).cpu(), window.cpu())
    assert alias.is_set_to(x)
    assert not window.is_set_to(x)
    assert not x.clone().is_set_to(x)
    assert x.resize_(2, 5).shape == (2, 5)
    assert torch.ones(3).untyped_storage().ocl(device.index).device == place(device)
    assert torch.empty(3, device=place(device)).set_().numel() == 0


def test_a_tensor_prints(device: Any) -> None:
    text = repr(torch.tensor([1.5, 2.0], device=place(device)))
    assert text == f"tensor([1.5000, 2.0000], device='ocl:{device.index}')"


def test_pinning_on_the_device_is_refused(device: Any) -> None:
    with pytest.raises(RuntimeError, match="only CPU memory can be pinned"):
        torch.empty(3, device=place(device), pin_memory=True)


def test_the_default_device_can_be_ours(device: Any) -> None:
    with place(device):
        assert torch.ones(2).device == place(device)


def test_a_data_loader_pins_for_the_device(device: Any) -> None:
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=1, pin_memory=True)
    batches = [batch.to(place(device), non_blocking=True) for (batch,) in loader]
    assert torch.equal(torch.cat([b.cpu() for b in batches]), torch.arange(8.0))


PROGRAMS = {
    "tensors alive at exit": "x = [torch.ones(100, device='ocl') for _ in range(10)]",
    "work in flight": "x = torch.ones(1 << 20, device='ocl')\nfor _ in range(50): x = x + 1",
    "after a backward pass": (
        "x = torch.ones(9, device='ocl', requires_grad=True)\n(x * x).sum().backward()"
    ),
    "no gradients anywhere": "torch.set_grad_enabled(False)\ntorch.ones(3, device='ocl')",
    "work in an exit handler": (
        "import atexit\natexit.register(lambda: torch.ones(3, device='ocl').sum().item())"
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("any_device")
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_process_ends_cleanly(name: str) -> None:
    program = f"import ocl_backend, torch\n{PROGRAMS[name]}\nprint('done')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "done"
    assert "Exception" not in done.stderr
    assert done.returncode == 0, done.stderr
    assert "terminate" not in done.stderr


def test_no_opencl_device_is_said_at_first_use() -> None:
    program = """
import oclgen.opencl.device
oclgen.opencl.device._platforms = lambda: []
import ocl_backend, torch
print(torch.ocl.is_available(), torch.ocl.device_count(), torch.manual_seed(1).initial_seed())
try:
    torch.ones(2, device="ocl")
except RuntimeError as error:
    print(error)
"""
    done = torch_processes.run(program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("False 0 1\n")
    assert "oclgen doctor" in done.stdout
