"""Sizes of models that are made in no time."""

from __future__ import annotations

from typing import Any

LLAMA: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "eos_token_id": None,
    "pad_token_id": 0,
}
"""Of a config of transformers; no token ends a text."""
