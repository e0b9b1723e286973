"""torchao's weight-only configs: int8 and int4 layers on packed weights of the device."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
quantization: Any = pytest.importorskip("torchao.quantization")

import ocl_backend.libraries.torchao  # noqa: F401 (what is tested)
from tests.libraries.toys import LLAMA, adapted_losses

pytestmark = pytest.mark.usefixtures("any_device")


@pytest.fixture
def model() -> Any:
    torch.manual_seed(0)
    layers = torch.nn.Linear(1024, 64), torch.nn.ReLU(), torch.nn.Linear(64, 24, bias=False)
    return torch.nn.Sequential(*layers).bfloat16()


def problems(model: Any, x: Any) -> list[str]:
    """Return the problems that a call of the model solves, without their sizes."""
    return [row.problem.split(":")[-1] for row in torch.ocl.explain(model, x).rows]


def close(one: Any, other: Any) -> bool:
    return bool((one.float() - other.float()).norm() < 2e-2 * other.float().norm())


@pytest.mark.parametrize("rows", [1, 40])
def test_int8_weights_stay_packed(model: Any, rows: int) -> None:
    config, x = quantization.Int8WeightOnlyConfig(), torch.randn(rows, 1024).bfloat16()
    ours = copy.deepcopy(model).to("ocl")
    for one in (model, ours):
        quantization.quantize_(one, config)
    assert close(ours(x.to("ocl")).cpu(), model(x))
    assert problems(ours, x.to("ocl")) == ["int8", "int8"]
    given = x.to("ocl").requires_grad_()
    ours(given).sum().backward()
    x.requires_grad_()
    model(x).sum().backward()
    assert close(given.grad.cpu(), x.grad)


def test_int4_weights_are_packed_and_stay_so(model: Any) -> None:
    """torchao packs four bits on CUDA alone, so the weights that were packed are the reference."""
    config = quantization.Int4WeightOnlyConfig(
        group_size=32, int4_packing_format="tile_packed_to_4d"
    )
    ours, x = copy.deepcopy(model).to("ocl"), torch.randn(2, 1024).bfloat16()
    quantization.quantize_(ours, config)
    got = ours(x.to("ocl")).cpu()
    assert problems(ours, x.to("ocl")) == ["int4_32z", "int4_32z"]
    for layer in (0, 2):
        weight = model[layer].weight
        groups = weight.detach().float().reshape(-1, 32)
        low, high = groups.amin(1, keepdim=True), groups.amax(1, keepdim=True)
        step = (high - low) / 15
        model[layer].weight.data = (
            (((groups - low) / step).round() * step + low).reshape(weight.shape).bfloat16()
        )
    wanted = model(x)
    assert (got.float() - wanted.float()).norm() < 0.1 * wanted.float().norm()


def test_inputs_of_int4_layers_have_gradients(model: Any) -> None:
    config = quantization.Int4WeightOnlyConfig(
        group_size=32, int4_packing_format="tile_packed_to_4d"
    )
    ours = copy.deepcopy(model).to("ocl")
    quantization.quantize_(ours, config)
    whole = torch.eye(1024, dtype=torch.bfloat16, device="ocl")
    with torch.no_grad():  # what the packed weights are, by the products with each unit
        weights = [ours[0](whole) - ours[0].bias, ours[2](whole[:64, :64])]
    x = torch.randn(2, 1024).bfloat16().to("ocl").requires_grad_()
    hidden = torch.randn(2, 64).bfloat16().to("ocl").requires_grad_()
    for layer, given, weight in zip((ours[0], ours[2]), (x, hidden), weights, strict=True):
        plain = layer(given.detach())
        trained = layer(given)
        assert close(trained, plain)
        trained.sum().backward()
        assert close(given.grad, weight.sum(1).expand_as(given))


def test_lora_trains_beside_packed_weights_as_on_the_cpu() -> None:
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    sizes = LLAMA | {"hidden_size": 64, "intermediate_size": 128}

    def losses(device: str) -> list[float]:
        torch.manual_seed(0)
        plain = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).bfloat16()
        quantization.quantize_(plain.to(device).model, quantization.Int8WeightOnlyConfig())
        config = peft.LoraConfig(
            r=4, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM"
        )
        adapted = peft.get_peft_model(plain, config).to(device)
        return adapted_losses(adapted, device)

    before = dict(torch.ocl.fallbacks())
    ours = losses("ocl")
    assert torch.ocl.fallbacks() == before
    assert ours[-1] < ours[0] - 0.2
    assert ours == pytest.approx(losses("cpu"), rel=2e-3)
