"""Imports torchvision where its compiled operators do not load, as beside a CPU build of torch.

Its models need none of those operators. Nothing here touches a device.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

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
        _declare_operators()
        return import_module("torchvision.models")


def _declare_operators() -> None:
    spec = find_spec("torchvision")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("torchvision is not installed: pip install torchvision")
    text = Path(spec.submodule_search_locations[0], "_meta_registrations.py").read_text()
    new_library: Any = torch.library.Library  # torch types neither the class nor its methods
    library = new_library("torchvision", "FRAGMENT")
    for names in sorted(set(_REGISTERED.findall(text))):
        library.define(f"{''.join(names)}() -> Tensor")
    _kept.append(library)


_kept: list[Any] = []
