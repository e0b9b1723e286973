"""torchvision's detectors, segmentation, video and optical flow: random weights, against the CPU.

Images are tiny: what is asked is that all of a model runs on the device and agrees.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if find_spec("torchvision") is None:
    pytest.skip("torchvision is not installed", allow_module_level=True)

from torch.utils._pytree import tree_leaves, tree_map

import ocl_backend  # noqa: F401 (lets torchvision be imported)
from tests.ocl_backend.cpu_twin import assert_same, ocl, place

models: Any = import_module("torchvision.models")


def heads(network: Any, images: Any) -> Any:
    """What a detector of one stage says of its anchors: random scores are so near each other that
    which boxes stand is a matter of rounding."""
    network(images)
    return network.head(list(network.backbone(network.transform(images)[0].tensors).values()))


RANDOM = {"weights": None, "weights_backbone": None, "num_classes": 4}
SMALL = {**RANDOM, "min_size": 64, "max_size": 64}
IMAGE = ([(3, 64, 64)],)

ONE_STAGE = ("retinanet", "ssdlite")
MODELS: dict[str, tuple[Callable[[], Any], Any]] = {
    "fasterrcnn": (
        lambda: models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(**SMALL),
        IMAGE,
    ),
    "maskrcnn": (lambda: models.detection.maskrcnn_resnet50_fpn(**SMALL), IMAGE),
    "retinanet": (lambda: models.detection.retinanet_resnet50_fpn(**SMALL), IMAGE),
    "ssdlite": (lambda: models.detection.ssdlite320_mobilenet_v3_large(**RANDOM), IMAGE),
    "lraspp": (
        lambda: models.segmentation.lraspp_mobilenet_v3_large(**RANDOM),
        ((1, 3, 64, 64),),
    ),
    "r3d": (lambda: models.video.r3d_18(weights=None), ((1, 3, 4, 32, 32),)),
    "raft": (lambda: models.optical_flow.raft_small(weights=None), ((1, 3, 128, 128),) * 2),
}


@pytest.mark.sampled(len(MODELS))
@pytest.mark.parametrize("name", MODELS)
def test_a_model_agrees_with_the_cpu(device: Any, name: str) -> None:
    if device.index:
        pytest.skip("models run operators that are tested on every device")
    torch.manual_seed(0)
    make, shapes = MODELS[name]
    network = make().eval()
    call = heads if name in ONE_STAGE else lambda network, *given: network(*given)
    given = tree_map(torch.rand, shapes, is_leaf=lambda x: isinstance(x, tuple) and x[0] in (1, 3))
    with torch.no_grad():
        theirs = tree_leaves(call(network, *given))
        ocl.reset_fallbacks()
        there = tree_map(lambda x: x.to(place(device)), given)
        ours = tree_leaves(call(network.to(place(device)), *there))
    assert ocl.fallbacks() == {}
    assert_same(ours, theirs, 1e-3)
