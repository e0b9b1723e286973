"""Operators go on while programs are built: results, order, errors, interrupts, and exits."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import ocl_backend  # noqa: F401 (registers the device)
from ocl_backend.dispatch import tuned
from oclgen.opencl.device import BuildError
from tests import torch_processes
from tests.ocl_backend.cpu_twin import place
from tests.ocl_backend.late import Late, unmet

Tensors = list[Any]


def steps(rng: random.Random, n: int) -> list[Callable[[Tensors, str], None]]:
    """Return a program over three matrices of n x n small whole numbers, which all round the same.

    Every step takes the tensors and the device on which new ones are made.
    """
    i, j, k = (rng.randrange(3) for _ in range(3))
    row, value = rng.randrange(n - 2), rng.randrange(-3, 4)
    host = torch.tensor([[rng.randrange(-3, 4) for _ in range(n)] for _ in range(n)]).float()

    def put(make: Callable[[Tensors, str], Any]) -> Callable[[Tensors, str], None]:
        def step(tensors: Tensors, place: str) -> None:
            tensors[k] = make(tensors, place)

        return step

    def fill_view(tensors: Tensors, place: str) -> None:
        tensors[i][row : row + 2, 1:].fill_(value)

    def add_in_place(tensors: Tensors, place: str) -> None:
        tensors[i].add_(tensors[j]).clamp_(-4, 4)

    def overwrite(tensors: Tensors, place: str) -> None:
        tensors[i].copy_(host)

    def copy_part(tensors: Tensors, place: str) -> None:
        tensors[i][row].copy_(tensors[j][:, row])

    def look(tensors: Tensors, place: str) -> None:
        tensors[k] = tensors[i] + tensors[i][0, 0].item()

    return [
        put(lambda t, p: (t[i] + t[j]).clamp(-4, 4)),
        put(lambda t, p: torch.mm(t[i], t[j]).remainder(5)),
        put(lambda t, p: t[i].clone()),
        put(lambda t, p: t[i].t().contiguous()),
        put(lambda t, p: host.to(p, copy=True)),
        put(lambda t, p: torch.relu(t[i]) - t[j].sum(0, keepdim=True).remainder(3)),
        put(lambda t, p: torch.zeros(n, n, device=p) + t[i].clamp(-4, 4)),
        fill_view,
        add_in_place,
        overwrite,
        copy_part,
        *([look] if rng.random() < 0.2 else []),
    ]


def program(seed: int, n: int) -> list[Callable[[Tensors, str], None]]:
    rng = random.Random(seed)
    return [rng.choice(steps(rng, n)) for _ in range(30)]


def results(made: list[Callable[[Tensors, str], None]], n: int, place: str) -> Tensors:
    tensors = [torch.full((n, n), float(value)).to(place) for value in (1, 2, -1)]
    for step in made:
        step(tensors, place)
    return [tensor.cpu() for tensor in tensors]


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_do_what_they_do_without_waiting(
    device: Any, late: Late, seed: int
) -> None:
    n = unmet()
    made = program(seed, n)
    expected = results(made, n, "cpu")
    for _ in range(3):  # from the third on calls are recalled
        for ours, theirs in zip(results(made, n, str(place(device))), expected, strict=True):
            assert torch.equal(ours, theirs)
    assert late.waits


def test_threads_wait_each_in_its_order(device: Any, late: Late) -> None:
    n = unmet()
    made = [program(seed, n) for seed in range(4)]
    expected = [results(one, n, "cpu") for one in made]
    found: dict[int, Tensors] = {}

    def work(number: int) -> None:
        found[number] = results(made[number], n, str(place(device)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(made))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, tensors in enumerate(expected):
        assert all(map(torch.equal, found[number], tensors))


def test_a_training_step_is_the_same(device: Any, late: Late) -> None:
    def losses() -> list[float]:
        torch.manual_seed(0)
        channels = 5
        network = torch.nn.Sequential(
            torch.nn.Conv2d(3, channels, 3, padding=1),
            torch.nn.BatchNorm2d(channels),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(channels * size * size, 7),
        ).to(place(device))
        optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
        images, labels = torch.randn(4, 3, size, size), torch.tensor([0, 1, 2, 3])
        told = []
        for _ in range(3):
            optimizer.zero_grad()
            scores = network(images.to(place(device)))
            loss = torch.nn.functional.cross_entropy(scores, labels.to(place(device)))
            loss.backward()
            optimizer.step()
            told.append(loss.detach())
        return [loss.item() for loss in told]

    size = 11
    first = losses()
    assert late.waits
    assert losses() == first


def test_a_program_that_does_not_build_raises_with_the_operator_that_wanted_it(
    device: Any, late: Late
) -> None:
    n = unmet()
    x = torch.ones(n, n).to(place(device))
    late.refused = lambda source: "erfinv" in source
    broken = torch.erfinv(x)
    right = x + 1
    with pytest.raises(RuntimeError, match=r"refused it(.|\n)*erfinv waited for its program"):
        torch.ocl.synchronize(device.index)
    assert right.sum().item() == 2 * n * n
    late.refused = lambda source: False
    assert torch.erfinv(0 * x).sum().item() == 0
    del broken


def test_a_variant_that_does_not_build_gives_way_to_the_next(device: Any, late: Late) -> None:
    n = unmet()
    a, b = torch.randn(n, n), torch.randn(n, n)
    x, y = a.to(place(device)), b.to(place(device))
    torch.ocl.synchronize(device.index)
    tuned.reload_tuned()
    refused: list[str] = []

    def first(source: str) -> bool:
        refused.append(source)
        return source == refused[0]

    late.refused = first
    product = torch.mm(x, y)
    later = product + 1
    with pytest.warns(UserWarning, match="does not build and the next best is taken"):
        torch.testing.assert_close(later.cpu(), a @ b + 1)
    late.refused = lambda source: source == refused[0]
    torch.testing.assert_close(torch.mm(x, y).cpu(), a @ b)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_wait_loses_nothing(
    device: Any, late: Late, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = unmet()
    x = torch.ones(n, n).to(place(device)) + 1
    honest = device.ahead.wait

    def interrupted(future: Future[Any], tell: Any = None) -> Any:
        monkeypatch.setattr(device.ahead, "wait", honest)
        raise KeyboardInterrupt

    monkeypatch.setattr(device.ahead, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        x.sum().item()
    assert x.sum().item() == 2 * n * n


def test_a_failing_build_is_no_abort_of_a_profile(device: Any, late: Late) -> None:
    n = unmet()
    x = torch.ones(n, n).to(place(device))
    late.refused = lambda source: True
    y = x * 3
    with pytest.raises((BuildError, RuntimeError), match="refused it"), torch.ocl.profile(None):
        pass
    late.refused = lambda source: False
    with torch.ocl.profile(None) as seen:
        x * 5
    assert seen.commands
    del y


def test_a_profile_holds_what_waited(device: Any, late: Late) -> None:
    n = unmet()
    x = torch.ones(n, n).to(place(device))
    with torch.ocl.profile(file=None) as seen:
        x * 3
    assert seen.commands


def run(code: str, folder: Path) -> torch_processes.Running:
    """Start a process whose programs lie in `folder`."""
    environment = os.environ | {"XDG_CACHE_HOME": str(folder)}
    return torch_processes.Running(textwrap.dedent(code), environment)


def run_alone(code: str, folder: Path, **more: str) -> subprocess.Popen[str]:
    """Start a process that imports torch itself: for tests of its end."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], text=True,
        env=os.environ | {"XDG_CACHE_HOME": str(folder), **more},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, unvectorised: None) -> Path:
    """A cache folder with the shim, what is known of runtimes, and nothing else."""
    from shutil import copytree

    from ocl_backend.runtime import shim
    from oclgen.opencl import loader

    copytree(shim.path().parent, tmp_path / "oclgen/shim")
    copytree(loader.cache_folder("health"), tmp_path / "oclgen/health")
    return tmp_path


STEP = """
    import torch, ocl_backend
    from oclgen.opencl.device import devices
    model = torch.nn.Linear(19, 23).to("ocl")
    model(torch.ones(7, 19, device="ocl")).relu().sum().backward()
    tally = devices()[0].programs.tally
    print(model.weight.grad.sum().item() is not None, tally.loaded, tally.built)
"""
PRODUCT = """
    import torch, ocl_backend
    x = torch.ones(7, 19, device="ocl")
    print((x @ x.T).sum().item() == 7 * 7 * 19)
"""


def test_a_second_process_builds_nothing(any_device: None, folder: Path) -> None:
    from oclgen.opencl import programs
    from oclgen.opencl.device import devices

    if devices()[0].info.runtime in programs.OWN_CACHES:
        pytest.skip("the driver keeps what it built")

    def counts() -> tuple[int, int]:
        process = run(STEP, folder)
        out, errors = process.communicate()
        assert process.returncode == 0, errors
        loaded, built = map(int, out.split()[-2:])
        return loaded, built

    loaded, built = counts()
    assert loaded == 0 < built
    loaded, built = counts()
    assert built == 0 < loaded
    for path in (folder / "oclgen/programs").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    loaded, built = counts()
    assert loaded == 0 < built  # fewer than at first where a race has a winner meanwhile


def test_two_processes_build_at_once(any_device: None, folder: Path) -> None:
    both = [run(PRODUCT, folder) for _ in range(2)]
    for process in both:
        out, errors = process.communicate()
        assert process.returncode == 0, errors
        assert out == "True\n"


def test_a_process_that_ends_while_programs_are_built_ends_cleanly(
    any_device: None, folder: Path
) -> None:
    code = """
        import torch, ocl_backend
        x = torch.ones(8, device="ocl")
        for name in ("sin", "cos", "tan", "erf", "exp", "log", "lgamma", "digamma", "erfinv"):
            x = getattr(torch, name)(x)
        from oclgen.opencl.device import devices
        pool = devices()[0].ahead._pool
        print(*[child.pid for child in pool.children if child.pid] if pool else [])
    """
    process = run_alone(code, folder)
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert_ended(out.split())


def test_processes_that_build_end_with_a_killed_parent(any_device: None, folder: Path) -> None:
    code = """
        import time, torch, ocl_backend
        x = torch.ones(8, device="ocl")
        for name in ("sin", "cos", "tan", "erf", "exp", "log", "lgamma", "digamma", "erfinv"):
            x = getattr(torch, name)(x)
        from oclgen.opencl.device import devices
        pool = devices()[0].ahead._pool
        while pool and not (pids := [child.pid for child in pool.children if child.pid]):
            time.sleep(0.01)
        print(*pids if pool else [], flush=True)
        time.sleep(600)
    """
    process = run_alone(code, folder, OCLGEN_BUILDERS="2")
    assert process.stdout is not None
    pids = process.stdout.readline().split()
    process.kill()
    process.communicate()
    assert pids
    assert_ended(pids)


def assert_ended(pids: list[str]) -> None:
    """Wait until no process of these is there, or none that runs."""
    for pid in pids:
        status = Path(f"/proc/{pid}/status")
        while True:
            try:
                if "State:\tZ" in status.read_text(encoding="utf-8"):
                    break
            except OSError:
                break
            time.sleep(0.05)
