"""How attention is shared out over processes: the rules of its operators for torch's DTensor.

torch has rules of CUDA's operators only. Each process can compute whole heads or whole items of
the batch by itself. The import of DTensor takes a second, so that a program without it gets none.
"""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any

import torch

from ocl_backend.runtime import shim

if TYPE_CHECKING:
    from torch.distributed.tensor.placement_types import Placement

    Rule = tuple[list[Placement | None], list[Placement | None]]
    """Placements of what an operator returns and of what it takes; None: no tensor."""

BATCH, HEADS = 0, 1
DIMS = 4
"""Dimensions of query, key, value and, broadcast, of the bias."""


def register() -> None:
    """Let the shim call `_tell_rules` before attention of subclasses of tensors."""
    shim.library().ocl_before_subclasses(_TELL_RULES)


def _tell_rules() -> None:
    if "torch.distributed.tensor" not in sys.modules:
        return  # a subclass of another kind
    from torch.distributed.tensor.experimental import register_sharding

    shim.library().ocl_before_subclasses(None)
    of = torch.ops.aten
    register_sharding(of._scaled_dot_product_fused_attention_overrideable.default)(forward)
    register_sharding(of._scaled_dot_product_fused_attention_overrideable_backward.default)(
        backward
    )


_TELL_RULES = ctypes.CFUNCTYPE(None)(_tell_rules)


def forward(query: Any, key: Any, value: Any, bias: Any = None, *others: Any, **_: Any) -> Any:
    """Return the rules of the operator: output, logsumexp and six more, of query, key and value.

    Args:
        query: DTensor's description of the tensor, as of the other ones.
        key: as above.
        value: as above.
        bias: the same, None if there is no mask.
        others: the arguments given by position that are no tensors.
    """
    from torch.distributed.tensor import Replicate

    def rule(at: Placement) -> Rule:
        # of dropout's random numbers each process has a seed of its own, which never travels
        made = [at, at, None, None, None, None, Replicate(), Replicate(), None]
        return made, [at, at, at, _of_bias(bias, query, at), *[None] * len(others)]

    return [rule(at) for at in _ways()]


def backward(grad_out: Any, query: Any, key: Any, value: Any, bias: Any, *others: Any,
             **_: Any) -> Any:  # fmt: skip
    """Return the rules of the gradients of query, key and value.

    Args:
        grad_out: DTensor's description of the tensor, as of the other ones.
        query: as above.
        key: as above.
        value: as above.
        bias: the same, None if there was no mask.
        others: which gradients are wanted, the results of `forward`, and numbers.
    """
    from torch.distributed.tensor import Replicate

    rest = others[3:]

    def rule(at: Placement) -> Rule:
        seeds = [Replicate() if _is_tensor(one) else None for one in rest]
        return [at, at, at, None], [at, at, at, at, _of_bias(bias, query, at), None, at, at, *seeds]

    return [rule(at) for at in _ways()]


def _ways() -> list[Placement]:
    from torch.distributed.tensor import Replicate, Shard

    return [Replicate(), Shard(HEADS), Shard(BATCH)]


def _of_bias(bias: Any, query: Any, at: Placement) -> Placement | None:
    """Return where the bias lies: whole along the dimensions that it broadcasts over."""
    from torch.distributed.tensor import Replicate, Shard

    if not _is_tensor(bias):
        return None
    if not isinstance(at, Shard):
        return at
    dim = at.dim + len(bias.shape) - DIMS
    return Shard(dim) if dim >= 0 and bias.shape[dim] == query.shape[at.dim] != 1 else Replicate()


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "tensor_meta")
