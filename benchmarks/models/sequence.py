"""Sequence models: an LSTM, and transformers' GPT-2, Llama and Mixtral; random weights."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import ocl_backend  # noqa: F401 (lets torchvision be imported)
from benchmarks.models.case import Case, flat

WORDS = 512
NEW_TOKENS = 24


class Recurrent(nn.Module):
    """Two LSTM layers both ways, over whole sequences and over packed ones of unequal length."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.LSTM(64, 96, num_layers=2, bidirectional=True)

    def forward(self, x: Tensor) -> list[Any]:
        """Return outputs and last states of both."""
        whole, states = self.network(x)
        packed = pack_padded_sequence(x, [24, 9, 17], enforce_sorted=False)
        part, part_states = self.network(packed)
        return [whole, states, pad_packed_sequence(part)[0], part_states]


def tokens(_: int) -> tuple[Tensor]:
    """Return two texts."""
    return (torch.randint(0, WORDS, (2, 40)),)


def of_transformers(*names: str) -> list[Any]:
    """Return classes of transformers."""
    return [getattr(import_module("transformers"), name) for name in names]


def gpt2(_: int) -> nn.Module:
    """Return a GPT-2 of 4 layers."""
    GPT2Config, GPT2LMHeadModel = of_transformers("GPT2Config", "GPT2LMHeadModel")
    config = GPT2Config(
        vocab_size=WORDS, n_positions=128, n_embd=192, n_layer=4, n_head=6, bos_token_id=0,
        eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    network: nn.Module = GPT2LMHeadModel(config)
    return network


def llama(_: int) -> nn.Module:
    """Return a Llama of 4 layers whose 6 query heads share 2 of keys and values."""
    LlamaConfig, LlamaForCausalLM = of_transformers("LlamaConfig", "LlamaForCausalLM")
    config = LlamaConfig(
        vocab_size=WORDS, hidden_size=192, intermediate_size=512, num_hidden_layers=4,
        num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=128,
        bos_token_id=0, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    network: nn.Module = LlamaForCausalLM(config)
    return network


def mixtral(_: int) -> nn.Module:
    """Return a Mixtral of 2 layers that sends each token to 2 of 4 experts."""
    MixtralConfig, MixtralForCausalLM = of_transformers("MixtralConfig", "MixtralForCausalLM")
    config = MixtralConfig(
        vocab_size=WORDS, hidden_size=96, intermediate_size=192, num_hidden_layers=2,
        num_attention_heads=6, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2,
        max_position_embeddings=128, bos_token_id=0, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    network: nn.Module = MixtralForCausalLM(config)
    return network


def read(network: nn.Module, text: Tensor) -> Tensor:
    """Return the logits and the loss of predicting the text."""
    out = network(text, labels=text)
    return flat([out.logits, out.loss])


def read_by_experts(network: Any, text: Tensor) -> Tensor:
    """Return the same of a mixture of experts; float64 has no grouped product in torch."""
    if network.dtype is torch.float64:
        network.set_experts_implementation("eager")
    return read(network, text)


def writes(network: Any, twin: Any, device: torch.device) -> str:
    """Check that both continue texts, one of them padded, by the same words, with a cache.

    Args:
        network: on the CPU.
        twin: the same on `device`.
        device: what is checked.

    Returns:
        A note for the table.

    Raises:
        AssertionError: they differ; it has both texts.
    """
    torch.manual_seed(1)
    text = torch.randint(1, WORDS, (2, 12))
    mask = torch.ones_like(text)
    mask[1, :5] = 0
    wanted = {"max_new_tokens": NEW_TOKENS, "do_sample": False, "use_cache": True}
    theirs = network.eval().generate(text, attention_mask=mask, **wanted)
    ours = twin.eval().generate(text.to(device), attention_mask=mask.to(device), **wanted)
    assert torch.equal(ours.cpu(), theirs), f"generated {ours.tolist()}, not {theirs.tolist()}"
    return f"{NEW_TOKENS} words agree"


CASES = (
    Case("lstm", lambda _: Recurrent(), lambda _: (torch.randn(24, 3, 64),)),
    Case("gpt2", gpt2, tokens, read, writes),
    Case("llama", llama, tokens, read, writes),
    Case("mixtral", mixtral, tokens, read_by_experts, writes),
)
