"""Writes a small llama as a GGUF file, loads it with transformers and runs on its packed weights.

A downloaded file works the same: give its folder and name to `generate`.
"""

import ocl_backend.libraries.gguf  # noqa: F401 (first: weights stay packed)
import tempfile
from pathlib import Path

import gguf
import numpy
import torch
from transformers import AutoModelForCausalLM

WIDTH, HEADS, INNER, LAYERS, WORDS = 64, 2, 128, 2, 32
PACKED = gguf.GGMLQuantizationType.Q8_0


def write(path: Path) -> None:
    """Write a llama with random weights, the large ones in 8 bits."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(WORDS)
    writer.add_token_list([f"word{number}" for number in range(WORDS)])
    draw = numpy.random.default_rng(0)
    shapes = {"attn_q": (WIDTH, WIDTH), "attn_k": (WIDTH, WIDTH), "attn_v": (WIDTH, WIDTH),
              "attn_output": (WIDTH, WIDTH), "ffn_gate": (INNER, WIDTH), "ffn_up": (INNER, WIDTH),
              "ffn_down": (WIDTH, INNER)}  # fmt: skip
    layers = {f"blk.{i}.{name}": shape for i in range(LAYERS) for name, shape in shapes.items()}
    for name, shape in {**layers, "token_embd": (WORDS, WIDTH), "output": (WORDS, WIDTH)}.items():
        weight = draw.normal(scale=0.2, size=shape).astype(numpy.float32)
        packed = gguf.quants.quantize(weight, PACKED)
        writer.add_tensor(f"{name}.weight", packed, raw_dtype=PACKED)
    norms = [f"blk.{i}.{name}_norm" for i in range(LAYERS) for name in ("attn", "ffn")]
    for name in (*norms, "output_norm"):
        writer.add_tensor(f"{name}.weight", numpy.ones(WIDTH, numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def generate(folder: Path, name: str) -> list[int]:
    """Return what a model's file generates greedily, and print how its weights lie."""
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    model = model.eval().to("ocl")
    prompt = torch.tensor([[3, 7, 11]], device="ocl")
    whole = model.generate(prompt, max_new_tokens=8, do_sample=False, eos_token_id=None)
    held = sorted({str(parameter.dtype) for parameter in model.parameters()})
    print(f"weights lie as {', '.join(held)}; it says {whole[0, 3:].tolist()}")
    print(f"operators on the CPU: {torch.ocl.fallbacks() or 'none'}")
    words: list[int] = whole[0, 3:].tolist()
    return words


def main() -> list[int]:
    """Return the words of a file that is written for this run."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "small.gguf")
        return generate(Path(folder), "small.gguf")


if __name__ == "__main__":
    main()
