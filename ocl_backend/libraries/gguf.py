"""Keeps GGUF weights packed in transformers: import it, then `from_pretrained(..., gguf_file=...)`.

transformers uses a kernel package for products with packed weights; without one, it unpacks all
weights as it loads. This module takes the place of that package, for the device and, if a model
stays there, for the CPU. Loading needs the packages `gguf` and `accelerate`.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor
from transformers.core_model_loading import WeightConverter, WeightRenaming
from transformers.integrations.gguf import kernels as _kernels
from transformers.integrations.gguf.dequant import dequantize as _plain
from transformers.integrations.gguf.gguf_conversion_mapping import GGUF_ARCHS, PermuteRows

import ocl_backend  # noqa: F401 (registers the device)
from ocl_backend.ops.linear.packed import packed_linear, unpacked
from oclgen.packed_problem import FORMATS

FORMS = {form.ggml_type: form.name for form in FORMATS.values() if form.ggml_type is not None}
"""Formats by GGUF's numbers of them."""
GEMV_TYPES = frozenset(FORMS)
"""GGUF's numbers of the formats whose weights stay packed."""


def mul_mat_vec(weight: Tensor, x: Tensor, ggml_type: int, out_features: int) -> Tensor:
    """Return x [m, k] times the rows of packed weights, [m, out_features].

    Args:
        weight: uint8 [out_features, bytes of a row].
        x: fp32, fp16 or bf16.
        ggml_type: one of `GEMV_TYPES`.
        out_features: rows of the weights.
    """
    if weight.device.type != "ocl":
        return x @ dequantize(weight, ggml_type, out_features, x.shape[1], x.dtype).t()
    return packed_linear(x, weight, FORMS[ggml_type], out_features)


def dequantize(weight: Tensor, ggml_type: int, rows: int, cols: int, dtype: torch.dtype) -> Tensor:
    """Return packed weights as plain numbers, [rows, cols].

    Args:
        weight: uint8 [rows, bytes of a row].
        ggml_type: one of `GEMV_TYPES`.
        rows: of the weights.
        cols: weights of a row.
        dtype: of the result.
    """
    if weight.device.type != "ocl":
        plain: Tensor = _plain(weight, ggml_type, dtype)
        return plain.reshape(rows, cols)
    return unpacked(weight, FORMS[ggml_type], rows, cols, dtype)


def get_rows(
    weight: Tensor, indices: Tensor, ggml_type: int, cols: int, dtype: torch.dtype
) -> Tensor:
    """Return some rows of packed weights as plain numbers, [indices, cols].

    Args:
        weight: uint8 [rows, bytes of a row].
        indices: of the rows.
        ggml_type: one of `GEMV_TYPES`.
        cols: weights of a row.
        dtype: of the result.
    """
    chosen = weight.index_select(0, indices)
    return dequantize(chosen, ggml_type, len(indices), cols, dtype)


def mul_mat_id(blocks: Tensor, x: Tensor, ids: Tensor, ggml_type: int, out_features: int) -> Tensor:
    """Return each row of x times the weights of the experts that it chose.

    The host waits for the choice: each expert's rows are one product.

    Args:
        blocks: uint8 [experts, out_features, bytes of a row].
        x: [tokens, k].
        ids: [tokens, experts of a token].
        ggml_type: one of `GEMV_TYPES`.
        out_features: rows of an expert's weights.

    Returns:
        [tokens, experts of a token, out_features].
    """
    places: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for token, chosen in enumerate(ids.tolist()):
        for slot, expert in enumerate(chosen):
            places[expert].append((token, slot))
    out = x.new_empty((*ids.shape, out_features))
    for expert, where in places.items():
        tokens, slots = torch.tensor(where, device=x.device).unbind(1)
        rows = mul_mat_vec(blocks[expert], x[tokens], ggml_type, out_features)
        out[tokens, slots] = rows
    return out


def llama(config: Any) -> list[Any]:
    """Return how tensors of llama's files become transformers' weights, packed ones as they are.

    Rows of query and key lie there in the order of pairs that llama.cpp rotates, (0, 1), (2, 3);
    transformers rotates the first half of a head with the second.

    Args:
        config: of the model.

    Raises:
        ValueError: the model has experts.
    """
    if getattr(config, "num_local_experts", None):
        raise ValueError(
            "a llama file with experts: load it in a process without ocl_backend.libraries.gguf"
        )
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads

    def permuted(name: str, heads: int) -> Any:
        rows = torch.arange(heads * dim, device="cpu")  # not on meta, where models are made
        rows = rows.view(heads, dim // 2, 2).transpose(1, 2).reshape(-1)
        return WeightConverter(
            source_patterns=rf"\.attn_{name}\.weight",
            target_patterns=f".self_attn.{name}_proj.weight",
            operations=[PermuteRows(rows)],
        )

    return [
        *(WeightRenaming(theirs, ours) for theirs, ours in LLAMA.items()),
        permuted("q", config.num_attention_heads),
        permuted("k", config.num_key_value_heads),
    ]


LLAMA = {
    r"^token_embd\.": "model.embed_tokens.",
    r"^output_norm\.": "model.norm.",
    r"^output\.": "lm_head.",
    r"^blk\.": "model.layers.",
    r"\.attn_norm\.": ".input_layernorm.",
    r"\.attn_v\.": ".self_attn.v_proj.",
    r"\.attn_output\.": ".self_attn.o_proj.",
    r"\.ffn_norm\.": ".post_attention_layernorm.",
    r"\.ffn_gate\.": ".mlp.gate_proj.",
    r"\.ffn_up\.": ".mlp.up_proj.",
    r"\.ffn_down\.": ".mlp.down_proj.",
}
"""Names in llama's files and in transformers."""


def register() -> None:
    """Let transformers use these functions, and keep weights of llama's files packed, too."""
    module: Any = _kernels
    module._gguf_kernel = module.GgufKernel(sys.modules[__name__])
    GGUF_ARCHS.setdefault("llama", llama)


register()
