"""Ways of decoding beside the plain ones: looked-up tokens, padded prompts, paged caches."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")

from tests.libraries.test_generation import both, llama, mixtral, seeded, whisper
from tests.libraries.toys import LLAMA

pytestmark = pytest.mark.usefixtures("any_device")

WAYS: dict[str, dict[str, Any]] = {
    "looked up": {"prompt_lookup_num_tokens": 3},
    "static, not compiled": {"cache_implementation": "static", "disable_compile": True},
    "beams in a static cache": {"cache_implementation": "static", "num_beams": 2},
    "without a cache": {"use_cache": False},
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", WAYS)
def test_the_tokens_are_those_of_the_cpu(way: str) -> None:
    def call(model: Any, device: str) -> Any:
        prompt = torch.tensor([[5, 9, 33, 2, 5, 9, 33]]).to(device)
        return model.generate(prompt, max_new_tokens=8, do_sample=False, **WAYS[way])

    ours, theirs = both(seeded(llama), call)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_padded_prompts_and_sliding_windows_are_seen(cache: str) -> None:
    def mistral() -> Any:
        return transformers.MistralForCausalLM(
            transformers.MistralConfig(**LLAMA, sliding_window=4)
        )

    def call(model: Any, device: str) -> Any:
        prompts = torch.tensor([[0, 0, 5, 9, 33, 2], [7, 7, 12, 40, 3, 8]])
        given = {"input_ids": prompts, "attention_mask": (prompts != 0).long()}
        given = {name: value.to(device) for name, value in given.items()}
        options = {} if cache == "dynamic" else {"cache_implementation": cache}
        return model.generate(**given, max_new_tokens=6, do_sample=False, **options)

    for make in (mistral, mixtral):
        ours, theirs = both(seeded(make), call)
        assert torch.equal(ours, theirs)


def test_whisper_decodes_by_beams() -> None:
    features = torch.randn(2, 8, 32, generator=torch.Generator().manual_seed(1))

    def call(model: Any, device: str) -> Any:
        given = torch.tensor([[1], [1]]).to(device)
        options = {"max_new_tokens": 5, "do_sample": False, "num_beams": 2}
        return model.generate(features.to(device), decoder_input_ids=given, **options)

    ours, theirs = both(seeded(whisper), call)
    assert torch.equal(ours, theirs)


PROMPTS = [5, 9, 33, 2], [7, 7, 12, 40, 3, 3, 9], [1, 2]


@pytest.mark.parametrize(
    ("implementation", "dtype"),
    [("sdpa", torch.float32), ("sdpa", torch.bfloat16), ("paged|eager", torch.float32)],
    ids=str,
)
def test_requests_share_a_paged_cache(implementation: str, dtype: Any) -> None:
    batching = pytest.importorskip("transformers.generation.configuration_utils")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**LLAMA, attn_implementation=implementation)
    model = transformers.LlamaForCausalLM(config).to(dtype).eval()
    greedy = transformers.GenerationConfig(
        max_new_tokens=6, do_sample=False, eos_token_id=-1, pad_token_id=0
    )
    pages = batching.ContinuousBatchingConfig(page_size=16, num_blocks=16, max_batch_tokens=32)

    def tokens() -> list[list[int]]:
        found = model.generate_batch(
            list(PROMPTS), generation_config=greedy, continuous_batching_config=pages
        )
        assert [request.error for request in found.values()] == [None] * len(PROMPTS)
        return [request.generated_tokens for request in found.values()]

    with torch.no_grad():
        expected = tokens()
        model.to("ocl")
        before = dict(torch.ocl.fallbacks())
        assert tokens() == expected
        assert torch.ocl.fallbacks() == before


def test_batches_that_overlap_are_refused_with_the_reason() -> None:
    """transformers asks for streams and graphs of CUDA or XPU there."""
    batching = pytest.importorskip("transformers.generation.configuration_utils")
    pages = batching.ContinuousBatchingConfig(
        page_size=16, num_blocks=16, max_batch_tokens=32, use_async_batching=True
    )
    greedy = transformers.GenerationConfig(max_new_tokens=2, do_sample=False, eos_token_id=-1)
    with pytest.raises(RuntimeError, match=r"device type in .* but got device.type = 'ocl'"):
        seeded(llama).to("ocl").generate_batch(
            [[5, 9]], generation_config=greedy, continuous_batching_config=pages
        )
