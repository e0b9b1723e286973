"""Forty networks that users run, whose problems are tuned and shipped; weights are random.

No benchmark draws or measures one of them: torchvision's classifiers, of which seeds draw, GPT-2
and Llama are left out, and so are the networks of `benchmarks.models`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import ocl_backend.libraries  # noqa: F401 (registers the device, readies torchvision)

SIDE = 224
WORDS = 128
"""Words of a text."""
LAYERS, VOCABULARY = 6, 50_000
"""Of Qwen, whose 24 layers are alike: trained with 151,936 words it needs more than 24 GB."""
FRAMES = 16
"""Frames of a film."""
CLASSES = 1000


class Network(NamedTuple):
    """A network, and what an item of its input is.

    `make` returns it on the CPU; `inputs` its arguments for a batch. `is_trained_alone` says
    whether one item can be trained: a normalisation over the items alone needs two.
    """

    name: str
    library: str
    make: Callable[[], nn.Module]
    inputs: Callable[[int], dict[str, Tensor]]
    is_trained_alone: bool = True


def images(name: str, side: int, batch: int) -> dict[str, Tensor]:
    """Return images of three channels.

    Args:
        name: of the argument.
        side: pixels along height and width.
        batch: images.
    """
    return {name: torch.randn(batch, 3, side, side)}


def films(batch: int) -> dict[str, Tensor]:
    """Return films of 16 frames of 112 pixels, as torchvision's networks take them."""
    return {"x": torch.randn(batch, 3, FRAMES, 112, 112)}


def texts(names: tuple[str, ...], words: int, batch: int) -> dict[str, Tensor]:
    """Return ids of words, the same for all arguments.

    Args:
        names: of the arguments.
        words: of a text.
        batch: texts.
    """
    ids = torch.randint(3, CLASSES, (batch, words))
    return dict.fromkeys(names, ids)


def spoken(batch: int) -> dict[str, Tensor]:
    """Return Whisper's spectra of 30 s and the first words of what is said."""
    return {
        "input_features": torch.randn(batch, 80, 3000),
        "decoder_input_ids": torch.randint(3, CLASSES, (batch, 32)),
    }


def waves(batch: int) -> dict[str, Tensor]:
    """Return one second of sound of 16 kHz."""
    return {"input_values": torch.randn(batch, 16_000)}


def pairs(batch: int) -> dict[str, Tensor]:
    """Return CLIP's images and texts."""
    return {
        "input_ids": torch.randint(3, CLASSES, (batch, 77)),
        "pixel_values": torch.randn(batch, 3, SIDE, SIDE),
    }


def _torchvision(folder: str, name: str, **options: Any) -> nn.Module:
    models = import_module(f"torchvision.models{folder}")
    network: nn.Module = getattr(models, name)(weights=None, **options)
    return network


def _timm(name: str) -> nn.Module:
    network: nn.Module = import_module("timm").create_model(name, num_classes=CLASSES)
    return network


def _transformers(model: str, config: str, **options: Any) -> nn.Module:
    transformers = import_module("transformers")
    network: nn.Module = getattr(transformers, model)(getattr(transformers, config)(**options))
    return network


def _vision(name: str, folder: str = "", side: int = SIDE, **options: Any) -> Network:
    make = partial(_torchvision, folder, name, **options)
    given = films if folder == ".video" else partial(images, "x", side)
    return Network(name, "torchvision", make, given, name not in NORMALISED)


def _of_timm(name: str) -> Network:
    given = partial(images, "x", SIDE)
    return Network(name, "timm", partial(_timm, name), given, name not in NORMALISED)


def _language(
    name: str,
    model: str,
    config: str,
    arguments: tuple[str, ...] = ("input_ids",),
    **options: Any,
) -> Network:
    make = partial(_transformers, model, config, **options)
    return Network(name, "transformers", make, partial(texts, arguments, WORDS))


NORMALISED = ("deeplabv3_resnet50", "mobilenetv4_conv_medium", "levit_256")
"""Networks that normalise one pixel per image."""
BOTH = ("input_ids", "decoder_input_ids")
SEGMENTED: dict[str, Any] = {"weights_backbone": None, "num_classes": 21}
NETWORKS = (
    _vision("swin_v2_t", side=256),
    _vision("fcn_resnet50", ".segmentation", **SEGMENTED),
    _vision("deeplabv3_resnet50", ".segmentation", **SEGMENTED),
    _vision("lraspp_mobilenet_v3_large", ".segmentation", **SEGMENTED),
    _vision("r3d_18", ".video"),
    _vision("mc3_18", ".video"),
    *map(
        _of_timm,
        (
            *("resnet50d", "resnetv2_50", "seresnext50_32x4d", "res2net50_26w_4s", "hrnet_w18"),
            *("dla34", "cspdarknet53", "xception41", "repvgg_a2", "nfnet_f0", "convnextv2_nano"),
            *("tf_efficientnet_lite0", "mobilenetv4_conv_medium", "ghostnetv2_100"),
            *("edgenext_small", "fastvit_t12", "poolformer_s24", "mixer_b16_224"),
            *("deit_small_patch16_224", "beit_base_patch16_224", "levit_256", "cait_xxs24_224"),
        ),
    ),
    _language("bert_base", "BertForMaskedLM", "BertConfig"),
    _language("albert_base", "AlbertForMaskedLM", "AlbertConfig", hidden_size=768,
              num_attention_heads=12, intermediate_size=3072),
    _language("electra_small", "ElectraForSequenceClassification", "ElectraConfig"),
    _language("t5_small", "T5ForConditionalGeneration", "T5Config", BOTH),
    _language("mobilebert", "MobileBertForMaskedLM", "MobileBertConfig"),
    _language("opt_125m", "OPTForCausalLM", "OPTConfig"),
    _language("pythia_160m", "GPTNeoXForCausalLM", "GPTNeoXConfig", hidden_size=768,
              num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072),
    _language("qwen2_0.5b", "Qwen2ForCausalLM", "Qwen2Config", hidden_size=896,
              num_hidden_layers=LAYERS, num_attention_heads=14, num_key_value_heads=2,
              intermediate_size=4864, vocab_size=VOCABULARY),
    Network("whisper_tiny", "transformers",
            partial(_transformers, "WhisperForConditionalGeneration", "WhisperConfig"), spoken),
    Network("wav2vec2_base", "transformers",
            partial(_transformers, "Wav2Vec2Model", "Wav2Vec2Config", apply_spec_augment=False,
                    layerdrop=0.0), waves),
    Network("clip_vit_b_32", "transformers",
            partial(_transformers, "CLIPModel", "CLIPConfig"), pairs),
    Network("segformer_b0", "transformers",
            partial(_transformers, "SegformerForImageClassification", "SegformerConfig"),
            partial(images, "pixel_values", SIDE)),
)  # fmt: skip
