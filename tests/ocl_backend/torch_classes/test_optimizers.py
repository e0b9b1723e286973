"""Every optimizer of torch's `optim_db` on the device: steps as on the CPU, state saved midway."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_optimizers import optim_db, optims
from torch.testing._internal.common_utils import TestCase

from tests.ocl_backend.torch_classes.torch_exceptions import hold, sampled

STEPS = 3
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def train(model: Any, optimizer: Any, steps: int) -> None:
    place = next(model.parameters()).device
    for step in range(steps):
        x = torch.linspace(-1, 1, 12).reshape(3, 4).add(0.1 * step).to(place)

        def loss(x: Any = x) -> Any:
            optimizer.zero_grad()
            value = model(x).square().mean()
            value.backward()
            return value

        optimizer.step(loss)


class TestOptimizers(TestCase):  # type: ignore[misc]
    def configs(self, info: Any) -> Any:
        """The optimizer's configs of numbers alone, as torch's database lists them."""
        for config in info.optim_inputs_func(device="cpu"):
            if not any(isinstance(value, torch.Tensor) for value in config.kwargs.values()):
                yield config.kwargs

    def model(self, info: Any) -> Any:
        torch.manual_seed(0)
        # Muon takes matrices only
        return torch.nn.Linear(4, 3, bias=info.optim_cls.__name__ != "Muon")

    @optims(sampled(optim_db, 4), dtypes=[torch.float32])
    def test_steps_as_on_the_cpu(self, device: str, dtype: Any, optim_info: Any) -> None:
        def check() -> None:
            for kwargs in self.configs(optim_info):
                model = self.model(optim_info)
                twin = copy.deepcopy(model).to(device)
                train(model, optim_info.optim_cls(model.parameters(), **kwargs), STEPS)
                train(twin, optim_info.optim_cls(twin.parameters(), **kwargs), STEPS)
                torch.testing.assert_close(
                    dict(twin.state_dict()),
                    dict(model.state_dict()),
                    check_device=False,
                    msg=lambda text, kwargs=kwargs: f"{kwargs}: {text}",
                    **CLOSE,
                )

        hold("optimizers", f"{optim_info.optim_cls.__name__} agrees", check)

    @optims(sampled(optim_db, 4), dtypes=[torch.float32])
    def test_goes_on_from_a_saved_state(self, device: str, dtype: Any, optim_info: Any) -> None:
        def check() -> None:
            create = optim_info.optim_cls
            file = io.BytesIO()
            whole, half = (self.model(optim_info).to(device) for _ in range(2))
            optimizer, first = (create(m.parameters(), lr=0.01) for m in (whole, half))
            train(half, first, STEPS)
            torch.save((half.state_dict(), first.state_dict()), file)
            file.seek(0)
            weights, state = torch.load(file, map_location="cpu", weights_only=True)
            other = self.model(optim_info).to(device)
            other.load_state_dict(weights)
            second = create(other.parameters(), lr=0.01)
            second.load_state_dict(state)
            train(whole, optimizer, STEPS)
            for model, last in ((whole, optimizer), (other, second)):
                train(model, last, STEPS)
            assert torch.equal(whole.weight, other.weight)

        hold("optimizers", optim_info.optim_cls.__name__, check)


instantiate_device_type_tests(TestOptimizers, globals(), only_for=("ocl",))
