"""transformers' interface to packed GGUF weights: on the device as transformers unpacks them."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
pytest.importorskip("transformers.integrations.gguf.kernels")

from transformers.integrations.gguf import kernels, utils
from transformers.integrations.gguf.dequant import dequantize

from ocl_backend.libraries import gguf
from oclgen.measuring.packed_reference import random_weights
from oclgen.packed_problem import FORMATS

pytestmark = pytest.mark.usefixtures("any_device")
K, ROWS = 512, 24
NUMBERS = {form: number for number, form in gguf.FORMS.items()}


def weights(form: str, *shape: int) -> Any:
    """Return random packed weights [*shape, ROWS, bytes of a row]."""
    count = ROWS * max(1, *shape) if shape else ROWS
    packed = torch.from_numpy(random_weights(FORMATS[form], count, K, seed=2))
    return packed.view(*shape, ROWS, -1)


@pytest.mark.parametrize("form", ["q4_0", "q4_1", "q8_0", "q4_k", "q6_k"])
@pytest.mark.parametrize("rows", [1, 8, 11])
def test_a_linear_layer_keeps_its_blocks(form: str, rows: int) -> None:
    """Up to 8 rows transformers asks for a product, above it for the unpacked weights."""
    number = NUMBERS[form]
    assert number in gguf.GEMV_TYPES and kernels.kernel_can_read(torch.empty(1, device="ocl"))
    layer = utils.GgufLinear(K, ROWS, number)
    layer.weight.data = weights(form)
    x = torch.randn(rows, K)
    wanted = x.double() @ dequantize(layer.weight.data, number).reshape(ROWS, K).double().t()
    on_cpu = layer(x)
    got = layer.to("ocl")(x.to("ocl"))
    assert layer.weight.dtype is torch.uint8
    for each in (on_cpu, got.cpu()):
        # of all numbers: one of a thousand summands may cancel to less than their rounding
        assert (each.double() - wanted).norm() <= 1e-5 * wanted.norm()


def test_an_embedding_unpacks_the_rows_that_it_reads() -> None:
    number = NUMBERS["q8_0"]
    table = utils.GgufEmbedding(ROWS, K, number, torch.float32)
    table.weight.data = weights("q8_0")
    ids = torch.tensor([[3, 0], [23, 3]])
    wanted = table(ids)
    assert torch.equal(table.to("ocl")(ids.to("ocl")).cpu(), wanted)


def test_tokens_go_through_the_experts_that_they_chose() -> None:
    number, blocks = NUMBERS["q4_k"], weights("q4_k", 4)
    x, ids = torch.randn(5, K), torch.randint(0, 4, (5, 2), dtype=torch.int32)
    plain = dequantize(blocks, number).reshape(4, ROWS, K)
    wanted = torch.einsum("tk,tsnk->tsn", x, plain[ids.long()])
    got = gguf.mul_mat_id(blocks.to("ocl"), x.to("ocl"), ids.to("ocl"), number, ROWS)
    assert torch.allclose(got.cpu(), wanted, atol=1e-4, rtol=1e-3)
