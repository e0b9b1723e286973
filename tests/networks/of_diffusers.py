"""diffusers: the networks that denoise, and the autoencoders around them, at a width of 32."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from tests.networks.made import Made

DOWN, UP = ("DownBlock2D", "CrossAttnDownBlock2D"), ("CrossAttnUpBlock2D", "UpBlock2D")
TWO = {"block_out_channels": (32, 32), "norm_num_groups": 8, "layers_per_block": 1}
CODED = {"in_channels": 3, "out_channels": 3, "latent_channels": 4}
SMALL = {"num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 1}


def image(channels: int = 4, side: int = 16) -> Tensor:
    """Return two images."""
    return torch.randn(2, channels, side, side)


def text(width: int = 32, length: int = 7) -> Tensor:
    """Return two encoded texts."""
    return torch.randn(2, length, width)


def video(channels: int = 4, frames: int = 3, side: int = 8) -> Tensor:
    """Return two videos."""
    return torch.randn(2, channels, frames, side, side)


def steps() -> Tensor:
    """Return the time of two images."""
    return torch.tensor([10, 500])


def tokens(count: int = 16, width: int = 4) -> Tensor:
    """Return two images as rows of patches."""
    return torch.randn(2, count, width)


NETWORKS: dict[str, tuple[dict[str, Any], Callable[[], dict[str, Any]]]] = {
    "UNet2DModel": (
        {**TWO, "sample_size": 16, "in_channels": 4, "out_channels": 4,
         "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
         "up_block_types": ("AttnUpBlock2D", "UpBlock2D")},
        lambda: {"sample": image(), "timestep": steps()},
    ),
    "UNet2DConditionModel": (
        {**TWO, "sample_size": 16, "down_block_types": DOWN, "up_block_types": UP,
         "cross_attention_dim": 32, "attention_head_dim": 8},
        lambda: {"sample": image(), "timestep": steps(), "encoder_hidden_states": text()},
    ),
    "UNet3DConditionModel": (
        {**TWO, "sample_size": 8, "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"),
         "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D"), "cross_attention_dim": 32,
         "attention_head_dim": 8},
        lambda: {"sample": video(), "timestep": steps(), "encoder_hidden_states": text()},
    ),
    "UNetMotionModel": (
        {**TWO, "sample_size": 8,
         "down_block_types": ("CrossAttnDownBlockMotion", "DownBlockMotion"),
         "up_block_types": ("UpBlockMotion", "CrossAttnUpBlockMotion"), "cross_attention_dim": 32,
         "num_attention_heads": 2, "motion_num_attention_heads": 2},
        lambda: {"sample": video(), "timestep": steps(), "encoder_hidden_states": text()},
    ),
    "UNet1DModel": (
        {"block_out_channels": (32, 32), "sample_size": 32, "in_channels": 4, "out_channels": 4,
         "time_embedding_type": "positional", "act_fn": "swish", "freq_shift": 1.0,
         "flip_sin_to_cos": False, "use_timestep_embedding": True, "norm_num_groups": 8,
         "out_block_type": "OutConv1DBlock", "mid_block_type": "MidResTemporalBlock1D",
         "down_block_types": ("DownResnetBlock1D", "DownResnetBlock1D"),
         "up_block_types": ("UpResnetBlock1D",), "layers_per_block": 1, "extra_in_channels": 0},
        lambda: {"sample": torch.randn(2, 4, 32), "timestep": steps()},
    ),
    "UVit2DModel": (
        {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 32,
         "codebook_size": 24, "cond_embed_dim": 32, "encoder_hidden_size": 32, "in_channels": 32,
         "block_out_channels": 32, "block_num_heads": 2, "num_res_blocks": 1,
         "micro_cond_embed_dim": 80, "micro_cond_encode_dim": 16, "intermediate_size": 64,
         "sample_size": 4},
        lambda: {"input_ids": torch.randint(0, 24, (2, 4, 4)), "encoder_hidden_states": text(),
                 "pooled_text_emb": torch.randn(2, 32), "micro_conds": torch.rand(2, 5)},
    ),
    "ControlNetModel": (
        {**TWO, "down_block_types": DOWN, "cross_attention_dim": 32, "attention_head_dim": 8,
         "conditioning_embedding_out_channels": (16, 32)},
        lambda: {"sample": image(), "timestep": steps(), "encoder_hidden_states": text(),
                 "controlnet_cond": image(3, 32)},
    ),
    "AutoencoderKL": (
        {**TWO, **CODED, "down_block_types": ("DownEncoderBlock2D",) * 2,
         "up_block_types": ("UpDecoderBlock2D",) * 2},
        lambda: {"sample": image(3, 32)},
    ),
    "VQModel": (
        {**TWO, **CODED, "num_vq_embeddings": 64},
        lambda: {"sample": image(3, 16)},
    ),
    "AutoencoderTiny": (
        {"encoder_block_out_channels": (16, 16), "decoder_block_out_channels": (16, 16),
         "num_encoder_blocks": (1, 1), "num_decoder_blocks": (1, 1)},
        lambda: {"sample": image(3, 16)},
    ),
    "AutoencoderKLTemporalDecoder": (
        {**CODED, "block_out_channels": (32, 32), "layers_per_block": 1,
         "down_block_types": ("DownEncoderBlock2D",) * 2},
        lambda: {"sample": image(3, 16), "num_frames": 2},
    ),
    "AutoencoderDC": (
        {"in_channels": 3, "latent_channels": 4, "attention_head_dim": 8,
         "encoder_block_types": ("ResBlock", "EfficientViTBlock"),
         "decoder_block_types": ("ResBlock", "EfficientViTBlock"),
         "encoder_block_out_channels": (16, 32), "decoder_block_out_channels": (16, 32),
         "encoder_layers_per_block": (1, 1), "decoder_layers_per_block": (1, 1),
         "encoder_qkv_multiscales": ((), (5,)), "decoder_qkv_multiscales": ((), (5,)),
         "downsample_block_type": "pixel_unshuffle", "upsample_block_type": "pixel_shuffle",
         "decoder_norm_types": "rms_norm", "decoder_act_fns": "silu", "scaling_factor": 1.0},
        lambda: {"sample": image(3, 32)},
    ),
    "AutoencoderOobleck": (
        {"encoder_hidden_size": 12, "downsampling_ratios": [2, 4], "decoder_channels": 12,
         "channel_multiples": [1, 2], "decoder_input_channels": 4, "audio_channels": 2},
        lambda: {"sample": torch.randn(2, 2, 64)},
    ),
    "AutoencoderKLCogVideoX": (
        {**CODED, "block_out_channels": (16, 16), "layers_per_block": 1, "norm_num_groups": 4,
         "down_block_types": ("CogVideoXDownBlock3D",) * 2,
         "up_block_types": ("CogVideoXUpBlock3D",) * 2, "temporal_compression_ratio": 2},
        lambda: {"sample": video(3, 5, 16)},
    ),
    "AutoencoderKLWan": (
        {"base_dim": 8, "z_dim": 4, "dim_mult": [1, 2], "num_res_blocks": 1,
         "temperal_downsample": [True], "latents_mean": [0.0] * 4, "latents_std": [1.0] * 4},
        lambda: {"sample": video(3, 5, 16)},
    ),
    "Transformer2DModel": (
        {**SMALL, "in_channels": 32, "norm_num_groups": 8, "cross_attention_dim": 32},
        lambda: {"hidden_states": image(32, 8), "encoder_hidden_states": text()},
    ),
    "TransformerTemporalModel": (
        {**SMALL, "in_channels": 32, "norm_num_groups": 8},
        lambda: {"hidden_states": torch.randn(4, 32, 4, 4), "num_frames": 2},
    ),
    "DiTTransformer2DModel": (
        {**SMALL, "in_channels": 4, "out_channels": 8, "sample_size": 8, "patch_size": 2,
         "norm_num_groups": 8},
        lambda: {"hidden_states": image(4, 8), "timestep": steps(),
                 "class_labels": torch.tensor([1, 5])},
    ),
    "PixArtTransformer2DModel": (
        {**SMALL, "in_channels": 4, "out_channels": 8, "sample_size": 8, "cross_attention_dim": 32,
         "caption_channels": 32, "norm_num_groups": 8, "use_additional_conditions": False},
        lambda: {"hidden_states": image(4, 8), "timestep": steps(), "encoder_hidden_states": text(),
                 "added_cond_kwargs": {"resolution": None, "aspect_ratio": None}},
    ),
    "SD3Transformer2DModel": (
        {**SMALL, "sample_size": 8, "patch_size": 2, "in_channels": 4, "caption_projection_dim": 32,
         "joint_attention_dim": 32, "pooled_projection_dim": 16, "out_channels": 4},
        lambda: {"hidden_states": image(4, 8), "timestep": steps(), "encoder_hidden_states": text(),
                 "pooled_projections": torch.randn(2, 16)},
    ),
    "FluxTransformer2DModel": (
        {**SMALL, "patch_size": 1, "in_channels": 4, "num_single_layers": 1,
         "joint_attention_dim": 32, "pooled_projection_dim": 32, "axes_dims_rope": [4, 4, 8]},
        lambda: {"hidden_states": tokens(), "encoder_hidden_states": text(),
                 "pooled_projections": torch.randn(2, 32), "timestep": torch.tensor([0.1, 0.7]),
                 "img_ids": torch.randint(0, 4, (16, 3)).float(), "txt_ids": torch.zeros(7, 3)},
    ),
    "AuraFlowTransformer2DModel": (
        {"sample_size": 8, "patch_size": 2, "in_channels": 4, "num_mmdit_layers": 1,
         "num_single_dit_layers": 1, "attention_head_dim": 16, "num_attention_heads": 2,
         "caption_projection_dim": 32, "joint_attention_dim": 32, "out_channels": 4,
         "pos_embed_max_size": 64},
        lambda: {"hidden_states": image(4, 8), "timestep": torch.rand(2),
                 "encoder_hidden_states": text()},
    ),
    "SanaTransformer2DModel": (
        {**SMALL, "patch_size": 1, "in_channels": 4, "out_channels": 4, "caption_channels": 32,
         "num_cross_attention_heads": 2, "cross_attention_head_dim": 16, "cross_attention_dim": 32,
         "sample_size": 8},
        lambda: {"hidden_states": image(4, 8), "timestep": steps(),
                 "encoder_hidden_states": text()},
    ),
    "WanTransformer3DModel": (
        {**SMALL, "patch_size": (1, 2, 2), "in_channels": 4, "out_channels": 4, "text_dim": 32,
         "freq_dim": 32, "ffn_dim": 64, "cross_attn_norm": True, "rope_max_seq_len": 32},
        lambda: {"hidden_states": video(), "timestep": steps(), "encoder_hidden_states": text()},
    ),
    "CogVideoXTransformer3DModel": (
        {**SMALL, "in_channels": 4, "out_channels": 4, "time_embed_dim": 8, "text_embed_dim": 32,
         "sample_width": 8, "sample_height": 8, "sample_frames": 5, "patch_size": 2,
         "temporal_compression_ratio": 4, "max_text_seq_length": 7},
        lambda: {"hidden_states": torch.randn(2, 2, 4, 8, 8), "timestep": steps(),
                 "encoder_hidden_states": text()},
    ),
    "LTXVideoTransformer3DModel": (
        {**SMALL, "in_channels": 4, "out_channels": 4, "cross_attention_dim": 32,
         "caption_channels": 32, "qk_norm": "rms_norm_across_heads"},
        lambda: {"hidden_states": tokens(12), "encoder_hidden_states": text(), "timestep": steps(),
                 "encoder_attention_mask": torch.ones(2, 7, dtype=torch.long), "num_frames": 3,
                 "height": 2, "width": 2},
    ),
    "StableAudioDiTModel": (
        {**SMALL, "sample_size": 4, "in_channels": 4, "out_channels": 4,
         "num_key_value_attention_heads": 2,
         "cross_attention_dim": 32, "cross_attention_input_dim": 32, "global_states_input_dim": 32,
         "time_proj_dim": 32},
        lambda: {"hidden_states": torch.randn(2, 4, 12), "timestep": steps().float(),
                 "encoder_hidden_states": text(), "global_hidden_states": torch.randn(2, 1, 32)},
    ),
    "LatteTransformer3DModel": (
        {**SMALL, "sample_size": 8, "in_channels": 4, "out_channels": 8, "patch_size": 2,
         "caption_channels": 32, "cross_attention_dim": 32, "video_length": 3},
        lambda: {"hidden_states": video(), "timestep": steps(), "encoder_hidden_states": text()},
    ),
    "MochiTransformer3DModel": (
        {**SMALL, "pooled_projection_dim": 16, "in_channels": 4, "qk_norm": "rms_norm",
         "text_embed_dim": 32, "time_embed_dim": 32, "max_sequence_length": 7},
        lambda: {"hidden_states": video(), "timestep": steps(), "encoder_hidden_states": text(),
                 "encoder_attention_mask": torch.ones(2, 7, dtype=torch.bool)},
    ),
    "Lumina2Transformer2DModel": (
        {"sample_size": 8, "patch_size": 2, "in_channels": 4, "hidden_size": 24, "num_layers": 1,
         "num_refiner_layers": 1, "num_attention_heads": 3, "num_kv_heads": 1, "multiple_of": 2,
         "scaling_factor": 1.0, "axes_dim_rope": (4, 2, 2), "axes_lens": (128, 128, 128),
         "cap_feat_dim": 32},
        lambda: {"hidden_states": image(4, 8), "timestep": torch.rand(2),
                 "encoder_hidden_states": text(),
                 "encoder_attention_mask": torch.ones(2, 7, dtype=torch.bool)},
    ),
    "CogView4Transformer2DModel": (
        {**SMALL, "in_channels": 4, "out_channels": 4, "text_embed_dim": 32, "time_embed_dim": 8,
         "condition_dim": 4, "patch_size": 2, "rope_axes_dim": (16, 16)},
        lambda: {"hidden_states": image(4, 8), "timestep": steps(), "encoder_hidden_states": text(),
                 "original_size": torch.tensor([[64.0, 64.0]] * 2),
                 "target_size": torch.tensor([[64.0, 64.0]] * 2),
                 "crop_coords": torch.zeros(2, 2)},
    ),
}  # fmt: skip


def names() -> list[str]:
    """Return the classes."""
    return list(NETWORKS)


def make(name: str) -> Made:
    """Return a network with random weights, and its inputs."""
    options, inputs = NETWORKS[name]
    network = getattr(import_module("diffusers"), name)(**options)
    return Made(network, named=inputs())
