"""Generates text: greedily, by sampling and by beams, with a cache, for texts of unequal length."""

import ocl_backend  # noqa: F401 (first: registers the device, lets torchvision be imported)
import torch
from transformers import GPT2Config, GPT2LMHeadModel

WORDS, NEW = 64, 12


def main() -> dict[str, list[list[int]]]:
    """Return the new words by the way they were chosen."""
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=WORDS, n_positions=64, n_embd=64, n_layer=2, n_head=4,
                        bos_token_id=0, eos_token_id=None, pad_token_id=0)  # fmt: skip
    model = GPT2LMHeadModel(config).eval().to("ocl")  # or from_pretrained(folder)
    prompt = torch.randint(1, WORDS, (2, 8), device="ocl")
    mask = torch.ones_like(prompt)
    mask[1, :3] = 0  # the second text is shorter, and begins behind its padding
    ways = {
        "greedy": {"do_sample": False},
        "sampled": {"do_sample": True, "top_k": 8, "temperature": 0.8},
        "beams": {"do_sample": False, "num_beams": 3},
    }
    found = {}
    for name, options in ways.items():
        whole = model.generate(prompt, attention_mask=mask, max_new_tokens=NEW, **options)
        found[name] = whole[:, prompt.shape[1] :].tolist()
        print(f"{name}: {found[name][0]}")
    print(f"operators on the CPU: {torch.ocl.fallbacks() or 'none'}")
    return found


if __name__ == "__main__":
    main()
