"""Lightning on the device: one device, mixed precision, and what is said of a wrong choice."""

from __future__ import annotations

import pickle
import tomllib
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import ocl_backend  # noqa: F401 (torchvision needs it beside a CPU torch)

lightning: Any = pytest.importorskip("lightning.pytorch")

from ocl_backend.libraries.lightning import OCLAccelerator

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("any_device")


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 2)
        self.seen: list[tuple[str, Any]] = []

    def training_step(self, batch: Any, number: int) -> Any:
        images, labels = batch
        scores = self.layer(images)
        self.seen.append((scores.device.type, scores.dtype))
        return torch.nn.functional.cross_entropy(scores, labels)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)


def fit(folder: Path, **options: Any) -> Module:
    module = Module()
    draw = torch.Generator().manual_seed(0)
    rows = [(torch.randn(4, generator=draw), row % 2) for row in range(8)]
    quiet = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "default_root_dir": folder,
    }
    trainer = lightning.Trainer(max_epochs=1, **quiet, **options)
    trainer.fit(module, torch.utils.data.DataLoader(rows, batch_size=4))
    return module


def test_training_agrees_with_the_cpu(tmp_path: Path) -> None:
    expected = fit(tmp_path, accelerator="cpu")
    module = fit(tmp_path, accelerator="ocl", strategy="ocl")
    assert module.seen == [("ocl", torch.float32)] * 2
    torch.testing.assert_close(module.layer.weight.cpu(), expected.layer.weight)


@pytest.mark.parametrize(
    ("precision", "dtype"), [("bf16-mixed", torch.bfloat16), ("16-mixed", torch.float16)]
)
def test_mixed_precision_is_that_of_the_device(precision: str, dtype: Any, tmp_path: Path) -> None:
    module = fit(tmp_path, accelerator="ocl", strategy="ocl", precision=precision)
    assert module.seen == [("ocl", dtype)] * 2


def test_the_cpu_is_not_taken_in_silence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match='strategy="ocl"'):
        fit(tmp_path, accelerator="ocl")


def test_a_trainer_on_the_cpu_is_warned_of(tmp_path: Path) -> None:
    """The entry point hands the callback to every Trainer."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    for package in ("lightning.pytorch", "pytorch_lightning"):
        module, _, name = groups[f"{package}.callbacks_factory"]["ocl"].partition(":")
        factory = getattr(import_module(module), name)
    with pytest.warns(UserWarning, match='accelerator="ocl", strategy="ocl"'):
        fit(tmp_path, accelerator="auto", callbacks=pickle.loads(pickle.dumps(factory())))
    with warnings.catch_warnings(record=True) as met:
        warnings.simplefilter("always")
        fit(tmp_path, accelerator="ocl", strategy="ocl", callbacks=factory())
    assert not [one for one in met if "on the CPU" in str(one.message)]


def test_devices_are_read_as_lightning_writes_them() -> None:
    count = torch.ocl.device_count()
    every = list(range(count))
    read = OCLAccelerator.parse_devices
    assert [read(-1), read(count), read(1), read("1"), read("0,"), read([0])] == [
        every, every, [0], [0], [0], [0],
    ]  # fmt: skip
    for wrong in (count + 1, [count], f"{count},"):
        with pytest.raises(ValueError, match=f"there are {count} OpenCL devices"):
            read(wrong)
