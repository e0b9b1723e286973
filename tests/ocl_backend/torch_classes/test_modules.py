"""Every module of torch's `module_db` on the device: outputs, gradients, saving, moving back."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_modules import module_db, modules
from torch.testing._internal.common_utils import TestCase, freeze_rng_state
from torch.utils import _pytree as pytree

from tests.ocl_backend.torch_classes.torch_exceptions import hold, sampled

TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}


def moved(values: Any, device: str) -> Any:
    """Copies on `device` that collect gradients of their own where the values do.

    A tensor that stands in two places is one there too: its gradients add up.
    """
    copies: dict[int, Any] = {}

    def move(tensor: Any) -> Any:
        if id(tensor) not in copies:
            copies[id(tensor)] = tensor.detach().to(device).requires_grad_(tensor.requires_grad)
        return copies[id(tensor)]

    return pytree.tree_map_only(torch.Tensor, move, values)


def outputs_and_gradients(module: Any, args: Any, kwargs: Any) -> tuple[list[Any], list[Any]]:
    with freeze_rng_state():
        outputs = [t for t in pytree.tree_leaves(module(*args, **kwargs)) if torch.is_tensor(t)]
    scalars = [t.double().sum() for t in outputs if t.requires_grad]
    leaves = [*module.parameters(), *pytree.tree_leaves((args, kwargs))]
    wanted = [t for t in leaves if torch.is_tensor(t) and t.requires_grad]
    if not scalars or not wanted:
        return outputs, []
    return outputs, list(torch.autograd.grad(sum(scalars), wanted, allow_unused=True))


class TestModules(TestCase):  # type: ignore[misc]
    def cases(self, info: Any, training: bool) -> Any:
        make = info.module_inputs_func
        for case in make(
            info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
        ):
            if case.forward_input is None:
                continue
            built, given = case.constructor_input, case.forward_input
            torch.manual_seed(0)
            module = info.module_cls(*built.args, **built.kwargs).train(training)
            yield module, given.args, given.kwargs

    @modules(sampled(module_db, 12), allowed_dtypes=[torch.float32])
    def test_agrees_with_the_cpu(
        self, device: str, dtype: Any, module_info: Any, training: bool
    ) -> None:
        def check() -> None:
            for module, args, kwargs in self.cases(module_info, training):
                twin = copy.deepcopy(module).to(device)
                expected = outputs_and_gradients(module, args, kwargs)
                got = outputs_and_gradients(twin, moved(args, device), moved(kwargs, device))
                torch.testing.assert_close(
                    got, expected, check_device=False, equal_nan=True, **TOLERANCE
                )
                assert all(t.device == torch.device(device) for t in got[0])

        hold("modules", f"{module_info.name} {'train' if training else 'eval'}", check)

    @modules(sampled(module_db, 12), allowed_dtypes=[torch.float32])
    def test_is_saved_and_loaded(
        self, device: str, dtype: Any, module_info: Any, training: bool
    ) -> None:
        for module, _, _ in self.cases(module_info, training):
            state = module.state_dict()
            file = io.BytesIO()
            torch.save(module.to(device).state_dict(), file)
            file.seek(0)
            loaded = torch.load(file, map_location="cpu", weights_only=True)
            torch.testing.assert_close(loaded, state, rtol=0, atol=0, check_device=False)
            twin = copy.deepcopy(module)
            twin.load_state_dict(loaded)
            torch.testing.assert_close(
                dict(twin.to("cpu").state_dict()), dict(state), rtol=0, atol=0, check_device=False
            )
            return  # one of its inputs: they share what is saved


instantiate_device_type_tests(TestModules, globals(), only_for=("ocl",))
