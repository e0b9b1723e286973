"""The operations of drawn calls: one table of what is called, with which dtypes and values.

A text holds fields, which `calls` fills: tensors `a`, `b`, `c` (the latter two broadcast with a
unless `shapes` says more), a mask `m`, positions along dimension `d` (`i` may meet, `p` do not;
`j` and `q` are the same with a's shape), numbers `n` and `k` (`k`: a small count), a dtype `t`, and
an output `o`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch

BITS_16 = (torch.float16, torch.bfloat16)
FLOATS = (*BITS_16, torch.float32, torch.float64)
WHOLE = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
ALL = (*FLOATS, *WHOLE, torch.bool)
NUMBERS = (*FLOATS, *WHOLE)
BYTES_TOO = (*FLOATS, torch.uint8, torch.uint8, torch.uint8)

Values = Literal["limits", "open", "tame"]


@dataclass(frozen=True)
class Operation:
    """One call.

      `dtypes` are those of a; half of the other tensors have a's. `values` says which special ones
    come: a dtype's limits, or only infinities and NaN, or none. `shapes` has sizes by letters. Of
      `smooth` ones, gradients are compared, too; theirs and those of ones that are not `mixed` are
      tensors of one dtype.
    """

    text: str
    dtypes: tuple[torch.dtype, ...] = ALL
    values: Values = "limits"
    shapes: dict[str, str] = field(default_factory=dict)
    smooth: bool = False
    mixed: bool = True


def _each(
    names: str, *texts: str, dtypes: tuple[torch.dtype, ...] = ALL, values: Values = "limits",
    smooth: bool = False,
) -> list[Operation]:  # fmt: skip
    """Return the operations of all names, of which a text has the field `f`."""
    return [
        Operation(text.replace("{f}", name), dtypes, values, smooth=smooth)
        for name in names.split()
        for text in texts
    ]


UNARY = (
    *_each(
        "abs neg sign sgn floor ceil trunc round frac isnan isinf isfinite signbit square "
        "logical_not bitwise_not nan_to_num positive isposinf isneginf angle relu",
        "torch.{f}({a})", "{a}.clone().{f}()",
    ),
    *_each(
        "abs neg sign floor ceil trunc round signbit square logical_not bitwise_not nan_to_num",
        "torch.{f}({a}, out={o})",
    ),
    *_each(
        "abs_ neg_ sign_ floor_ ceil_ trunc_ round_ frac_ square_ logical_not_ bitwise_not_ "
        "nan_to_num_ relu_ zero_",
        "{a}.{f}()",
    ),
    *_each(
        "sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos asin acos atan tanh "
        "asinh acosh atanh erf erfc sigmoid logit",
        "torch.{f}({a})", "torch.{f}({a}, out={o})", values="open",
    ),
    *_each("sinh cosh tan lgamma digamma sinc erfinv i0", "torch.{f}({a})", values="tame"),
    *_each("sqrt_ exp_ sin_ tanh_ sigmoid_ reciprocal_ log_", "{a}.{f}()", values="open"),
    *_each(
        "gelu silu elu hardswish hardsigmoid hardtanh leaky_relu softplus softshrink hardshrink "
        "mish logsigmoid relu6 selu celu softsign tanhshrink",
        "functional.{f}({a})", values="open",
    ),
    *_each("gelu silu elu softplus mish logsigmoid tanhshrink softsign", "functional.{f}({a})",
           dtypes=FLOATS, values="tame", smooth=True),
    Operation("functional.threshold({a}, {n}, {n})"),
    Operation("torch.round({a}, decimals=1)", values="tame"),
    Operation("{a}.fill_({n})"), Operation("torch.full_like({a}, {n})"),
    Operation("torch.clamp({a}, {n}, {n})"), Operation("torch.clamp({a}, max={n})"),
    Operation("{a}.clamp_(min={n})"),
    Operation("{a}.to({t})", values="tame"), Operation("{a}.bool()"),
    Operation("torch.zeros_like({a}, dtype={t})"), Operation("torch.ones_like({a})"),
)  # fmt: skip

BINARY = (
    *_each(
        "add sub mul maximum minimum fmax fmin eq ne lt le gt ge logical_and logical_or "
        "logical_xor",
        "torch.{f}({a}, {b})", "torch.{f}({a}, {b}, out={o})", "{a}.{f}({b})",
    ),
    *_each(
        "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift",
        "torch.{f}({a}, {b})", "torch.{f}({a}, {b}, out={o})",
        dtypes=(*WHOLE, torch.bool, *BITS_16),
    ),
    # of the smallest integer they are undefined
    *_each("gcd lcm", "torch.{f}({a}, {b})", "torch.{f}({a}, {b}, out={o})", values="tame"),
    *_each("gcd_ lcm_", "{a}.{f}({b})", dtypes=WHOLE, values="tame"),
    *_each("bitwise_and_ bitwise_xor_", "{a}.{f}({b})", dtypes=(*WHOLE, torch.bool)),
    *_each("& | ^ << >>", "{a} {f} {b}", "{a} {f} {k}", dtypes=(*WHOLE, torch.bool)),
    *_each("add_ sub_ mul_ eq_ lt_ logical_and_", "{a}.{f}({b})"),
    *_each("+ - * < >= == !=", "{a} {f} {n}", "{n} {f} {a}"),
    *_each("div floor_divide fmod remainder", "torch.{f}({a}, {b})", "torch.{f}({a}, {n})",
           "torch.{f}({a}, {b}, out={o})", values="open"),
    *_each("div_ floor_divide_ fmod_ remainder_", "{a}.{f}({b})", values="open"),
    *_each("trunc floor", "torch.div({a}, {b}, rounding_mode='{f}')", values="open"),
    *_each("atan2 hypot copysign xlogy logaddexp logaddexp2 heaviside",
           "torch.{f}({a}, {b})", "torch.{f}({a}, {b}, out={o})", values="open"),
    *_each("nextafter ldexp", "torch.{f}({a}, {b})", values="tame"),
    *_each("pow", "torch.{f}({a}, {b})", "torch.{f}({a}, {k})", "torch.{f}({n}, {a})",
           "{a}.{f}_({n})", values="tame"),
    Operation("torch.add({a}, {b}, alpha={n})", values="tame"),
    Operation("torch.sub({a}, {b}, alpha={n})", values="tame"),
    Operation("{a}.add_({b}, alpha={n})", values="tame"),
    Operation("torch.rsub({a}, {n})"), Operation("torch.addcmul({a}, {b}, {c})", values="tame"),
    Operation("torch.addcdiv({a}, {b}, {c})", values="tame"),
    Operation("torch.addcmul({a}, {b}, {c}, value={n})", values="tame"),
    Operation("torch.lerp({a}, {b}, {n})", values="tame"),
    Operation("torch.lerp({a}, {b}, {c})", values="tame"),
    Operation("torch.clamp({a}, {b}, {c})"), Operation("torch.where({m}, {a}, {b})"),
    Operation("torch.where({m}, {a}, {n})"), Operation("torch.where({m}, {a}, {b}, out={o})"),
    Operation("{a}.masked_fill({m}, {n})"), Operation("{a}.masked_fill_({m}, {n})"),
    Operation("{a}.copy_({b})", (*FLOATS, torch.int32, torch.bool), "tame"),
    Operation("torch.equal({a}, {b})"),
    Operation("torch.isclose({a}, {b})", values="open"),
    *_each("* + /", "{a} {f} {b}", dtypes=FLOATS, values="tame", smooth=True),
)  # fmt: skip

REDUCTIONS = (
    *_each("amax amin argmax argmin", "torch.{f}({a}, {d})", "torch.{f}({a})", values="open"),
    *_each("all any count_nonzero", "torch.{f}({a}, {d})", "torch.{f}({a})"),
    *_each("amax amin", "torch.{f}({a}, {d}, out={o})", values="open"),
    # the CPU casts to the output first, and so 256 to the byte 0
    *_each("all any", "torch.{f}({a}, {d}, out={o})", values="tame"),
    *_each("sum prod nansum", "torch.{f}({a})", "torch.{f}({a}, {d}, dtype={t})", values="tame"),
    *_each("sum prod mean", "torch.{f}({a}, {d}, out={o})", values="tame"),
    *_each("sum mean nanmean", "torch.{f}({a}, {d}, keepdim=True)", values="open"),
    *_each("std var logsumexp", "torch.{f}({a}, {d})", values="tame"),
    *_each("max min", "torch.{f}({a})", "torch.{f}({a}, {d})", values="open"),
    *_each("cumsum cumprod", "torch.{f}({a}, {d})", "torch.{f}({a}, {d}, dtype={t})",
           "torch.{f}({a}, {d}, out={o})", "{a}.{f}_({d})", values="tame"),
    *_each("cummax cummin", "torch.{f}({a}, {d})", values="open"),
    *_each("softmax log_softmax", "torch.{f}({a}, {d})", "torch.{f}({a}, {d}, dtype={t})",
           values="tame"),
    *_each("softmax log_softmax logsumexp", "torch.{f}({a}, {d})", dtypes=FLOATS, values="tame",
           smooth=True),
    *_each("sum mean", "torch.{f}({a}, {d})", dtypes=FLOATS, values="tame", smooth=True),
    *_each("median nanmedian", "torch.{f}({a}, {d}).values", values="open"),
    Operation("torch.mode({a}, {d}).values", values="tame"),
    Operation("torch.aminmax({a})", values="open"), Operation("torch.norm({a})", values="tame"),
    Operation("torch.linalg.vector_norm({a}, {k}, {d})", values="tame"),
    Operation("torch.sort({a}, {d}, stable=True)", values="open"),
    Operation("torch.sort({a}, {d}, descending=True, stable=True)", values="open"),
    Operation("torch.topk({a}, {k}, {d}).values"), Operation("torch.kthvalue({a}, 1, {d}).values"),
    Operation("torch.unique({a}, return_inverse=True, return_counts=True)", values="tame"),
    Operation("torch.unique_consecutive({a})", values="tame"),
    Operation("torch.diff({a})", values="tame"), Operation("torch.logcumsumexp({a}, {d})",
                                                           values="tame"),
    Operation("torch.histc({a}, 4, -3, 5)", FLOATS, "tame"),
    Operation("torch.bincount({a}.flatten().abs())", (*WHOLE, torch.bool, torch.float32), "tame"),
    Operation("torch.trace({a})", values="tame", shapes={"a": "nk"}),
)  # fmt: skip

INDEXING = (
    Operation("{a}.index_select({d}, {i})"), Operation("{a}.gather({d}, {j})"),
    Operation("{a}.scatter({d}, {q}, {b})"), Operation("{a}.scatter({d}, {q}, {n})"),
    Operation("{a}.scatter_add({d}, {j}, {b})", values="tame"),
    Operation("{a}.scatter_add_({d}, {j}, {b})", values="tame"),
    *_each("sum prod mean amax amin", "{a}.scatter_reduce({d}, {j}, {b}, '{f}')",
           "{a}.scatter_reduce_({d}, {j}, {b}, '{f}', include_self=False)", values="tame"),
    *_each("prod mean amax amin", "{a}.index_reduce({d}, {i}, {b}, '{f}')", values="tame"),
    Operation("{a}.index_add({d}, {i}, {b})", values="tame"),
    Operation("{a}.index_add_({d}, {i}, {b}, alpha={n})", values="tame"),
    Operation("{a}.index_copy({d}, {p}, {b})"), Operation("{a}.index_copy_({d}, {p}, {b})"),
    Operation("{a}.index_fill({d}, {i}, {n})"), Operation("{a}.index_fill_({d}, {i}, {n})"),
    Operation("{a}[{m}]"), Operation("{a}.masked_select({m})"), Operation("{a}.nonzero()"),
    Operation("{a}.index_put_(({m},), {a}.new_tensor({k}))"),
    Operation("{a}.masked_scatter({m}, {b})"), Operation("{a}.take({j}.abs())"),
    Operation("torch.take_along_dim({a}, {j}, {d})"), Operation("torch.argwhere({a})"),
    Operation("functional.embedding({i} % {a}.shape[0], {a})", shapes={"a": "nk"}),
    Operation("functional.one_hot({i})"), Operation("torch.isin({a}, {b})", values="tame"),
    Operation("torch.searchsorted({a}.flatten().sort().values, {b})", values="tame"),
    Operation("torch.bucketize({a}, {b}.flatten().sort().values)", values="tame"),
    Operation("{a}.put_({p}, {b}.new_ones({p}.shape))"),
    Operation("{a}.put_({i}, {b}.new_ones({i}.shape), accumulate=True)", values="tame"),
    Operation("torch.tril({a}, {k})"),
    Operation("torch.triu({a})"), Operation("torch.diag({a})"),
    Operation("{a}.repeat_interleave({k}, {d})"),
)  # fmt: skip

SHAPES = (
    Operation("torch.cat([{a}, {b}], {d})"),
    Operation("torch.stack([{a}, {b}], {d})"),
    Operation("torch.cat([{a}, {a}], {d}, out={o})"),
    Operation("torch.flip({a}, [{d}])"),
    Operation("torch.roll({a}, {k}, {d})"),
    Operation("functional.pad({a}, (1, 2))"),
    Operation("functional.pad({a}, (1, 0), value={n})"),
    Operation("{a}.repeat(2, {k}, 1, 1, 1)"),
    Operation("functional.pad({a}, (1, 1), 'reflect')", shapes={"a": "cww"}),
    Operation("functional.pad({a}, (2, 1), 'replicate')", shapes={"a": "cww"}),
    Operation("functional.pad({a}, (1, 0), 'circular')", shapes={"a": "cww"}),
    Operation("torch.arange(-{k}, 9.5, dtype={t}, device={a}.device)"),
    Operation("torch.arange({k}, 8, {k}, dtype={t}, device={a}.device)"),
    Operation("torch.linspace({k}, 9, 5, dtype={t}, device={a}.device)"),
    Operation("torch.full((2, 3), {n}, dtype={t}, device={a}.device)"),
    Operation("torch.eye({k}, 3, dtype={t}, device={a}.device)"),
    Operation("torch.trapezoid({a})", values="tame"),
    Operation("torch.meshgrid({i}, {p})"),
    Operation("{a}.unfold({d}, 1, 1) * 1"),
    Operation("{a}.view({t})"),
    Operation("{a}.t().contiguous()", shapes={"a": "nk"}),
    Operation("torch.rot90({a})"),
)

PRODUCTS = (
    Operation("{a} @ {b}", values="tame", shapes={"a": "nk", "b": "km"}),
    Operation("torch.bmm({a}, {b})", values="tame", shapes={"a": "cnk", "b": "ckm"}),
    Operation("torch.mm({a}, {b}, out={o})", values="tame", shapes={"a": "nk", "b": "km"}),
    Operation("torch.mv({a}, {b})", values="tame", shapes={"a": "nk", "b": "k"}),
    Operation("torch.dot({a}, {b})", values="tame", shapes={"a": "k", "b": "k"}),
    Operation("torch.outer({a}, {b})", values="tame", shapes={"a": "n", "b": "k"}),
    Operation("torch.addmm({c}, {a}, {b})", values="tame",
              shapes={"a": "nk", "b": "km", "c": "m"}),
    Operation("torch.addmm({c}, {a}, {b}, beta={k}, alpha={n})", values="tame",
              shapes={"a": "nk", "b": "km", "c": "nm"}),
    Operation("torch.baddbmm({c}, {a}, {b}, alpha={k})", values="tame",
              shapes={"a": "cnk", "b": "ckm", "c": "cnm"}),
    # without products, the CPU's result has the shape of a bias of one item
    Operation("torch.addmv({c} if {a}.numel() else {c}.expand(len({a})), {a}, {b})", values="tame",
              shapes={"a": "nk", "b": "k", "c": "n"}),
    # torch composes it on devices: products are rounded before they meet another dtype
    Operation("torch.addr({c}, {a}, {b})", values="tame",
              shapes={"a": "n", "b": "k", "c": "nk"}, mixed=False),
    Operation("functional.linear({a}, {b}, {c})", values="tame",
              shapes={"a": "cnk", "b": "mk", "c": "m"}),
    Operation("functional.linear({a}, {b})", FLOATS, "tame", {"a": "nk", "b": "mk"}, True),
    Operation("{a} @ {b}", FLOATS, "tame", {"a": "nk", "b": "km"}, True),
    Operation("torch.einsum('nk,km->mn', {a}, {b})", values="tame",
              shapes={"a": "nk", "b": "km"}),
    Operation("torch.kron({a}, {b})", values="tame", shapes={"a": "nk", "b": "km"}),
    Operation("torch.cdist({a}, {b})", values="tame", shapes={"a": "nk", "b": "mk"}),
    Operation("torch.cross({a}, {b}, -1)", values="tame", shapes={"a": "n3", "b": "n3"}),
    Operation("functional.conv2d({a}, {b})", values="tame",
              shapes={"a": "2cww", "b": "mc33"}),
    Operation("functional.conv2d({a}, {b}, {c}, 2, 1)", FLOATS, "tame",
              {"a": "2cww", "b": "mc33", "c": "m"}, True),
    Operation("functional.conv1d({a}, {b})", values="tame", shapes={"a": "2cw", "b": "mc3"}),
    Operation("functional.conv_transpose2d({a}, {b})", values="tame",
              shapes={"a": "2cww", "b": "cm33"}, mixed=False),
    Operation("functional.scaled_dot_product_attention({a}, {b}, {c})", FLOATS, "tame",
              {"a": "2cnk", "b": "2cmk", "c": "2cmk"}),
)  # fmt: skip

_IMAGE = {"a": "2cww"}
_RESIZES = ("mode='nearest'", "mode='bilinear'", "mode='bicubic'", "mode='nearest-exact'",
            "mode='bilinear', align_corners=True", "mode='bilinear', antialias=True",
            "mode='bicubic', antialias=True", "mode='bicubic', align_corners=True")  # fmt: skip
LAYERS = (
    *(Operation(f"functional.interpolate({{a}}, size=({size}), {how})", BYTES_TOO, "tame", _IMAGE)
      for how in _RESIZES for size in ("9, 4", "3, 1 + {k}", "1 + {k}, 8")),
    *(Operation(f"functional.interpolate({{a}}, scale_factor={scale}, {how})", dtypes, "tame",
                _IMAGE)
      for how in _RESIZES for scale in (0.6, 1.7) for dtypes in (BYTES_TOO, ALL)),
    *(Operation(f"functional.{name}({{a}}, 2)", ALL, "tame", _IMAGE)
      for name in ("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "adaptive_max_pool2d")),
    Operation("functional.max_pool2d({a}, 3, 2, 1)", ALL, "open", _IMAGE),
    Operation("functional.pixel_shuffle({a}, 2)", ALL, "limits", {"a": "28ww"}),
    Operation("functional.grid_sample({a}, {b})", ALL, "tame", {"a": "2cww", "b": "2nk2"}),
    Operation("functional.layer_norm({a}, {a}.shape[-1:], eps=0.1)", ALL, "tame"),
    Operation("functional.layer_norm({a}, {a}.shape[-1:], {b}, {c}, eps=0.1)", FLOATS, "tame",
              {"a": "nk", "b": "k", "c": "k"}, True),
    Operation("functional.rms_norm({a}, {a}.shape[-1:])", FLOATS, "tame", {"a": "nk"}),
    Operation("functional.group_norm({a}, 2, eps=0.1)", ALL, "tame", {"a": "24ww"}),
    Operation("functional.batch_norm({a}, None, None, training=True, eps=0.1)", ALL, "tame",
              _IMAGE),
    *_each("mse_loss l1_loss smooth_l1_loss huber_loss", "functional.{f}({a}, {b})",
           "functional.{f}({a}, {b}, reduction='none')", values="tame"),
    *_each("mse_loss l1_loss", "functional.{f}({a}, {b})", dtypes=FLOATS, values="tame"),
    Operation("functional.binary_cross_entropy_with_logits({a}, {b})", ALL, "tame"),
    Operation("functional.kl_div({a}, {b}, reduction='sum')", ALL, "tame"),
    Operation("functional.cross_entropy({a}, {i}[:1] * 0 + 1)", ALL, "tame", {"a": "1k"}),
    Operation("functional.nll_loss({a}, {i}[:1] * 0)", ALL, "tame", {"a": "1k"}),
    Operation("ops.roi_align({a}, {b}.abs() * {a}.new_tensor([0, 1, 1, 2, 2]), 2)", FLOATS,
              "tame", {"a": "2cww", "b": "n5"}),
    Operation("ops.roi_pool({a}, {b}.abs() * {a}.new_tensor([0, 1, 1, 2, 2]), 2)", FLOATS,
              "tame", {"a": "2cww", "b": "n5"}),
)  # fmt: skip

TABLES = (UNARY, BINARY, REDUCTIONS, INDEXING, SHAPES, PRODUCTS, LAYERS)
"""One of them is drawn first, so that long ones do not crowd out the others."""
