"""Draws programs: lines of Python on few tensors, with views, writes in place and dropped names.

What a line does to shapes is not worked out: it is run on the CPU as it is drawn, and another one
is drawn where that fails. No operator here jumps at a value, so roundings stay roundings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

BATCH = 7
"""The batch that programs are drawn at; no other size is as large."""
BATCHES = (7, 3, 2)
MOST_ITEMS = 20_000
LONG = 60
"""Lines of a long program: more than a chain of held launches has."""
INPUTS = {"x": ("n", 4, 6, 6), "y": ("n", 4, 6, 6), "r": ("n", 8), "s": ("n", 5, 8)}
WEIGHTS = {
    "w1": (4, 4, 1, 1),
    "w3": (4, 4, 3, 3),
    "wd": (4, 1, 3, 3),
    "l8": (8, 8),
    "l6": (6, 6),
    "b4": (4,),
    "b6": (6,),
    "b8": (8,),
}

SMOOTH = (
    *("torch.tanh({a})", "torch.sigmoid({a})", "functional.gelu({a})", "functional.silu({a})"),
    *("torch.sin({a})", "{a} * {c}", "{a} + {c}", "{c} - {a}", "{a}.clone()", "{a}.contiguous()"),
    *("{a} + {b}", "{a} - {b}", "torch.tanh({a} * {b})", "torch.add({a}, {b}, alpha={c})"),
    *("torch.cat([{a}, {b}], {d})", "torch.stack([{a}, {b}])", "{a}.softmax({d})"),
    *("{a}.sum({d})", "{a}.mean({d}, keepdim=True)", "{a}.cumsum({d})", "{a}.var({d}, False)"),
    *("torch.tanh({a} @ {b}.transpose(-1, -2))", "{a} + {b}.mean().item()", "{a}.flip({d})"),
    *("functional.linear({a}, l8, b8)", "functional.linear({a}, l6)", "{a}.roll(1, {d})"),
    *("torch.tanh({a} @ l8)", "{a} @ l8 + {b}", "torch.cat([{a}, {b}], -1).mean(-1, keepdim=True)"),
    *("functional.conv2d({a}, w3, b4, padding=1)", "functional.conv2d({a}, w1)"),
    *("functional.conv2d({a}, wd, padding=1, groups=4)", "functional.avg_pool2d({a}, 2)"),
    *("functional.conv2d({a}, w3, stride=2)", "functional.interpolate({a}, scale_factor=2)"),
    *("functional.batch_norm({a}, b4, b4.square() + 0.5, b4, b4)", "{a}.repeat_interleave(2, {d})"),
    *(
        "functional.batch_norm({a}, None, None, training=True, eps=0.1)",
        "functional.layer_norm({a}, (8,), eps=0.1)",
    ),
    *(
        "functional.layer_norm({a}, (6,), b6, eps=0.1)",
        "functional.group_norm({a}, 2, b4, b4, eps=0.1)",
    ),
    *(
        "functional.pad({a}, (1, 0))",
        "{a}.index_select({d}, torch.zeros_like({a}).int()[0].view(-1))",
    ),
    *("functional.scaled_dot_product_attention(*[{a}.contiguous()] * 2, {b}.contiguous())",),
)
"""Expressions of operands a and b, a number c and a dimension d.

Attention keeps its result for its gradient, so that a program may not write to it. The CPU's does
not where rows lie apart, and accepts such a program.
"""
KINKED = (
    *("torch.relu({a})", "torch.maximum({a}, {b})", "{a}.amax({d})", "{a}.clamp(-1, 0.5)"),
    *("torch.where({a} > {b}, {a}, {b})", "functional.leaky_relu({a})", "{a}.abs()"),
    *("functional.max_pool2d({a}, 2)", "{a}.sort({d}).values", "functional.hardswish({a})"),
    *("functional.max_pool2d({a}, 3, 1, 1)", "{a}.cummax({d}).values"),
)
"""Expressions whose gradients jump: for programs without."""
VIEWS = (
    *("{a}[:, 1:]", "{a}[..., ::2]", "{a}.transpose({d}, -1)", "{a}.flatten(1)", "{a}.detach()"),
    *("{a}.unsqueeze({d})", "{a}.squeeze()", "{a}.view(-1)", "{a}.select(1, 0)", "{a}[1:]"),
    *("{a}.chunk(2, {d})[1]", "{a}.movedim(1, -1)", "{a}[:, :1].expand_as({a})", "{a}.T"),
    *("{a}.unfold({d}, 2, 2)", "{a}.reshape(-1, 2)", "{a}.narrow({d}, 0, 1)", "{a}.diagonal()"),
)
WRITES = (
    *("{a}.mul_({c})", "{a}.add_({c})", "{a}.tanh_()", "{a}.sigmoid_()", "{a}.neg_()"),
    *("{a}.sin_()", "{a}.add_({b})", "{a}.sub_({b}, alpha={c})", "{a}.copy_({b})", "{a}.zero_()"),
    *("{a}.fill_({c})", "{a}[:, 0] = {c}", "{a}[..., 1:] += {c}", "{a}.lerp_({b}, 0.5)"),
    *("{a}.addcmul_({b}, l6[0, 0])", "torch.add({a}, {b}, out={a})", "torch.tanh({b}, out={a})"),
)
WRITES_KINKED = ("{a}.relu_()", "{a}.clamp_(-1, 1)", "functional.relu({a}, inplace=True)")


@dataclass(frozen=True)
class Program:
    """Lines, whether gradients are wanted, and how it is called one time after the other."""

    lines: tuple[str, ...]
    gradients: bool
    channels_last: bool
    deterministic: bool
    batches: tuple[int, ...]
    fused: tuple[bool, ...]

    def __str__(self) -> str:
        about = f"gradients={self.gradients}, channels_last={self.channels_last}, "
        about += f"deterministic={self.deterministic}"
        pairs = zip(self.batches, self.fused, strict=True)
        calls = " ".join(f"{n}{'' if fused else '(unfused)'}" for n, fused in pairs)
        return "\n".join([f"# {about}", f"# batches: {calls}", *self.lines])


def draw(seed: str) -> Program:
    """Return the program of a seed: the same in every process."""
    rng = Random(seed)
    gradients = rng.random() < 0.4
    channels_last = rng.random() < 0.2
    names = inputs(seed, BATCH, "cpu", channels_last, gradients)
    lines: list[str] = []
    wanted = rng.randint(3, 14) if gradients or rng.random() < 0.9 else LONG
    for _ in range(20 * wanted):
        if len(lines) == wanted:
            break
        line = _line(rng, names, gradients, len(lines))
        attempt = dict(names)
        if line and not _meets_itself(line, names) and _runs(line, attempt):
            names = attempt
            lines.append(line)
    gradients = gradients and _has_gradients(seed, lines, channels_last)
    calls = rng.randint(4, 8)
    varied = rng.random() < 0.5
    return Program(
        tuple(lines),
        gradients,
        channels_last,
        rng.random() < 0.1,
        tuple(rng.choice(BATCHES) if varied else BATCH for _ in range(calls)),
        tuple(rng.random() > 0.15 for _ in range(calls)),
    )


def inputs(
    seed: str, batch: int, device: Any, channels_last: bool, gradients: bool, wide: bool = False
) -> dict[str, Any]:
    """Return the names that a program begins with; tensors are drawn on the CPU.

    Args:
        seed: of the values.
        batch: of the inputs.
        device: where they lie.
        channels_last: whether images do so.
        gradients: whether all want them.
        wide: in float64.
    """
    generator = torch.Generator().manual_seed(Random(seed).randrange(2**31))
    names: dict[str, Any] = {"torch": torch, "functional": functional}
    for name, shape in {**INPUTS, **WEIGHTS}.items():
        sizes = [batch if size == "n" else int(size) for size in shape]
        value = torch.randn(sizes, generator=generator)
        if name in WEIGHTS and len(sizes) > 1:
            value /= value[0].numel() ** 0.5
        value = value.to(device, torch.float64 if wide else torch.float32)
        if channels_last and len(sizes) == 4:
            value = value.to(memory_format=torch.channels_last)
        names[name] = value.requires_grad_(gradients)
    return names


def _line(rng: Random, names: dict[str, Any], gradients: bool, number: int) -> str:
    """Return a line on tensors of `names`, which may not run."""
    tensors = [name for name, value in names.items() if isinstance(value, Tensor)]
    made = [name for name in tensors if name not in WEIGHTS]
    if len(made) > 3 and rng.random() < 0.1:
        return f"del {rng.choice(made)}"
    a = rng.choice(made[-3:] if rng.random() < 0.7 else made)
    alike = [name for name in made if names[name].shape == names[a].shape]
    b = rng.choice(alike if rng.random() < 0.8 else made)
    words = {"a": a, "b": b, "c": round(rng.uniform(-1.5, 1.5), 2)}
    words["d"] = rng.randint(-1, max(names[a].dim() - 1, 0))
    kind = rng.random()
    if kind < 0.25:
        writes = WRITES if gradients else (*WRITES, *WRITES_KINKED)
        return rng.choice(writes).format(**words)
    table = VIEWS if kind < 0.45 else SMOOTH if gradients else (*SMOOTH, *KINKED)
    target = a if rng.random() < 0.2 else f"v{number}"
    return f"{target} = {rng.choice(table).format(**words)}"


def _meets_itself(line: str, names: dict[str, Any]) -> bool:
    """Whether a line writes to a tensor that shares memory with another one in it.

    No order is promised to reads and writes of the same memory, so results may differ rightly.
    """
    words = set(re.findall(r"\w+", line))
    used = [value for name, value in names.items() if isinstance(value, Tensor) and name in words]
    lies = {(one.data_ptr(), one.shape, one.stride()) for one in used}
    shares = len({one.untyped_storage().data_ptr() for one in used}) < len(lies)
    return shares and ("_(" in line or "out=" in line)


def _runs(line: str, names: dict[str, Any]) -> bool:
    """Run a line on the CPU; whether it ran, and left finite tensors of some items."""
    try:
        exec(line, names)
        tensors = [value for value in names.values() if isinstance(value, Tensor)]
        # a part of `chunk` whose base was written to cannot be read any more
        return all(0 < t.numel() <= MOST_ITEMS and bool(t.isfinite().all()) for t in tensors)
    except Exception:  # whatever does not run is no line of a program
        return False


def _has_gradients(seed: str, lines: list[str], channels_last: bool) -> bool:
    """Whether autograd accepts what the lines overwrite, and something wants a gradient."""
    names = inputs(seed, BATCH, "cpu", channels_last, True)
    try:
        for line in lines:
            exec(line, names)
        total(names).backward()
    except Exception:  # such as a saved tensor that was written to
        return False
    return True


def total(names: dict[str, Any]) -> Tensor:
    """Return the sum of what a program leaves, as a loss."""
    made = [v for k, v in names.items() if isinstance(v, Tensor) and k not in WEIGHTS]
    return torch.stack([value.tanh().mean() for value in made if value.requires_grad]).sum()
