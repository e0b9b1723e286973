"""`torch.compile` without a backend of Inductor: by default, captured graphs run by operators.

Inductor asks `torch.ocl` for classes that write kernels when it meets the device; there are none.
So the default backend passes graphs of the device to "aot_eager" and all others to Inductor.
"""

from __future__ import annotations

import warnings
from functools import cache, wraps
from typing import Any

import torch

REPLAYING = ("reduce-overhead", "max-autotune")
"""The modes in which torch replays graphs."""
UNTRACED = (
    "oclgen", "tuned_db", "ocl_backend.dispatch", "ocl_backend.dtypes", "ocl_backend.fusion",
    "ocl_backend.kernels", "ocl_backend.ops", "ocl_backend.runtime.handles",
    "ocl_backend.runtime.launch", "ocl_backend.runtime.pending", "ocl_backend.runtime.tables",
)  # fmt: skip
"""Packages and modules that no program calls by itself, only the operators that it calls."""


def register() -> None:
    """Make `torch.compile` choose the default backend when it is first called.

    The choice is torch's `torch.compiler.set_default_backend`, which imports the compiler, so that
    a program that never compiles does not wait for it.
    """
    if not hasattr(torch.compiler, "set_default_backend"):
        return
    function: Any = torch.compile

    @wraps(function)
    def compile(*args: Any, **options: Any) -> Any:  # noqa: A001 (torch's name)
        if torch.compiler.get_default_backend() == "inductor":
            torch.compiler.set_default_backend(default)
        _leave_untraced()
        return function(*args, **options)

    torch.compile = compile


@cache
def _leave_untraced() -> None:
    """Keep the compiler out of what runs an operator.

    Behind a break of its graph the compiler also meets the Python that torch calls for an operator,
    takes numpy there for tensors of torch, and compiles the choice of a kernel.
    """
    from torch._dynamo import trace_rules

    for package in UNTRACED:
        trace_rules.add(package)


def default(
    graph: torch.fx.GraphModule,
    inputs: list[Any],
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Any:
    """Compile a graph by Inductor, or capture it with its backward pass if the device runs it.

    Args:
        graph: what torch captured.
        inputs: its inputs, tensors without memory among them.
        mode: `torch.compile`'s. With those of `REPLAYING` the device replays, too: calls without
            gradients, from the third one with the same shapes on.
        options: `torch.compile`'s, for Inductor.
    """
    values = [*inputs, *(node.meta.get("example_value") for node in graph.graph.nodes)]
    if any(isinstance(item, torch.Tensor) and item.device.type == "ocl" for item in values):
        _warn()
        from torch._dynamo import lookup_backend

        eager = lookup_backend("aot_eager")(graph, inputs)
        if mode not in REPLAYING:
            return eager
        from ocl_backend.recorded import Recorded  # loads what the first use of a device loads

        return Recorded(graph, eager)
    from torch import _inductor

    of_mode = _inductor.list_mode_options(mode) if mode else {}
    return _inductor.compile(graph, inputs, of_mode | (options or {}))


@cache
def _warn() -> None:
    warnings.warn(
        "ocl has no backend of Inductor: torch.compile captures graphs and runs their operators "
        'one by one, as backend="aot_eager" does',
        stacklevel=2,
    )


class NoInductor:
    """Stands for the classes that Inductor asks for where it is chosen by name, and refuses."""

    supports_caching = False

    def __init__(self, *args: Any) -> None:
        """Refuse.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            'ocl has no backend of Inductor: call torch.compile(..., backend="aot_eager"), or '
            "import ocl_backend before torch.compile is called and name no backend"
        )
