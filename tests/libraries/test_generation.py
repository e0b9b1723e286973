"""Models of transformers at toy size: the CPU's results, and nothing that falls back to it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")

import ocl_backend  # noqa: F401 (torchvision needs it beside a CPU torch)
from tests.libraries.toys import LLAMA, adapted_losses

pytestmark = pytest.mark.usefixtures("any_device")

ENCODER = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
}
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "beams": {"do_sample": False, "num_beams": 3},
    "static": {"do_sample": False, "cache_implementation": "static"},
}


def llama(layers: int = 2) -> Any:
    config = transformers.LlamaConfig(**(LLAMA | {"num_hidden_layers": layers}))
    return transformers.LlamaForCausalLM(config)


def mixtral() -> Any:
    config = transformers.MixtralConfig(**LLAMA, num_local_experts=4, num_experts_per_tok=2)
    return transformers.MixtralForCausalLM(config)


def mamba() -> Any:
    config = transformers.MambaConfig(
        vocab_size=64, hidden_size=32, state_size=8, num_hidden_layers=2, eos_token_id=None,
        pad_token_id=0,
    )  # fmt: skip
    return transformers.MambaForCausalLM(config)


def t5() -> Any:
    config = transformers.T5Config(
        vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
        feed_forward_proj="gated-gelu", decoder_start_token_id=0, eos_token_id=None,
        pad_token_id=0,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config)


def whisper() -> Any:
    config = transformers.WhisperConfig(
        vocab_size=64, **ENCODER, max_source_positions=16, max_target_positions=32,
        num_mel_bins=8, decoder_start_token_id=1, eos_token_id=None, bos_token_id=None,
        pad_token_id=0, begin_suppress_tokens=None, suppress_tokens=None,
    )  # fmt: skip
    return transformers.WhisperForConditionalGeneration(config)


def clip() -> Any:
    config = transformers.CLIPConfig(
        text_config={
            "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "eos_token_id": 63, "bos_token_id": 1, "pad_token_id": 0,
        },
        vision_config={
            "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "image_size": 16, "patch_size": 8,
        },
        projection_dim=16,
    )  # fmt: skip
    return transformers.CLIPModel(config)


def bert() -> Any:
    config = transformers.BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64,
    )  # fmt: skip
    return transformers.BertModel(config)


def seeded(make: Callable[[], Any]) -> Any:
    torch.manual_seed(0)
    return make().eval()


def both(model: Any, call: Callable[[Any, str], Any]) -> tuple[Any, Any]:
    """Return what a call gives on the CPU and on the device, where nothing may fall back."""
    with torch.no_grad():
        theirs = call(model, "cpu")
        model.to("ocl")
        before = dict(torch.ocl.fallbacks())
        ours = call(model, "ocl").cpu()
        assert torch.ocl.fallbacks() == before
    return ours, theirs


@pytest.mark.sampled(4)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [llama, mixtral, mamba, t5])
def test_the_tokens_are_those_of_the_cpu(make: Callable[[], Any], way: str) -> None:
    if way == "static" and make is mamba:
        pytest.skip("its cache is a state of one size")
    prompts = torch.tensor([[5, 9, 33, 2], [7, 7, 12, 40]])
    seen = torch.ones_like(prompts)

    def call(model: Any, device: str) -> Any:
        given = {"input_ids": prompts.to(device), "attention_mask": seen.to(device)}
        return model.generate(**given, max_new_tokens=7, **WAYS[way])

    ours, theirs = both(seeded(make), call)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("make", [llama, mixtral])
def test_keys_wait_on_the_host(make: Callable[[], Any]) -> None:
    """transformers' own offloaded caches ask for streams of CUDA."""
    from ocl_backend.libraries.transformers import OffloadedCache

    caches: list[Any] = []

    def call(model: Any, device: str) -> Any:
        given = torch.tensor([[5, 9, 33, 2], [7, 7, 12, 40]]).to(device)
        options: dict[str, Any] = {"max_new_tokens": 7, "num_beams": 2, "do_sample": False}
        if device == "ocl":
            caches.append(OffloadedCache(model.config))
            options["past_key_values"] = caches[0]
        return model.generate(given, **options)

    ours, theirs = both(seeded(make), call)
    assert torch.equal(ours, theirs)
    assert {layer.keys.device.type for layer in caches[0].layers} == {"cpu"}


def test_a_sampled_token_is_one_that_the_cpu_may_draw() -> None:
    def call(model: Any, device: str) -> Any:
        torch.manual_seed(0)
        given = torch.tensor([[5, 9, 33, 2]] * 64).to(device)
        return model.generate(given, max_new_tokens=2, do_sample=True, top_k=3)

    ours, theirs = both(seeded(llama), call)
    assert {*ours[:, 4].tolist()} == {*theirs[:, 4].tolist()}  # of three tokens 64 draws miss none


def test_assisted_tokens_are_those_without_assistance() -> None:
    assistant = seeded(lambda: llama(1))

    def call(model: Any, device: str) -> Any:
        given = torch.tensor([[5, 9, 33, 2]]).to(device)
        options = {"max_new_tokens": 8, "do_sample": False}
        return model.generate(given, assistant_model=assistant.to(device), **options)

    ours, theirs = both(seeded(llama), call)
    assert torch.equal(ours, theirs)


def test_whisper_writes_what_the_cpu_writes() -> None:
    features = torch.randn(2, 8, 32, generator=torch.Generator().manual_seed(1))

    def call(model: Any, device: str) -> Any:
        given = torch.tensor([[1], [1]]).to(device)
        options = {"max_new_tokens": 6, "do_sample": False}
        return model.generate(features.to(device), decoder_input_ids=given, **options)

    ours, theirs = both(seeded(whisper), call)
    assert torch.equal(ours, theirs)


def test_encoders_agree_with_the_cpu() -> None:
    tokens = torch.tensor([[5, 9, 33, 63], [7, 7, 63, 0]])
    images = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))

    def matched(model: Any, device: str) -> Any:
        return model(input_ids=tokens.to(device), pixel_values=images.to(device)).logits_per_image

    def embedded(model: Any, device: str) -> Any:
        mask = (tokens != 0).long().to(device)
        return model(tokens.to(device), attention_mask=mask).last_hidden_state

    for make, call in ((clip, matched), (bert, embedded)):
        ours, theirs = both(seeded(make), call)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_lora_trains_as_on_the_cpu() -> None:
    peft = pytest.importorskip("peft")

    def losses(device: str) -> list[float]:
        torch.manual_seed(0)
        config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
        model = peft.get_peft_model(llama(), config).to(device)
        return adapted_losses(model, device)

    before = dict(torch.ocl.fallbacks())
    assert losses("ocl") == pytest.approx(losses("cpu"), rel=1e-4)
    assert torch.ocl.fallbacks() == before


def test_sentences_are_embedded_as_on_the_cpu(tmp_path: Path) -> None:
    sentences: Any = pytest.importorskip("sentence_transformers")
    parts: Any = pytest.importorskip("sentence_transformers.models")
    tokenizers = pytest.importorskip("tokenizers")
    words = {f"w{number}": number for number in range(64)}
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    named = transformers.PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="w0")
    named.save_pretrained(tmp_path)
    seeded(bert).save_pretrained(tmp_path)

    def embedded(device: str) -> Any:
        chain = [parts.Transformer(str(tmp_path)), parts.Pooling(32, pooling_mode="mean")]
        model = sentences.SentenceTransformer(modules=[*chain, parts.Normalize()], device=device)
        return model.encode(["w1 w2 w3", "w4 w5", "w9 w9 w9 w9 w1"], convert_to_tensor=True)

    theirs = embedded("cpu")
    before = dict(torch.ocl.fallbacks())
    ours = embedded("ocl")
    assert ours.device.type == "ocl"
    torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-5)
    assert torch.ocl.fallbacks() == before


def test_replayed_steps_give_the_same_tokens() -> None:
    from ocl_backend.libraries.transformers import replay

    torch.manual_seed(0)
    model = llama().eval()
    prompts = [torch.tensor([[5, 9, 33]]), torch.tensor([[7, 1, 2]])]
    options: dict[str, Any] = {"do_sample": False, "max_new_tokens": 12, "min_new_tokens": 12}
    expected = [model.generate(prompt, **options) for prompt in prompts]
    model = replay(model.to("ocl"))
    calls = []
    model.model.register_forward_hook(lambda *_: calls.append(1))
    torch.ocl.reset_fallbacks()
    # the prompt and the recording; before the first one two tokens, too
    for prompt, tokens, count in zip(prompts, expected, (4, 2), strict=True):
        calls.clear()
        assert torch.equal(model.generate(prompt.to("ocl"), **options).cpu(), tokens)
        assert len(calls) == count
        gc.collect()
    assert len(model.get_compiled_call(None)._recordings) == 1
    assert torch.ocl.fallbacks() == {}
