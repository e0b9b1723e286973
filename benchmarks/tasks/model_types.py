"""Models of every type of `transformers`: a config of given sizes, its model, and plain inputs.

Fields of a config are found by their names, so that new types need nothing here. Heads come before
bare models: they have more operators. `architectures.py` draws what is measured, tests draw toys.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import nn

TEXT_HEADS = ("CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "MASKED_LM")
"""Heads whose labels are tokens."""
HEADS = ("CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "OBJECT_DETECTION", "CTC", "IMAGE_CLASSIFICATION",
         "SEMANTIC_SEGMENTATION", "DEPTH_ESTIMATION", "MASKED_LM", "AUDIO_CLASSIFICATION",
         "SPEECH_SEQ_2_SEQ", "VIDEO_CLASSIFICATION", "TIME_SERIES_PREDICTION")  # fmt: skip
FRAMES = 4
"""Of a video."""


class Sizes(NamedTuple):
    """Sizes of a model and of what it is given; `words` is the vocabulary, `side` an image's.

    `blocks` is the most of a stage of a network of stages, and `share` divides its channels.
    """

    width: int
    heads: int
    kv_heads: int
    inner: int
    layers: int
    words: int
    tokens: int
    batch: int
    experts: int
    side: int
    blocks: int
    share: int

    @property
    def positions(self) -> int:
        """Tokens of the longest text."""
        return max(64, 2 * self.tokens)

    @property
    def shorter(self) -> int:
        """Tokens of a decoder behind an encoder, and of what looks at a part of a text."""
        return 2 * self.tokens // 3

    @property
    def history(self) -> int:
        """Values of a series in time."""
        return 8 * self.tokens // 3


NAMES: dict[str, tuple[str, ...]] = {
    "width": ("hidden_size", "d_model", "n_embd", "embed_dim", "hidden_dim", "dim", "width",
              "emb_dim", "word_embed_proj_dim", "embedding_size", "projection_dim", "lru_width",
              "encoder_hidden_dim", "hidden_channels"),
    "inner": ("intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff",
              "dim_feedforward", "n_inner", "ffn_hidden_size", "mlp_dim", "moe_intermediate_size",
              "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
              "ffn_embed_dim", "intermediate_size_mlp"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "n_attention_heads",
              "encoder_attention_heads", "decoder_attention_heads", "encoder_num_attention_heads",
              "decoder_num_attention_heads", "linear_num_value_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "linear_num_key_heads",
                 "index_n_heads"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers",
               "decoder_layers", "num_decoder_layers", "num_encoder_layers", "depth",
               "encoder_num_layers", "decoder_num_layers"),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"),
    "head_dim": ("head_dim", "d_kv", "attention_head_dim", "qk_rope_head_dim", "qk_nope_head_dim",
                 "v_head_dim", "kv_channels", "rotary_dim", "global_head_dim", "mamba_d_head",
                 "hidden_size_per_layer_input", "linear_key_head_dim", "linear_value_head_dim",
                 "index_head_dim"),
    "words": ("vocab_size", "vocab_size_per_layer_input"),
    "positions": ("max_position_embeddings", "n_positions", "n_ctx", "max_source_positions",
                  "max_target_positions"),
    "shorter": ("sliding_window", "index_topk"),
    "history": ("context_length",),
    "tokens": ("encoder_seq_length",),
    "side": ("image_size",),
}  # fmt: skip
"""Fields of configs by what of `Sizes` they are."""
ALWAYS: dict[str, int | bool] = {
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "num_experts_per_token"), 2),
    **dict.fromkeys(("state_size", "ssm_state_size", "mamba_d_state"), 16),
    "num_queries": 8, "type_vocab_size": 2, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1, "use_cache": False, "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4, "encoder_n_layers": 1, "prediction_length": 8,
    "num_frames": FRAMES, "tubelet_size": 2, "use_pretrained_backbone": False, "num_rbs": 2,
}  # fmt: skip
"""Fields that are the same for all sizes."""
NARROWER = ("hidden_sizes", "embed_dims", "conv_dim", "encoder_hidden_sizes", "neck_hidden_sizes",
            "hidden_dims", "decoder_hidden_sizes", "tdnn_dim", "encoder_channels")  # fmt: skip


def fields(sizes: Sizes) -> dict[str, int | bool]:
    """Return values of fields by name."""
    found: dict[str, int | bool] = dict(ALWAYS)
    head_dim = sizes.width // sizes.heads
    for what, names in NAMES.items():
        value = head_dim if what == "head_dim" else getattr(sizes, what)
        found |= dict.fromkeys(names, value)
    found |= dict.fromkeys(("q_lora_rank", "kv_lora_rank"), sizes.width // 2)
    found |= dict.fromkeys(("time_step_rank", "mamba_dt_rank"), max(16, sizes.width // 16))
    found["num_mel_bins"] = min(128, sizes.width // 2)
    found["mamba_n_heads"] = 2 * sizes.heads
    found["chunk_size"] = 1 << sizes.tokens.bit_length() - 1
    return found


def names() -> list[str]:
    """Return all model types."""
    auto = import_module("transformers.models.auto.modeling_auto")
    return sorted(auto.MODEL_MAPPING_NAMES)


def head_of(name: str) -> str:
    """Return the first head that a model type has, "" for a bare model."""
    auto = import_module("transformers.models.auto.modeling_auto")
    found = (h for h in HEADS if name in getattr(auto, f"MODEL_FOR_{h}_MAPPING_NAMES", {}))
    return next(found, "")


def class_of(name: str) -> str:
    """Return the class of a model type with the first head that it has."""
    auto = import_module("transformers.models.auto.modeling_auto")
    head = head_of(name)
    mapping = f"MODEL_FOR_{head}_MAPPING_NAMES" if head else "MODEL_MAPPING_NAMES"
    found = getattr(auto, mapping)[name]
    return str(found if isinstance(found, str) else found[0])


def model(name: str, sizes: Sizes) -> nn.Module:
    """Return the model of a type with random weights; its config is its attribute.

    Raises:
        Exception: whatever a type raises that these sizes do not suit.
    """
    transformers = import_module("transformers")
    config = config_of(transformers.CONFIG_MAPPING[name], sizes)
    config._attn_implementation = "sdpa"
    kind = getattr(transformers, class_of(name))
    made: nn.Module
    try:
        made = kind(config)
    except ValueError:  # it has no scaled_dot_product_attention
        config._attn_implementation = "eager"
        made = kind(config)
    return made


def config_of(kind: Any, sizes: Sizes) -> Any:
    """Return a config of a class, with the parts that it consists of."""
    usual = kind()
    known = fields(sizes)
    found = {name: _sized(name, value, usual, sizes, known) for name, value in vars(usual).items()}
    chosen = {name: value for name, value in found.items() if value is not None}
    for name in getattr(kind, "sub_configs", {}):
        if (part := getattr(usual, name, None)) is not None:
            chosen[name] = config_of(type(part), sizes).to_dict()
    return kind(**chosen)


def _sized(name: str, value: Any, config: Any, sizes: Sizes, known: dict[str, int | bool]) -> Any:
    """Return what a field of `config` is to be in place of `value`; None: what it is."""
    several = isinstance(value, list | tuple) and value and all(type(v) is int for v in value)
    if several and name in NARROWER:
        share = sizes.share**2 if name == "conv_dim" else sizes.share
        return type(value)(max(8, part // share) for part in value)
    if several and name in ("depths", "num_block_repeats"):
        return type(value)(min(part, sizes.blocks) for part in value)
    if name == "embed_dim" and isinstance(getattr(config, "num_heads", None), list | tuple):
        return value // sizes.share  # heads of each stage divide it
    if name == "head_dim" and hasattr(config, "qk_rope_head_dim"):
        return None  # it follows from others
    if name in known and isinstance(value, int | None):
        return known[name]
    if name in ("mask_time_prob", "mask_feature_prob", "layerdrop"):
        return 0.0  # drawn by numpy or by the host, and layers left out would alter a step's work
    return min(value, 3) if name.endswith("token_id") and isinstance(value, int) else None


def inputs(network: Any, sizes: Sizes) -> dict[str, torch.Tensor]:
    """Return arguments by name: what the model calls its main input, and what belongs to it.

    Raises:
        ValueError: the main input is none that is known here.
    """
    config, batch = network.config, sizes.batch
    known = set(inspect.signature(network.forward).parameters)
    main = network.main_input_name
    wanted = {main, "input_ids", "decoder_input_ids"} | (
        {"attention_mask"} if main == "input_ids" else set()
    )
    if main != "input_ids" and not hasattr(config, "text_config"):
        wanted.discard("input_ids")
    if hasattr(config, "vision_config") and class_of(config.model_type).endswith("Model"):
        wanted.add("pixel_values")
    texts = torch.randint(4, sizes.words, (batch, sizes.tokens))
    mask = torch.ones_like(texts)
    if batch > 1:
        mask[-1, sizes.tokens - sizes.tokens // 4 :] = 0
    possible = {
        "input_ids": texts,
        "attention_mask": mask,
        "decoder_input_ids": texts[:, : sizes.shorter],
        **_seen(config, sizes),
        **_heard(config, sizes),
        "past_values": torch.randn(batch, sizes.history, getattr(config, "num_input_channels", 1)),
    }
    if missing := wanted & known - set(possible):
        raise ValueError(f"no input is known for {', '.join(missing)}")
    return {name: possible[name] for name in possible if name in wanted & known}


def _seen(config: Any, sizes: Sizes) -> dict[str, torch.Tensor]:
    image = getattr(getattr(config, "vision_config", config), "image_size", sizes.side)
    side = image if isinstance(image, int) else sizes.side
    shape = (getattr(config, "num_channels", 3), side, side)
    return {
        "pixel_values": torch.randn(sizes.batch, *shape),
        "pixel_values_videos": torch.randn(sizes.batch, FRAMES, *shape),
    }


def _heard(config: Any, sizes: Sizes) -> dict[str, torch.Tensor]:
    bins: int = getattr(config, "num_mel_bins", getattr(config, "input_feat_per_channel", 16))
    whisper = config.model_type == "whisper"
    features = (bins, 2 * sizes.positions) if whisper else (sizes.positions, bins)
    return {
        "input_values": torch.randn(sizes.batch, 1000 * sizes.tokens // 3),
        "input_features": torch.randn(sizes.batch, *features),
    }
