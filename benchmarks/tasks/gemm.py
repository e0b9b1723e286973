"""The matrix products of the benchmarks, chosen and drawn.

python -m benchmarks gemm --device 0 --trials 30 --only squares,skinny
python -m benchmarks gemm --dtype fp32,bf16 --json benchmarks/results/mine.json
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from random import Random

from benchmarks.tasks.draw import Draw, distinct, log_uniform
from benchmarks.tasks.task import Task, task_of
from oclgen.limits import Limits
from oclgen.problem import GemmProblem

MATRIX_DTYPES = ("fp32", "tf32", "fp16", "bf16")
IN_ALL_DTYPES = ("squares", "skinny")
"""Groups that are measured in every dtype of the device's matrix units, the others in fp32."""
SIZES = {"cpu": (256, 512, 1024, 2048), "gpu": (256, 512, 1024, 2048, 4096, 8192)}
SKINNY = (
    GemmProblem(1, 4096, 4096),
    GemmProblem(16, 4096, 4096),
    GemmProblem(128, 4096, 4096),
    GemmProblem(64, 1000, 2048),
    GemmProblem(4096, 4096, 64),
)
LINEAR = ((1, 4096, 4096), (8, 4096, 4096), (8, 1000, 512), (128, 3072, 768), (64, 4096, 25088))
"""Rows, outputs and inputs of linear layers, whose weights lie along k."""
BATCHED = (
    GemmProblem(256, 256, 256, batch=16),
    GemmProblem(512, 512, 64, batch=96, trans_b=True),  # scores of an attention
    GemmProblem(512, 64, 512, batch=96),
)
DRAWN = 16
"""Products that a seed draws."""
SMALLEST, VECTOR = 16, 8
"""Least n and k of a drawn product; sizes that are rounded up become multiples of `VECTOR`."""
TRANSPOSES = ((False, False), (False, True), (False, True), (True, False))


def groups(kind: str) -> dict[str, tuple[int, list[GemmProblem]]]:
    """Return rank and problems by group, for a kind of device."""
    sizes = SIZES.get(kind, SIZES["cpu"])
    side = sizes[-2]
    return {
        "squares": (0, [GemmProblem(size, size, size) for size in sizes]),
        "skinny": (0, list(SKINNY)),
        "transposes": (
            1,
            [
                GemmProblem(side, side, side, trans_a=trans_a, trans_b=trans_b)
                for trans_a in (False, True)
                for trans_b in (False, True)
            ],
        ),
        "linear": (1, [GemmProblem(m, n, k, trans_b=True) for m, n, k in LINEAR]),
        "batched": (1, list(BATCHED)),
    }


def drawn(seed: int, count: int, kind: str) -> list[GemmProblem]:
    """Return different products of random sizes, for a kind of device.

    Sizes are log-uniform up to the largest square's; half of the products have whole vectors
    along all of them, as layers have that people design. Transposed weights, as of linear layers,
    are as frequent as all else; one product in four is batched.

    Args:
        seed: equal seeds give equal products.
        count: products.
        kind: "cpu" or "gpu": how large they are.
    """
    largest = SIZES.get(kind, SIZES["cpu"])[-1]
    return distinct("gemm", seed, count, partial(any_product, largest))


def any_product(largest: int, random: Random) -> GemmProblem | None:
    """Return a product in fp32, sizes up to `largest`; None where what was drawn is too large."""
    m, n, k = (log_uniform(random, low, largest) for low in (1, SMALLEST, SMALLEST))
    if random.random() < 0.5:
        m, n, k = (-(-size // VECTOR) * VECTOR for size in (m, n, k))
    trans_a, trans_b = random.choice(TRANSPOSES)
    batch = log_uniform(random, 2, 64) if random.random() < 0.25 else 1
    product = GemmProblem(m, n, k, trans_a=trans_a, trans_b=trans_b, batch=batch)
    is_small = product.flops <= 2 * largest**3 and product.bytes <= 16 * largest**2
    return product if is_small else None


def tasks(limits: Limits, draw: Draw, dtypes: tuple[str, ...] = ()) -> Iterator[Task]:
    """Yield the products; in `dtypes`, or else those that the device has units for.

    Args:
        limits: of the device.
        draw: how many products are drawn at random, and their seed.
        dtypes: of the operands; those that the device has units for if empty.
    """
    matrix = MATRIX_DTYPES if "mma" in limits.instructions else ("fp32",)
    for group, (rank, problems) in groups(limits.kind).items():
        for dtype in dtypes or (matrix if group in IN_ALL_DTYPES else ("fp32",)):
            for problem in problems:
                yield task_of(replace(problem, dtype=dtype), f"{group} {dtype}", rank)
    for problem in drawn(draw.seed, draw.of(DRAWN), limits.kind):
        for dtype in dtypes or matrix:
            group = f"drawn products {dtype}"
            yield task_of(replace(problem, dtype=dtype), group, 0, draw.seed)
