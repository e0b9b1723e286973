"""The operators of the device, grouped by kind; importing the package registers nothing.

Each module names its implementations in `OPERATORS`; this is the one list of the modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from typing import Any

from torch import Tensor

from ocl_backend.dispatch.checks import check_written, share_places, warn_of_expanded
from ocl_backend.dispatch.fallback import serving
from ocl_backend.dispatch.outputs import check_others, guarded
from ocl_backend.fusion import recall
from ocl_backend.runtime import overloads
from ocl_backend.runtime.overloads import OfOverload

MODULES = (
    "math.pointwise",
    "math.masking",
    "math.pairs",
    "math.complex",
    "math.single_launches",
    "linear.fft",
    "reduce.reductions",
    "reduce.variances",
    "reduce.softmax",
    "tensor.factories",
    "tensor.indexing",
    "tensor.flattened",
    "sequence.embedding_bag",
    "tensor.quantized",
    "tensor.shape",
    "tensor.triangles",
    "tensor.moves",
    "reduce.scans",
    "sort.sorting",
    "sort.ranks",
    "sort.searching",
    "sort.unique",
    "reduce.histograms",
    "linear.distances",
    "tensor.random",
    "tensor.random_counts",
    "tensor.permutations",
    "linear.int_mm",
    "linear.grouped",
    "linear.trilinear",
    "linear.matmul",
    "linear.factorizations",
    "linear.packed",
    "conv.convolution",
    "image.pooling",
    "image.grid_sample",
    "image.upsampling",
    "image.affine_grid",
    "image.padding",
    "image.constant_padding",
    "image.unfolding",
    "norm.batch_norm",
    "norm.sync_batch_norm",
    "norm.layer_norm",
    "norm.group_norm",
    "norm.weight_norm",
    "sequence.attention",
    "sequence.transformer",
    "sequence.recurrent",
    "sequence.recurrent_layer",
    "sparse.conversions",
    "training.loss",
    "training.margin_losses",
    "training.label_margins",
    "training.ctc",
    "training.pointwise_losses",
    "training.optim",
    "training.foreach",
    "training.amp",
    "math.decompositions",
)

COMPOSED = "linear", "scaled_dot_product_attention", "_to_copy"
"""Operators that torch composes of others, and that are recalled as a whole, because models call
them most. Where gradients are recorded, their parts are called."""

ON_HOST = {
    "histc": 2**14,
    **dict.fromkeys(("nonzero", "masked_select", "index.Tensor", "equal"), 2**15),
    **dict.fromkeys(("_unique", "_unique2"), 2**13),
    **dict.fromkeys(("unique_consecutive", "unique_dim", "unique_dim_consecutive"), 2**16),
    "bincount": 2**17,
}
"""Operators that wait for what they compute -> items of all operands, at most, that a processor's
host looks through itself (csrc/fusion/on_host.h). More of them take kernels less time. Of
`index.Tensor` masks are meant."""

TAKE_EXPANDED = {"_index_put_impl_": "index_put_", "index_fill_": "index_fill_"}
"""Operators by which torch writes to expanded tensors, too -> their names in its warning."""
TO_PLACES = (
    *TAKE_EXPANDED, "index_add_", "index_copy_", "index_reduce_", "put_", "scatter_",
    "scatter_add_", "scatter_reduce_",
)  # fmt: skip
"""Operators that write to computed places: positions and values must lie in other memory."""


def register() -> None:
    """Register every operator of every module with torch, for the device's dispatch key.

    Where a version of torch decomposes what has a kernel here, the kernel serves.
    """
    registered: set[str] = set()
    for name in MODULES:
        for operator, implementation in import_module(f"{__name__}.{name}").OPERATORS.items():
            if name == "math.decompositions" and operator in registered:
                continue
            registered.add(operator)
            refuses_itself = name == "math.pointwise"
            make = partial(_kernel, operator, implementation, refuses_itself)
            recall.register(f"aten::{operator}", make, most_on_host=ON_HOST.get(operator, 0))
    for name in COMPOSED:
        recall.register_composed(name)
    recall.begin_before_autograd()


def _kernel(operator: str, implementation: Any, refuses_itself: bool) -> Callable[..., Any]:
    """Return what serves calls of an operator."""
    if isinstance(implementation, OfOverload):
        implementation = implementation.make(overload(operator))
    if not refuses_itself:
        implementation = _refusing(operator, implementation)
    rescues = import_module(f"{__name__}.math.complex_parts").RESCUES
    return serving(overload(operator), implementation, rescues.get(operator))


def _refusing(operator: str, implementation: Any) -> Any:
    """Return an implementation that refuses shared memory where torch does."""
    name = operator.partition(".")[0]
    if name in TO_PLACES:
        implementation = guarded(implementation, check_others)
    if name in TAKE_EXPANDED:
        return guarded(implementation, _telling_of_expanded(TAKE_EXPANDED[name]))
    if _writes_once(operator):
        return guarded(implementation, lambda out, _: check_written(name, out))
    return implementation


def _telling_of_expanded(name: str) -> Callable[[Tensor, Iterable[Any]], None]:
    def tell(out: Tensor, _: Iterable[Any]) -> None:
        if share_places(out):
            warn_of_expanded(name, 3)

    return tell


def _writes_once(operator: str) -> bool:
    """Say whether torch refuses to let this operator write in place to an expanded tensor."""
    name = operator.partition(".")[0]
    first = overload(operator)._schema.arguments[0]
    written = first.alias_info is not None and first.alias_info.is_write
    single = written and str(first.type) == "Tensor"
    return name.endswith("_") and single


def overload(operator: str) -> Any:
    """Return torch's overload called `operator`, such as `add.Tensor`."""
    return overloads.overload(f"aten::{operator}")
