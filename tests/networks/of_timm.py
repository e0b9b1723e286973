"""timm: the smallest variants of its architectures, on images of 64 pixels where these allow it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

from tests.networks.made import Made

SIDE, CLASSES = 64, 10
NETWORKS = (
    *("test_byobnet", "test_convnext", "test_convnext2", "test_convnext3", "test_efficientnet",
      "test_efficientnet_evos", "test_efficientnet_gn", "test_efficientnet_ln", "test_mambaout",
      "test_nfnet", "test_resnet", "test_vit", "test_vit2", "test_vit3", "test_vit4",
      "test_vit_relpos", "test_coatnet", "test_maxvit"),
    *("beit_base_patch16_224", "deit_tiny_patch16_224", "deit3_small_patch16_224",
      "eva02_tiny_patch14_224", "vit_tiny_patch16_224", "cait_xxs24_224", "xcit_nano_12_p16_224",
      "convit_tiny", "vit_relpos_small_patch16_224", "mixer_s32_224", "gmixer_12_224",
      "resmlp_12_224", "gmlp_ti16_224", "tnt_s_legacy_patch16_224", "volo_d1_224"),
    *("coat_lite_tiny", "coat_tiny", "crossvit_tiny_240", "levit_128s", "pit_ti_224",
      "pit_ti_distilled_224", "pvt_v2_b0", "twins_svt_small", "twins_pcpvt_small",
      "visformer_tiny", "nest_tiny", "mvitv2_tiny", "davit_tiny", "gcvit_xxtiny",
      "swin_tiny_patch4_window7_224", "swinv2_tiny_window8_256", "swinv2_cr_tiny_ns_224",
      "focalnet_tiny_srf", "hiera_tiny_224", "nextvit_small", "tiny_vit_5m_224"),
    *("gernet_s", "repvgg_a0", "mobileone_s0", "resnet26t", "eca_botnext26ts_256",
      "halonet26t", "lambda_resnet26rpt_256", "bat_resnext26ts", "gcresnext26ts",
      "lamhalobotnet50ts_256"),
    *("convnext_atto", "convnextv2_atto", "convmixer_768_32", "cs3darknet_focus_s",
      "cspresnet50", "densenet121", "dla46_c", "dpn48b", "edgenext_xx_small", "efficientformer_l1",
      "efficientformerv2_s0", "efficientnet_b0", "efficientvit_b0", "efficientvit_m0",
      "efficientvim_m1", "fasternet_t0", "fastvit_t8", "fbnetv3_b", "ghostnet_050",
      "ghostnetv2_100", "hardcorenas_a", "hgnetv2_b0", "hrnet_w18_small", "inception_next_atto",
      "lcnet_035", "mambaout_femto", "poolformer_s12", "caformer_s18", "convformer_s18",
      "mixnet_s", "mnasnet_small", "mobilenetv3_small_050", "mobilenetv4_conv_small_035",
      "mobilevit_xxs", "mobilevitv2_050", "nf_regnet_b0", "rdnet_tiny", "regnetx_002",
      "regnety_002", "regnetz_005", "repghostnet_050", "repvit_m0_9", "res2net50_14w_8s",
      "resnest14d", "resnet10t", "resnetv2_18", "resnetblur18", "rexnetr_100", "selecsls42b",
      "sequencer2d_s", "seresnext26t_32x4d", "shvit_s1", "skresnet18", "starnet_s050",
      "swiftformer_xs", "tinynet_e", "tresnet_m", "vovnet39a", "ese_vovnet19b_slim_dw",
      "vitamin_small_224", "xception41", "tf_efficientnet_lite0", "spnasnet_100",
      "csatv2", "lowformer_b0", "iformer_t", "cpubone_nano", "lcnetv2_base"),
)  # fmt: skip
SMALLER: tuple[dict[str, Any], ...] = (
    {"img_size": SIDE, "depth": 2}, {"img_size": SIDE, "num_blocks": 2}, {"img_size": SIDE}, {},
)  # fmt: skip
"""Options of which an architecture takes the first that it knows."""


def names() -> list[str]:
    """Return the names under which timm knows them."""
    return list(NETWORKS)


def make(name: str) -> Made:
    """Return a network with random weights, and two images."""
    timm = import_module("timm")
    refused: Exception = ValueError(name)
    for options in SMALLER:
        try:
            network = timm.create_model(name, num_classes=CLASSES, **options)
            break
        except (TypeError, AssertionError) as error:
            refused = error
    else:
        raise refused
    side = SIDE if "img_size" in options else _least(network)
    return Made(network, (torch.randn(2, 3, side, side),))


def _least(network: Any) -> int:
    config = network.default_cfg
    return int(config["input_size"][-1]) if config.get("fixed_input_size") else SIDE
