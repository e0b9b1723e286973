"""Which networks there are: names by library, how many of 60 each gives, and what makes one."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from random import Random
from typing import Any

from tests.networks.made import Made

SHARES = {"timm": 20, "transformers": 22, "diffusers": 8, "torch_geometric": 10}


def module_of(library: str) -> Any:
    """Return the module with `names()` and `make(name)` of a library.

    Raises:
        SystemExit: the library is not installed; it says how.
    """
    if find_spec(library) is None:
        raise SystemExit(f"{library} is not installed: pip install -e '.[libraries]'")
    return import_module(f"tests.networks.of_{library}")


def make(name: str) -> Made:
    """Return the network of a name `LIBRARY:NETWORK`, with weights and inputs of torch's seed."""
    library, own = name.split(":", 1)
    made: Made = module_of(library).make(own)
    return made


def counts(total: int, libraries: tuple[str, ...]) -> dict[str, int]:
    """Return how many networks of each library make up `total`, by their shares."""
    whole = sum(SHARES[library] for library in libraries)
    found = {library: total * SHARES[library] // whole for library in libraries}
    found[libraries[0]] += total - sum(found.values())
    return found


def drawn(library: str, seed: int) -> Iterator[str]:
    """Yield all names of a library in the order of a seed."""
    names = [f"{library}:{name}" for name in module_of(library).names()]
    Random(f"{seed} {library}").shuffle(names)
    yield from names
