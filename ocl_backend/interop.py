"""Imports torchvision where its compiled operators do not load, as beside a CPU build of torch.

Its classifiers need none of those operators, its detectors the two of `ocl_backend.boxes`. Nothing
here touches a device.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from ocl_backend import boxes

_REGISTERED = re.compile(r'register_meta\("(\w+)"\)|register_fake\("torchvision::(\w+)"\)')


@cache
def torchvision_models() -> Any:
    """Return the module `torchvision.models`.

    Raises:
        ModuleNotFoundError: torchvision is not installed.
    """
    try:
        return import_module("torchvision.models")
    except RuntimeError:  # it registers shapes for operators that its library did not define
        library = _declared_operators()
        models = import_module("torchvision.models")
        for name, (_, function) in boxes.OPERATORS.items():
            library.impl(name, function, "CompositeImplicitAutograd")
        for asker in ("torchvision.extension", "torchvision.ops.roi_align"):
            module: Any = import_module(asker)
            module._has_ops = lambda: True  # operators that were not declared have no kernel at all
        return models


def _declared_operators() -> Any:
    spec = find_spec("torchvision")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("torchvision is not installed: pip install torchvision")
    text = Path(spec.submodule_search_locations[0], "_meta_registrations.py").read_text()
    new_library: Any = torch.library.Library  # torch types neither the class nor its methods
    library = new_library("torchvision", "FRAGMENT")
    for names in sorted(set(_REGISTERED.findall(text))):
        if (name := "".join(names)) not in boxes.OPERATORS:
            library.define(f"{name}() -> Tensor")
    for name, (signature, _) in boxes.OPERATORS.items():
        library.define(name + signature)
    _kept.append(library)
    return library


_kept: list[Any] = []
