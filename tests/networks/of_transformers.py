"""transformers: every model type that a small config of its own class and plain inputs can make.

Sizes of a config are found by their names, so that new types need nothing here. Heads come before
bare models: they have more operators.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import torch

from tests.networks.made import Made

WORDS, TEXT = 128, 12
HEADS = ("CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "OBJECT_DETECTION", "CTC", "IMAGE_CLASSIFICATION",
         "SEMANTIC_SEGMENTATION", "DEPTH_ESTIMATION", "MASKED_LM", "AUDIO_CLASSIFICATION",
         "SPEECH_SEQ_2_SEQ", "VIDEO_CLASSIFICATION", "TIME_SERIES_PREDICTION")  # fmt: skip

WIDTH, HEAD_COUNT, LAYERS = 32, 4, 2
SIZES: dict[str, int | bool] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "embed_dim", "hidden_dim", "dim", "width",
                     "emb_dim", "word_embed_proj_dim", "embedding_size", "projection_dim",
                     "lru_width", "encoder_hidden_dim", "hidden_channels"), WIDTH),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff",
                     "dim_feedforward", "n_inner", "ffn_hidden_size", "mlp_dim",
                     "moe_intermediate_size", "shared_expert_intermediate_size",
                     "moe_shared_expert_intermediate_size", "ffn_embed_dim",
                     "intermediate_size_mlp"), 2 * WIDTH),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "n_attention_heads",
                     "encoder_attention_heads", "decoder_attention_heads",
                     "encoder_num_attention_heads", "decoder_num_attention_heads"), HEAD_COUNT),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "n_kv_heads"), HEAD_COUNT // 2),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers",
                     "decoder_layers", "num_decoder_layers", "num_encoder_layers", "depth",
                     "encoder_num_layers", "decoder_num_layers"), LAYERS),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "num_experts_per_token"), 2),
    **dict.fromkeys(("head_dim", "d_kv", "attention_head_dim", "qk_rope_head_dim",
                     "qk_nope_head_dim", "v_head_dim", "kv_channels", "rotary_dim",
                     "global_head_dim"), WIDTH // HEAD_COUNT),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "state_size", "ssm_state_size",
                     "time_step_rank", "mamba_d_state", "mamba_dt_rank"), 16),
    "vocab_size": WORDS, "max_position_embeddings": 64, "n_positions": 64, "n_ctx": 64,
    "max_source_positions": 64, "max_target_positions": 64, "image_size": 64, "num_queries": 8,
    "num_mel_bins": 16, "type_vocab_size": 2, "n_group": 1, "topk_group": 1, "sliding_window": 8,
    "first_k_dense_replace": 1, "mamba_n_heads": 8, "mamba_d_head": 8, "use_cache": False,
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "encoder_n_layers": 1,
    "context_length": 32, "prediction_length": 8, "num_frames": 4, "tubelet_size": 2,
    "vocab_size_per_layer_input": WORDS, "hidden_size_per_layer_input": 8, "chunk_size": 8,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8, "use_pretrained_backbone": False, "index_topk": 8,
    "index_n_heads": 2, "index_head_dim": 8, "encoder_seq_length": TEXT, "num_rbs": 2,
}  # fmt: skip
NARROWER = ("hidden_sizes", "embed_dims", "conv_dim", "encoder_hidden_sizes", "neck_hidden_sizes",
            "hidden_dims", "decoder_hidden_sizes", "tdnn_dim", "encoder_channels")  # fmt: skip


def names() -> list[str]:
    """Return all model types."""
    auto = import_module("transformers.models.auto.modeling_auto")
    return sorted(auto.MODEL_MAPPING_NAMES)


def make(name: str) -> Made:
    """Return the model of a type with random weights, and its inputs."""
    transformers = import_module("transformers")
    config = small(transformers.CONFIG_MAPPING[name])
    config._attn_implementation = "sdpa"
    kind = getattr(transformers, class_of(name))
    try:
        network = kind(config)
    except ValueError:  # it has no scaled_dot_product_attention
        config._attn_implementation = "eager"
        network = kind(config)
    return Made(network, named=inputs(network, config))


def class_of(name: str) -> str:
    """Return the class of a model type with the first head that it has."""
    auto = import_module("transformers.models.auto.modeling_auto")
    heads = (getattr(auto, f"MODEL_FOR_{head}_MAPPING_NAMES", {}) for head in HEADS)
    found = [head[name] for head in heads if name in head] or [auto.MODEL_MAPPING_NAMES[name]]
    return str(found[0] if isinstance(found[0], str) else found[0][0])


def small(kind: Any) -> Any:
    """Return a config of a class with few layers of few channels."""
    usual = kind()
    found = {name: _smaller(name, value, usual) for name, value in vars(usual).items()}
    chosen = {name: value for name, value in found.items() if value is not None}
    for name in getattr(kind, "sub_configs", {}):
        if (part := getattr(usual, name, None)) is not None:
            chosen[name] = small(type(part)).to_dict()
    return kind(**chosen)


def _smaller(name: str, value: Any, config: Any) -> Any:
    """Return what a field of `config` is to be in place of `value`; None: what it is."""
    several = isinstance(value, list | tuple) and value and all(type(v) is int for v in value)
    if several and name in NARROWER:
        share = 16 if name == "conv_dim" else 4
        return type(value)(max(8, part // share) for part in value)
    if several and name in ("depths", "num_block_repeats"):
        return type(value)(1 for _ in value)
    if name == "embed_dim" and isinstance(getattr(config, "num_heads", None), list | tuple):
        return value // 4  # heads of each stage divide it
    if name == "head_dim" and hasattr(config, "qk_rope_head_dim"):
        return None  # it follows from others
    if name in SIZES and isinstance(value, int | None):
        return SIZES[name]
    if name in ("mask_time_prob", "mask_feature_prob"):
        return 0.0  # masks are drawn by numpy
    return min(value, 3) if name.endswith("token_id") and isinstance(value, int) else None


def inputs(network: Any, config: Any) -> dict[str, Any]:
    """Return arguments by name: what the model calls its main input, and what belongs to it."""
    known = set(inspect.signature(network.forward).parameters)
    texts = torch.randint(4, WORDS, (2, TEXT))
    mask = torch.ones_like(texts)
    mask[1, TEXT - 3 :] = 0
    image = getattr(getattr(config, "vision_config", config), "image_size", 64)
    side = image if isinstance(image, int) else 64
    colors = getattr(config, "num_channels", 3)
    bins: int = getattr(config, "num_mel_bins", getattr(config, "input_feat_per_channel", 16))
    possible = {
        "input_ids": texts,
        "attention_mask": mask,
        "decoder_input_ids": texts[:, :8],
        "pixel_values": torch.randn(2, colors, side, side),
        "pixel_values_videos": torch.randn(2, 4, colors, side, side),
        "input_values": torch.randn(2, 4000),
        "input_features": torch.randn(2, bins, 128) if network.config.model_type == "whisper"
        else torch.randn(2, 64, bins),
        "past_values": torch.randn(2, 32, getattr(config, "num_input_channels", 1)),
    }  # fmt: skip
    main = network.main_input_name
    wanted = {main, "input_ids", "decoder_input_ids"} | (
        {"attention_mask"} if main == "input_ids" else set()
    )
    if main != "input_ids" and not hasattr(config, "text_config"):
        wanted.discard("input_ids")
    if hasattr(config, "vision_config") and class_of(config.model_type).endswith("Model"):
        wanted.add("pixel_values")
    if missing := wanted & known - set(possible):
        raise ValueError(f"no input is known for {', '.join(missing)}")
    return {name: possible[name] for name in possible if name in wanted & known}
