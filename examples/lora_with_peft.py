"""Teaches a frozen language model a pattern by LoRA (peft), and merges what was learned."""

import ocl_backend  # noqa: F401 (first: registers the device, lets torchvision be imported)
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

WORDS, STEPS = 32, 40


def main() -> list[float]:
    """Return the losses."""
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=WORDS, hidden_size=64, intermediate_size=128,
                         num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                         bos_token_id=0, eos_token_id=None, pad_token_id=0)  # fmt: skip
    base = LlamaForCausalLM(config)  # with weights of your own: from_pretrained(folder)
    model = get_peft_model(base, LoraConfig(r=8, target_modules="all-linear")).to("ocl")
    model.print_trainable_parameters()
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=5e-3)
    text = torch.arange(16, device="ocl").remainder(4).expand(8, 16)  # 0 1 2 3 0 1 2 3 ...
    losses = []
    for step in range(STEPS):
        loss = model(text, labels=text).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 10 == 9:
            print(f"step {step + 1}: loss {losses[-1]:.3f}")
    merged = model.merge_and_unload()
    said = merged.generate(text[:1, :5], max_new_tokens=6, do_sample=False)
    print(f"after {said[0, :5].tolist()} comes {said[0, 5:].tolist()}")
    return losses


if __name__ == "__main__":
    main()
