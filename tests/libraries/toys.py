"""Sizes of models that are made in no time, and steps that train them."""

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


def adapted_losses(model: Any, device: str) -> list[float]:
    """Return the losses of four steps that train what of a language model may be trained."""
    import torch

    tokens = torch.tensor([[5, 9, 33, 2, 8], [7, 7, 12, 40, 1]], device=device)
    step = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    found = []
    for _ in range(4):
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        step.step()
        step.zero_grad()
        found.append(loss.item())
    return found
