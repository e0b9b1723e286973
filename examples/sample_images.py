"""Samples images as Stable Diffusion does: a text's states steer a U-Net, then a decoder."""

import ocl_backend  # noqa: F401 (first: registers the device, lets torchvision be imported)
import torch
from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel

STEPS, SIDE, GUIDANCE, WIDTH = 4, 8, 3.0, 32


def parts() -> tuple[CLIPTextModel, UNet2DConditionModel, AutoencoderKL]:
    """Return the three networks, small and with random weights; use `from_pretrained` for real."""
    text = CLIPTextModel(CLIPTextConfig(
        vocab_size=64, hidden_size=WIDTH, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=16, eos_token_id=2))  # fmt: skip
    unet = UNet2DConditionModel(
        sample_size=SIDE, block_out_channels=(WIDTH, WIDTH), layers_per_block=1, norm_num_groups=8,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), cross_attention_dim=WIDTH,
        attention_head_dim=8)  # fmt: skip
    decoder = AutoencoderKL(
        block_out_channels=(WIDTH, WIDTH), norm_num_groups=8, latent_channels=4,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    )  # fmt: skip
    return text, unet, decoder


@torch.no_grad()
def main(device: str = "ocl") -> torch.Tensor:
    """Return images [2, 3, 2 * SIDE, 2 * SIDE] between -1 and 1, on the CPU."""
    torch.manual_seed(0)
    text, unet, decoder = (part.eval().to(device) for part in parts())
    scheduler = DDIMScheduler(clip_sample=False)
    scheduler.set_timesteps(STEPS)
    words = torch.tensor([[1, 9, 30, 2], [1, 41, 5, 2]])
    nothing = torch.tensor([[1, 2, 2, 2]]).expand(2, 4)
    states = text(torch.cat([nothing, words]).to(device)).last_hidden_state
    image = torch.randn(2, 4, SIDE, SIDE).to(device)
    for time in scheduler.timesteps:
        noise = unet(torch.cat([image, image]), time.to(device), states).sample
        without, steered = noise.chunk(2)
        image = scheduler.step(without + GUIDANCE * (steered - without), time, image).prev_sample
        print(f"time {int(time)}: deviation {image.std().item():.2f}")
    return decoder.decode(image).sample.clamp(-1, 1).cpu()


if __name__ == "__main__":
    main()
    print(f"operators on the CPU: {torch.ocl.fallbacks() or 'none'}")
